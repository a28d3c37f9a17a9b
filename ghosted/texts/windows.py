"""How does a text become windows of tokens, and which slice of it serves what?

Token ids are cut into windows without padding, so nothing but text ever enters a statistic. Calibration, held-out
and evaluation slices of one text never overlap: each starts where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ghosted.errors import InputError, ModelError, TextError
from ghosted.progress import CancelFlag, Steps

if TYPE_CHECKING:
    from torch import Tensor

    from ghosted.experiment import Experiment
    from ghosted.texts import Text

HELD_OUT_LEAST = 8192
"""Held-out tokens at least; otherwise a quarter of the calibration tokens."""

_MARGIN = 64  # tokens at the end of a prefix that a longer prefix could cut differently


@dataclass(frozen=True, eq=False)
class Windows:
    """Consecutive windows of one text.

    Attributes:
        rows: one ``(t,)`` int64 tensor per window, BOS included where there is one.
        text: label of the text.
        digest: sha256 of the text's content.
        start: first token of the slice, counted in the text's own tokens.
        stop: one past the last token of the slice.
        window: positions of a whole window.
        bos: whether each window starts with a beginning-of-sequence token.
    """

    rows: tuple[Tensor, ...]
    text: str
    digest: str
    start: int
    stop: int
    window: int
    bos: bool

    @property
    def tokens(self) -> int:
        """Positions in all windows, BOS included."""
        return sum(len(row) for row in self.rows)

    @property
    def identity(self) -> tuple[str, int, int, int, bool]:
        """What decides every number computed from these windows, beside the model and its tokenizer."""
        return (self.digest, self.start, self.stop, self.window, self.bos)

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, n: int) -> Windows:
        """Return the first ``n`` windows."""
        rows = self.rows[:n]
        return replace(self, rows=rows, stop=self.start + sum(len(row) - self.bos for row in rows))

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yield ``(b, t)`` tensors of at most ``size`` windows in their order; a shorter window stands alone."""
        import torch

        batch: list[Tensor] = []
        for row in self.rows:
            if batch and (len(batch) == size or len(row) != len(batch[0])):
                yield torch.stack(batch)
                batch = []
            batch.append(row)
        if batch:
            yield torch.stack(batch)


@dataclass(frozen=True, eq=False)
class Slices:
    """What one experiment reads.

    Attributes:
        calibration: statistics and operators come from these.
        held_out: errors are measured on these.
        evaluation: perplexity is measured on these, by label of the text.
        same_source: whether an evaluation text is the calibration text (other tokens of it), by label.
    """

    calibration: Windows
    held_out: Windows
    evaluation: dict[str, Windows]
    same_source: dict[str, bool]


def pack(
    ids: Sequence[int], *, start: int, tokens: int, window: int, bos_id: int | None, text: str, digest: str
) -> Windows:
    """Cut ``tokens`` positions into ⌊tokens/window⌋ whole windows and one shorter one for the rest.

    Args:
        ids: the text's token ids, no special tokens among them.
        start: first id to take.
        tokens: positions in all; BOS counts as one position of its window.
        window: positions per window.
        bos_id: put first in each window, unless ``None``.
        text: label.
        digest: sha256 of the text's content.

    Returns:
        Fewer windows where the text ends. A rest too short to hold one prediction is dropped.
    """
    import torch

    extra = 0 if bos_id is None else 1
    least = 2 + extra  # a first token to predict from, and one to predict
    rows, at = [], start
    while tokens >= least:
        length = min(window, tokens, len(ids) - at + extra)
        if length < least:
            break
        row = ([] if bos_id is None else [bos_id]) + list(ids[at : at + length - extra])
        rows.append(torch.tensor(row, dtype=torch.int64))
        at += length - extra
        tokens -= length
        if length < window:
            break
    return Windows(tuple(rows), text, digest, start, at, window, bos_id is not None)


def positions(tokens: int, window: int, bos: bool) -> int:
    """Return how many of ``tokens`` positions :func:`pack` fills from a text that is long enough."""
    rest = tokens % window
    return tokens - (rest if rest < (3 if bos else 2) else 0)


def token_ids(text: Text, tokenizer: Any, needed: int) -> list[int]:
    """Tokenise no more of a text than ``needed`` tokens take; special tokens are never added nor recognised.

    Text that looks like a special token (``<|im_end|>``) is plain text.

    Returns:
        At least ``needed`` ids, or all that the text has.
    """
    return encoded(text, tokenizer, needed)["input_ids"]


def encoded(text: Text, tokenizer: Any, needed: int, **more: bool) -> dict[str, Any]:
    """Return what the tokenizer gives for a text, as in :func:`token_ids`: ``input_ids``, and what ``more`` names."""
    if text.ids is not None:
        return {"input_ids": list(text.ids)}
    from ghosted.models.loaded import tokenised

    content, characters = text.content or "", 6 * (needed + _MARGIN)
    while True:
        whole = characters >= len(content)
        prefix = content if whole else content[:characters]
        given = tokenised(tokenizer, prefix, split_special_tokens=True, **more)
        if whole:
            return dict(given)
        if len(given["input_ids"]) >= needed + _MARGIN:
            return {name: values[:-_MARGIN] for name, values in given.items()}
        characters *= 2


def slices(
    experiment: Experiment, loaded: Any, cancel: CancelFlag | None = None, *, only_calibration: bool = False,
    scored: bool = True,
) -> Steps[Slices]:
    """Read the texts of an experiment and cut the slices it asks for; none of them overlap.

    Args:
        experiment: its texts, tokens and windows.
        loaded: the :class:`~ghosted.models.LoadedModel`, or only a tokenizer (then no ``generated`` text).
        cancel: stops the work.
        only_calibration: leave the held-out and evaluation slices empty; the text need not be longer then.
        scored: whether evaluation slices are cut; whole texts are scored by :mod:`ghosted.texts.whole` instead.

    Raises:
        TextError: a text is missing, unreadable or too short.
        InputError: a window is longer than the model's context.
    """
    model = loaded if hasattr(loaded, "facts") else None
    if model is not None:
        check_windows(experiment, model.facts.context)
    cutter = _Cutter(experiment, model, loaded.tokenizer if model else loaded, cancel)

    calibration = yield from cutter.take(experiment.text, experiment.tokens, experiment.tokens_per_window)
    if calibration.tokens < positions(experiment.tokens, experiment.tokens_per_window, calibration.bos):
        raise cutter.too_short(experiment.text, f"{experiment.tokens:,} calibration tokens are asked for")
    if not len(calibration):
        raise cutter.too_short(experiment.text, f"a window needs at least {3 if calibration.bos else 2}")

    if only_calibration:
        return Slices(calibration, calibration.first(0), {}, {})
    window = experiment.tokens_per_window
    wanted = max(1, max(HELD_OUT_LEAST, experiment.tokens // 4) // window) * window
    held_out_name = experiment.held_out or experiment.text
    held_out = yield from cutter.take(held_out_name, wanted, window)
    if held_out.tokens < wanted:
        what = f"{experiment.tokens:,} calibration tokens and " if cutter.same(held_out_name, experiment.text) else ""
        raise cutter.too_short(
            held_out_name, f"{what}{wanted:,} held-out tokens are asked for; take fewer tokens or name a held-out text"
        )

    evaluation, same = {}, {}
    split = "test" if experiment.evaluate else "train"
    for name in (experiment.evaluate or (experiment.text,)) if scored else ():
        windows = yield from cutter.take(name, experiment.windows * experiment.window, experiment.window, split)
        if not len(windows):
            raise cutter.too_short(name, "none are left to score after calibration and held-out tokens", split)
        label = windows.text if windows.text not in evaluation else name
        evaluation[label] = replace(windows, text=label)
        same[label] = windows.digest == calibration.digest or name == experiment.text
    return Slices(calibration, held_out, evaluation, same)


def check_windows(experiment: Experiment, context: int | None) -> None:
    """Raise :class:`InputError` where a window is longer than the model's context (``None``: without limit)."""
    longest = max(experiment.window, experiment.tokens_per_window)
    if context is not None and longest > context:
        raise InputError(f"A window of {longest:,} tokens is longer than the model's context of {context:,}.")


class _Cutter:
    """Hands out the slices of texts one after the other, each from the first token that is not yet used."""

    def __init__(self, experiment: Experiment, model: Any, tokenizer: Any, cancel: CancelFlag | None) -> None:
        from ghosted.models import bos_id

        self._experiment, self._model, self._tokenizer, self._cancel = experiment, model, tokenizer, cancel
        self._bos = bos_id(tokenizer)
        self._texts: dict[tuple[str, str], tuple[Text, list[int]]] = {}
        self._used: dict[str, int] = {}
        self._needed = self._count()

    def _count(self) -> dict[str, int]:
        """Return how many tokens of each named text are needed in all, at most."""
        e = self._experiment
        held_out = max(HELD_OUT_LEAST, e.tokens // 4, e.tokens_per_window)
        needed: dict[str, int] = {e.text: e.tokens}
        for name, tokens in [(e.held_out or e.text, held_out)] + [
            (name, e.windows * e.window) for name in (e.evaluate or (e.text,))
        ]:
            needed[name] = needed.get(name, 0) + tokens
        # Two names may be one text, and then share its tokens.
        return dict.fromkeys(needed, sum(needed.values()))

    def take(self, name: str, tokens: int, window: int, split: str = "train") -> Steps[Windows]:
        """Cut the next ``tokens`` positions of a text into windows."""
        text, ids = yield from self._read(name, split)
        start = self._used.get(text.digest, 0)
        windows = pack(
            ids, start=start, tokens=tokens, window=window, bos_id=self._bos, text=text.name, digest=text.digest
        )
        self._used[text.digest] = windows.stop
        return windows

    def same(self, name: str, other: str) -> bool:
        """Tell whether two names, both read before, are one text."""
        return self._texts[name, "train"][0].digest == self._texts[other, "train"][0].digest

    def too_short(self, name: str, why: str, split: str = "train") -> TextError:
        """Return the error of a text that has not enough tokens."""
        text, ids = self._texts[name, split]
        count = "1 token" if len(ids) == 1 else f"{len(ids):,} tokens"
        return TextError(f"The text {text.name} is too short: it has {count}, and {why}.")

    def _read(self, name: str, split: str) -> Steps[tuple[Text, list[int]]]:
        from ghosted import texts

        if (name, split) not in self._texts:
            text = yield from texts.read(
                name, model=self._model, seed=self._experiment.seed, tokens_needed=self._needed[name], split=split,
                cancel=self._cancel,
            )
            ids = token_ids(text, self._tokenizer, self._needed[name])
            if self._model is not None and max(ids, default=0) >= self._model.facts.vocabulary:
                raise ModelError("This model's tokenizer is not its own: it gives ids that the model does not know.")
            self._texts[name, split] = (text, ids)
        return self._texts[name, split]
