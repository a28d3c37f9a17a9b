"""What do the original, the pruned and the repaired models write, side by side?

All columns advance in lock step, one token each, so that a reader sees where they part. The original runs at batch 1
with its own cache, exactly as each variant does: with nothing removed the columns are identical and every KL is 0.
"""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ghosted.errors import GhostedError, InputError, ModelError
from ghosted.models.placement import execution_device
from ghosted.progress import CancelFlag, Steps
from ghosted.prompts import encode_prompt
from ghosted.results import Column, Top

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

KL_CHUNK = 16
"""New tokens between two teacher-forced passes of the original over the variants' own prefixes."""

TOP = 5
"""How many of the most likely tokens are kept at each position; of the other probabilities nothing is."""

_CONTEXT_TOKENS = 8
_PIECE_LETTERS = 24  # some vocabularies have tokens of a hundred spaces


@dataclass
class Generation:
    """What was written: one column per model, in the order given, and sentences a reader must see beside them."""

    columns: list[Column]
    notices: list[str] = field(default_factory=list)


def generate(
    models: Mapping[str, PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    *,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
    chat: bool = False,
    added_parameters: Mapping[str, int] | None = None,
    cancel: CancelFlag | None = None,
) -> Steps[Generation]:
    """Continue ``prompt`` with every model in lock step.

    Yields the live list of :class:`~ghosted.results.Column` once per new token. A column's ``kl`` may trail its
    ``tokens`` by up to :data:`KL_CHUNK` while running: after a column has parted from the original, the original reads
    that column's own prefix in chunks. A column whose model raises says so in ``error`` and the others go on.

    Args:
        models: by column name; the first is the original that the others are compared with.
        tokenizer: the models' common tokenizer.
        prompt: see :func:`~ghosted.prompts.encode_prompt`.
        max_new_tokens: at least 1; an end-of-sequence token ends a column sooner.
        temperature: 0 is greedy; above 0, tokens are drawn by the Gumbel-max trick with noise that depends on ``seed``
            and the step only, so all columns share it.
        seed: of that noise.
        chat: wrap the prompt in the chat template where there is one.
        added_parameters: numbers that a model's repair adds beside its modules' own parameters, by column name.
        cancel: stops before the next model's token.

    Raises:
        InputError: a setting makes no sense.
        Cancelled: a stop was asked for; the yielded columns keep what was written.
    """
    original = next(iter(models.values()))
    limit = _prompt_limit(original, max_new_tokens)
    if not 0 <= temperature < float("inf"):
        raise InputError(f"The temperature is 0 (greedy) or above, not {temperature:g}.")
    encoded = encode_prompt(tokenizer, prompt, chat=chat, limit=limit)
    ends = _end_ids(original, tokenizer)
    added = added_parameters or {}
    writers = [
        _Writer(Column(name, parameters=_count(model) + added.get(name, 0)), model, tokenizer, encoded.ids, ends)
        for name, model in models.items()
    ]
    columns, notices = [writer.column for writer in writers], list(encoded.notices)
    reference = _Reference(writers[0], writers[1:])
    for step in range(max_new_tokens):
        for writer in writers:
            if writer.column.finished:
                writer.log_p = None
                continue
            if cancel is not None:
                cancel.check()
            writer.write(step, temperature, seed)
        last = step + 1 == max_new_tokens or all(column.finished for column in columns)
        reference.compare(step, last, notices)
        for column in columns:
            column.finished = column.finished or last
        yield columns
        if last:
            break
    return Generation(columns, notices)


def _prompt_limit(model: PreTrainedModel, max_new_tokens: int) -> int | None:
    if max_new_tokens < 1:
        raise InputError(f"At least 1 new token has to be asked for, not {max_new_tokens}.")
    context = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if not isinstance(context, int):
        return None
    if max_new_tokens >= context:
        raise InputError(f"This model's context is {context} tokens; ask for fewer than {context} new ones.")
    return context - max_new_tokens


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    settings = getattr(model, "generation_config", None)
    named = getattr(settings, "eos_token_id", None)
    return frozenset(i for i in (*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id)
                     if i is not None)  # fmt: skip


def _count(model: PreTrainedModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())  # tied ones come once


def _new_cache(model: PreTrainedModel) -> DynamicCache:
    from transformers import DynamicCache

    return DynamicCache(config=model.config)


def _snapshot(cache: DynamicCache) -> DynamicCache:
    """A cache that keeps this moment: layers grow by concatenation, never in place, so no tensor is copied."""
    frozen = copy.copy(cache)
    frozen.layers = [copy.copy(layer) for layer in cache.layers]
    return frozen


def _log_probabilities(model: PreTrainedModel, ids: list[int], cache: DynamicCache, keep: int) -> torch.Tensor:
    """Feed ``ids`` and return float32 log-probabilities ``(keep, vocabulary)`` after each of the last ``keep``."""
    only_last = {"logits_to_keep": keep} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    # Entered per call: a mode held across a yield would leak into whoever drives the generator.
    with torch.inference_mode():
        fed = torch.tensor([ids], device=execution_device(model))
        logits = model(input_ids=fed, cache=cache, use_cache=True, **only_last).logits[0, -keep:].float()
        if torch.isnan(logits).any():
            raise ModelError("The model's scores are not numbers (NaN); load it in a wider dtype.")
        return torch.log_softmax(logits, dim=-1)


def _choose(log_p: torch.Tensor, temperature: float, seed: int, step: int) -> int:
    """Take the most likely token, or draw one: argmax(log p / T + Gumbel noise) is a sample of softmax(log p / T)."""
    if temperature == 0:
        return int(log_p.argmax())
    noise = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    gumbel = -torch.empty(log_p.shape[-1], dtype=torch.float64).exponential_(generator=noise).log()
    return int((log_p.cpu().double() / temperature + gumbel).argmax())


def _divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> float:
    """KL(p ‖ q) in nats of two log-probability vectors ``(vocabulary,)``; 0 exactly where they are equal."""
    terms = torch.where(log_p == log_q, 0.0, log_p.exp() * (log_p - log_q))
    return max(0.0, float(terms.sum(dtype=torch.float64)))


def _likeliest(log_p: torch.Tensor) -> list[tuple[list[int], list[float]]]:
    """Return ids and probabilities of the most likely tokens of each row of ``(n, vocabulary)``; ties by id."""
    values, ids = log_p.topk(min(TOP, log_p.shape[-1]), dim=-1)
    rows = []
    for row in zip(values.exp().tolist(), ids.tolist(), strict=True):
        pairs = sorted(zip(*row, strict=True), key=lambda pair: (-pair[0], pair[1]))
        rows.append(([i for _, i in pairs], [float(f"{p:.3g}") for p, _ in pairs]))
    return rows


class _Writer:
    """One column: its model, its cache, and the text so far."""

    def __init__(
        self,
        column: Column,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        prompt: tuple[int, ...],
        ends: frozenset[int],
    ) -> None:
        self.column, self.model = column, model
        self.log_p: torch.Tensor | None = None
        self.best = -1
        self.cache: DynamicCache | None = None
        self._tokenizer, self._prompt, self._ends = tokenizer, prompt, ends
        # Decoded behind a bit of the prompt: sentencepiece drops the space of a text's first word.
        self._before = list(prompt[-_CONTEXT_TOKENS:])
        self._before_text = self._decode(self._before)
        self._special = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items() if token.special}

    def write(self, step: int, temperature: float, seed: int) -> None:
        """Write one token; leave its log-probabilities ``(vocabulary,)`` in ``log_p``, the likeliest id in ``best``.

        ``log_p`` is ``None`` if it failed.
        """
        self.log_p = None
        try:
            if self.cache is None:
                self.cache = _new_cache(self.model)
            fed = [self.column.tokens[-1]] if step else list(self._prompt)
            start = time.perf_counter()
            log_p = _log_probabilities(self.model, fed, self.cache, keep=1)[0]
            self.column.seconds += time.perf_counter() - start if step else 0.0
            token = _choose(log_p, temperature, seed, step)
            (likeliest,) = _likeliest(log_p[None])
            surprisal, top = max(0.0, -float(log_p[token])), self.spelled(step, *likeliest)
        except Exception as error:  # whatever a model raises concerns its own column only
            self.column.error = _sentence(error, step)
            self.column.finished = True
            return
        self.log_p, self.best = log_p, likeliest[0][0]
        self.column.top.append(top)
        self.column.surprisal.append(surprisal)
        self.column.tokens.append(token)
        self.column.finished = token in self._ends
        self._show()

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def spelled(self, position: int, ids: list[int], probabilities: list[float]) -> Top:
        """Return what each of ``ids`` would look like as new token number ``position`` of this column."""
        context = (self._before + self.column.tokens[max(position - _CONTEXT_TOKENS, 0) : position])[-_CONTEXT_TOKENS:]
        before = self._decode(context).rstrip("\N{REPLACEMENT CHARACTER}")
        pieces = [self._special.get(i) or self._decode([*context, i])[len(before) :] for i in ids]
        whole = [piece.replace("\N{REPLACEMENT CHARACTER}", "")[:_PIECE_LETTERS] for piece in pieces]
        return list(zip(whole, probabilities, strict=True))

    def _show(self) -> None:
        column = self.column
        new = column.tokens[:-1] if column.finished else column.tokens
        text = self._decode(self._before + new)
        text = text[len(self._before_text) :] if text.startswith(self._before_text) else self._decode(new)
        # Bytes that make no character (yet) decode to U+FFFD; the token that completes a character shows it whole.
        text = text.replace("\N{REPLACEMENT CHARACTER}", "")
        pairs = zip(text, column.text, strict=False)
        common = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(column.text)))
        excess = len(column.text) - common
        for i in reversed(range(len(column.pieces))):
            if not excess:
                break
            cut = min(excess, len(column.pieces[i]))
            column.pieces[i] = column.pieces[i][: len(column.pieces[i]) - cut]
            excess -= cut
        column.pieces.append(text[common:])
        column.text = text


def _sentence(error: Exception, step: int) -> str:
    reason = (str(error).splitlines() or [""])[0][:200]
    if isinstance(error, GhostedError):
        return reason
    what = f"{type(error).__name__}{': ' * bool(reason)}{reason}"
    return f"This model failed after {step} new token{'s' * (step != 1)} ({what})."


class _Reference:
    """Compares the columns with the original: where each parts from it, and the KL at every new token.

    While a column's prefix is still the original's, the original's own scores serve. After that the original reads
    the column's prefix with a cache of its own, starting from a snapshot of the last chunk's border.
    """

    def __init__(self, original: _Writer, variants: list[_Writer]) -> None:
        self._original = original
        self._readers = [_Reader(variant) for variant in variants]
        self._border: DynamicCache | None = None
        self._border_tokens = 0

    def compare(self, step: int, last: bool, notices: list[str]) -> None:
        """Take up the tokens just written at ``step``; read what is pending at a chunk's border or at the end."""
        own = self._original.column
        if self._original.log_p is not None and len(own.kl) == step:
            own.kl.append(0.0)
            own.agrees.append(True)
        for reader in self._readers:
            reader.take(step, self._original)
        if step % KL_CHUNK and not last:
            return
        for reader in self._readers:
            for notice in reader.catch_up(self._original.model, self._border, self._border_tokens):
                notices.append(notice)
        if not own.finished:
            self._border, self._border_tokens = _snapshot(self._original.cache), step


class _Reader:
    """The original reading one variant's own prefix."""

    def __init__(self, variant: _Writer) -> None:
        self._variant = variant
        self._pending: list[tuple[torch.Tensor, int]] = []
        self._cache: DynamicCache | None = None
        self._fed = 0
        self._failed = False

    def take(self, step: int, original: _Writer) -> None:
        """Compare the token written at ``step``, or keep its log-probabilities until the original has caught up."""
        column = self._variant.column
        if len(column.tokens) <= step or self._failed:
            return
        if column.diverges_at is None and original.log_p is not None and not self._pending:
            column.kl.append(_divergence(original.log_p, self._variant.log_p))
            column.agrees.append(original.best == self._variant.best)
            column.top_original.append(original.column.top[step])
        else:
            self._pending.append((self._variant.log_p, self._variant.best))
        written = original.column.tokens
        if column.diverges_at is None and len(written) > step and written[step] != column.tokens[step]:
            column.diverges_at = step

    def catch_up(self, model: PreTrainedModel, border: DynamicCache | None, border_tokens: int) -> Iterator[str]:
        """Read the pending tokens in one pass and turn them into KL; yields a notice where that fails."""
        if not self._pending:
            return
        column, pending = self._variant.column, self._pending
        self._pending = []
        try:
            if self._cache is None:
                if border is None:
                    raise ModelError("the original wrote nothing to compare with")
                self._cache, self._fed = _snapshot(border), border_tokens
            first = len(column.kl)
            until = first + len(pending) - 1
            log_p = _log_probabilities(model, column.tokens[self._fed : until], self._cache, keep=len(pending))
            self._fed = until
            for at, (p, (q, best), likeliest) in enumerate(zip(log_p, pending, _likeliest(log_p), strict=True), first):
                column.kl.append(_divergence(p, q))
                column.agrees.append(likeliest[0][0] == best)
                column.top_original.append(self._variant.spelled(at, *likeliest))
        except Exception as error:  # the column's text stands, only its comparison ends here
            self._failed = True
            yield f"{column.method} could not be compared with the original to its end ({str(error)[:120]})."
