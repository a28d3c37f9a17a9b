"""Text that the model writes itself: calibration without any data.

As in LLM-QAT (Liu et al. 2023, arXiv 2305.17888): each row starts with a random token, and the rest is sampled from
the model at temperature 1. Rows come in rounds with seeds of their own, so that a longer text begins with the
shorter one; each round is kept in the cache.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from ghosted import cache
from ghosted.errors import TextError
from ghosted.progress import CancelFlag, Stage, Steps

if TYPE_CHECKING:
    from ghosted.models import LoadedModel
    from ghosted.texts import Text

NAME = "generated"
LABEL = "Written by the model itself"
NOTE = "Sampled from the unpruned model, seeded and kept; needs no data and no network."
NEEDS_NETWORK = False
ENDLESS = True

ROWS, LENGTH = 64, 256
"""Rows per round, and tokens per row (fewer where the model's context is shorter)."""


def read(
    *, model: LoadedModel | None, seed: int = 0, tokens_needed: int, cancel: CancelFlag | None = None, **_: object
) -> Steps[Text]:
    """Return at least ``tokens_needed`` tokens of the model's own text.

    Raises:
        TextError: there is no model to write it.
    """
    from ghosted.texts import Text

    if model is None:
        raise TextError("The text generated is written by the model, so it needs a loaded model.")
    length = min(LENGTH, model.facts.context or LENGTH)
    rounds = -(-tokens_needed // (ROWS * length))
    ids: list[int] = []
    for index in range(rounds):
        about = {"what": "generated text", "version": 1, "model": model.fingerprint, "dtype": model.dtype,
                 "device": model.device.partition(":")[0], "seed": seed, "round": index, "shape": [ROWS, length]}
        key = cache.key_of(about)
        kept = cache.read("texts", key, _read)
        if kept is None:
            stage = Stage(f"writing the text, round {index + 1} of {rounds}", length, cancel)
            rows = yield from sample(model, seed=seed, index=index, length=length, stage=stage)
            kept = _read(cache.put("texts", key, lambda folder, rows=rows: _write(folder, rows)))
        ids += kept
    digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
    content = None if model.tokenizer is None else model.tokenizer.decode(ids)
    return Text(NAME, digest, content, tuple(ids), NAME)


def _read(folder: Any) -> list[int]:
    return json.loads((folder / "ids.json").read_text())


def _write(folder: Any, rows: list[list[int]]) -> None:
    (folder / "ids.json").write_text(json.dumps([token for row in rows for token in row]))


def sample(
    model: LoadedModel, *, seed: int, index: int, length: int, stage: Stage, rows: int = ROWS
) -> Steps[list[list[int]]]:
    """Sample one round of ``rows`` rows of ``length`` tokens, no special token among them."""
    import torch
    from transformers import DynamicCache

    net = model.model
    generator = torch.Generator().manual_seed((seed * 1_000_003 + index) % 2**63)
    allowed = torch.zeros(model.facts.vocabulary)
    tokenizer = model.tokenizer
    allowed[len(tokenizer) if tokenizer is not None else model.facts.vocabulary :] = -torch.inf
    allowed[_special_ids(tokenizer, len(allowed))] = -torch.inf

    def draw(logits: torch.Tensor) -> torch.Tensor:
        return torch.multinomial(logits.softmax(-1), 1, generator=generator)

    tokens = [draw(allowed.expand(rows, -1))]
    bos = model.bos_id
    with torch.inference_mode():
        first = tokens[0] if bos is None else torch.cat([torch.full((rows, 1), bos), tokens[0]], 1)
        step, past = first.to(model.device), DynamicCache(config=net.config)
        yield stage.step()
        while len(tokens) < length:
            output = net(input_ids=step, cache=past, use_cache=True)
            tokens.append(draw(output.logits[:, -1].float().cpu() + allowed))
            step = tokens[-1].to(model.device)
            yield stage.step()
    return torch.cat(tokens, 1).tolist()


def _special_ids(tokenizer: Any, vocabulary: int) -> list[int]:
    """Return every id that stands for no text: named special tokens and those a chat template uses."""
    if tokenizer is None:
        return []
    added = {i for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items() if token.special}
    return sorted(i for i in added | set(tokenizer.all_special_ids) if i < vocabulary)
