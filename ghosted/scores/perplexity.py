"""What does the repaired model lose? Perplexity of each variant, and the error of every state after the gap.

One pass scores everything: each batch of windows goes through the original, whose states are kept for as long as
the variants are compared with them. Windows do not overlap; the first position of a window is never scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.pruned import pruned_view, surviving_states
from ghosted.removed import RemovedBlocks
from ghosted.results import Downstream
from ghosted.states import recording

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from ghosted.models import LoadedModel
    from ghosted.texts.windows import Windows

LOGIT_BYTES = 2**27  # of one forward pass: logits are the largest tensor by far
CHUNK = 16  # tokens whose float32 logits exist at once: small enough for the allocator to use the same memory again


@dataclass
class Score:
    """One model's score on one text.

    Attributes:
        perplexity: exp of the mean loss in nats over the scored tokens.
        tokens_scored: how many tokens that was.
        downstream: surviving states after the first gap against the original's (variants only).
    """

    perplexity: float
    tokens_scored: int
    downstream: list[Downstream] = field(default_factory=list)


def score(
    loaded: LoadedModel, variants: Mapping[str, tuple[PreTrainedModel, int]], windows: Windows,
    cancel: CancelFlag | None = None,
) -> Steps[tuple[Score, dict[str, Score], bool]]:
    """Score the original and its variants on the same windows.

    Args:
        loaded: the original model.
        variants: by method name, a pruned view and the original index of the first state to compare.
        windows: the text; one beginning-of-sequence policy for all.
        cancel: checked between models.

    Returns:
        The original's score, the variants' scores, and the self-check: whether a view with nothing removed gave the
        original's logits to the last bit.
    """
    reference = pruned_view(loaded.model, RemovedBlocks())
    batch = _windows_per_batch(loaded, windows.window)
    stage = Stage("scoring", len(windows) * (1 + len(variants)), cancel)
    dense_loss = _Loss()
    losses = {name: _Loss() for name in variants}
    drift = {name: _Drift() for name in variants}
    same = True
    with torch.inference_mode():
        for number, ids in enumerate(windows.batches(batch)):
            ids = ids.to(loaded.device)
            with recording(reference) as recorder:
                logits = reference(input_ids=ids, use_cache=False).logits
                states = list(recorder.states)
            if number == 0:
                same = torch.equal(logits, loaded.model(input_ids=ids, use_cache=False).logits)
            dense_loss.add(logits, ids)
            del logits
            yield stage.step(len(ids))
            for name, (view, first) in variants.items():
                with recording(view) as recorder:
                    losses[name].add(view(input_ids=ids, use_cache=False).logits, ids)
                    drift[name].add(recorder.states, states, surviving_states(view), first)
                yield stage.step(len(ids))
    dense = Score(dense_loss.perplexity, dense_loss.tokens)
    return dense, {n: Score(losses[n].perplexity, losses[n].tokens, drift[n].result()) for n in variants}, same


def _windows_per_batch(loaded: LoadedModel, window: int) -> int:
    vocabulary = loaded.model.config.get_text_config().vocab_size
    size = window * vocabulary * next(loaded.model.parameters()).element_size()
    return max(1, min(8, LOGIT_BYTES // size))


class _Loss:
    """Sum of the next-token losses in nats."""

    def __init__(self) -> None:
        self.total, self.tokens = 0.0, 0

    def add(self, logits: Tensor, ids: Tensor) -> None:
        for row, target in zip(logits, ids, strict=True):
            for part, next_ids in zip(row[:-1].split(CHUNK), target[1:].split(CHUNK), strict=True):
                self.total += float(F.cross_entropy(part.float(), next_ids, reduction="sum"))
            self.tokens += len(target) - 1

    @property
    def perplexity(self) -> float:
        mean = self.total / max(self.tokens, 1)
        return math.exp(mean) if mean < 700 else math.inf


class _Drift:
    """Relative error and mean per-token cosine of each surviving state against the original's."""

    def __init__(self) -> None:
        self._sums: dict[int, list[float]] = {}

    def add(self, states: list[Tensor], reference: list[Tensor], names: list[int], first: int) -> None:
        for state, index in zip(states, names, strict=True):
            if index < first:
                continue
            x, y = state.float(), reference[index].float()
            sums = self._sums.setdefault(index, [0.0, 0.0, 0.0, 0])
            sums[0] += float((x - y).square().sum(dtype=torch.float64))
            sums[1] += float(y.square().sum(dtype=torch.float64))
            sums[2] += float(F.cosine_similarity(x, y, dim=-1).sum(dtype=torch.float64))
            sums[3] += x.shape[0] * x.shape[1]

    def result(self) -> list[Downstream]:
        return [
            Downstream(index, math.sqrt(error / norm) if norm > 0 else 0.0, cosine / tokens)
            for index, (error, norm, cosine, tokens) in sorted(self._sums.items())
        ]
