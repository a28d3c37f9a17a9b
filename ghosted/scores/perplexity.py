"""What does the repaired model lose? Perplexity of each variant, and the error of every state after the gap.

One pass scores everything: each batch of windows goes through the original, whose states are kept for as long as
the variants are compared with them. A variant differs from the original only from the block before its first gap on,
so it resumes from the original's state there. A window's first position is never scored; windows may overlap, and then
say how many of their last positions are scored (:mod:`ghosted.texts.whole`), so that no token counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from ghosted import distributed
from ghosted.calibration import not_finite
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.pruned import Repair, pruned_view, surviving_states
from ghosted.removed import RemovedBlocks
from ghosted.results import Downstream
from ghosted.states import Resumed, recording

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from ghosted.models import LoadedModel
    from ghosted.texts.windows import Windows

LOGIT_BYTES = 2**27  # of one forward pass: logits are the largest tensor by far
CHUNK = 16  # tokens whose float32 logits exist at once: small enough for the allocator to use the same memory again
MOST_LOSSES = 2**20
"""Tokens whose own losses are kept, where they are asked for."""


@dataclass
class Score:
    """One model's score on one text.

    Attributes:
        perplexity: exp of the mean loss in nats over the scored tokens; ``None`` where that is no finite number.
        tokens_scored: how many tokens that was.
        downstream: surviving states after the first gap against the original's (variants only).
        loss: summed loss in nats over the scored tokens.
        losses: ``(T,)`` float16 losses in nats of the first scored tokens in their order, where they are kept.
    """

    perplexity: float | None
    tokens_scored: int
    downstream: list[Downstream] = field(default_factory=list)
    loss: float = 0.0
    losses: np.ndarray | None = None


def score(
    loaded: LoadedModel, removed: RemovedBlocks, repairs: Mapping[str, Sequence[Repair]], windows: Windows,
    cancel: CancelFlag | None = None, *, fresh: Sequence[int] | None = None, downstream: bool = True,
    keep: bool = False, batch: int | None = None,
) -> Steps[tuple[Score, dict[str, Score], bool]]:
    """Score the original and its variants on the same windows.

    Args:
        loaded: the original model.
        removed: the blocks that every variant lacks.
        repairs: by method name, at most one per gap.
        windows: the text; one beginning-of-sequence policy for all.
        cancel: checked between models.
        fresh: of each window, how many of its last positions are scored; all but the first by default.
        downstream: whether surviving states are compared, too.
        keep: whether the losses of single tokens are kept.
        batch: windows per forward pass; by default as many as their logits allow.

    Returns:
        The original's score, the variants' scores, and the self-check: whether a view with nothing removed gave the
        original's logits to the last bit.

    Raises:
        ModelError: the original's own logits are not finite numbers.
    """
    reference = pruned_view(loaded.model, RemovedBlocks())
    keep = keep and distributed.size() == 1  # each process sees its own windows only
    variants = {
        name: _Variant(loaded.model, removed, several, downstream, keep) for name, several in repairs.items()
    }
    batch = batch or scoring_batch(loaded, windows.window)
    stage = Stage("scoring", len(windows) * (1 + len(variants)), cancel)
    dense_loss, same = Loss(keep), True
    with torch.inference_mode():
        for number, (ids, scored) in distributed.mine(_with_fresh(windows.batches(batch), fresh)):
            ids = ids.to(loaded.device)
            with recording(reference) as recorder:
                logits = reference(input_ids=ids, use_cache=False).logits
                states = list(recorder.states)
            if number == 0:
                same = torch.equal(logits, loaded.model(input_ids=ids, use_cache=False).logits)
            dense_loss.add(logits, ids, scored)
            del logits
            yield stage.step(len(ids))
            for variant in variants.values():
                variant.add(ids, states, scored)
                yield stage.step(len(ids))
    for sums in (dense_loss, *variants.values()):
        sums.add_up()
    same = distributed.everywhere(same)
    dense = dense_loss.score()
    if dense.perplexity is None:
        raise not_finite("logits", loaded.dtype)
    return dense, {name: variant.score() for name, variant in variants.items()}, same


def _with_fresh(
    batches: Iterator[Tensor], fresh: Sequence[int] | None
) -> Iterator[tuple[Tensor, Sequence[int] | None]]:
    """Give each batch its part of ``fresh``: how many last positions of each row are scored."""
    seen = 0
    for ids in batches:
        yield ids, None if fresh is None else fresh[seen : seen + len(ids)]
        seen += len(ids)


class _Variant:
    """A pruned and repaired model from the block before its first gap on, and its sums."""

    def __init__(
        self, model: PreTrainedModel, removed: RemovedBlocks, repairs: Sequence[Repair], downstream: bool, keep: bool
    ) -> None:
        first = removed.gaps[0] if removed.gaps else range(0, 0)
        self._start = removed.resumes_at
        shared = RemovedBlocks.of([*range(self._start), *removed.blocks])
        self._resumed = Resumed(pruned_view(model, shared, repairs))
        self._loss = Loss(keep)
        self._drift = _Drift(surviving_states(self._resumed.view), first.stop) if downstream else None

    def add(self, ids: Tensor, states: list[Tensor], scored: Sequence[int] | None) -> None:
        """Score a batch ``(b, t)`` whose states in the original are ``states``."""
        with self._resumed.fed(states[self._start]) as view:
            if self._drift is None:
                self._loss.add(view(input_ids=ids, use_cache=False).logits, ids, scored)
                return
            with recording(view) as recorder:
                self._loss.add(view(input_ids=ids, use_cache=False).logits, ids, scored)
                self._drift.add(recorder.states, states)

    def add_up(self) -> None:
        """Add up over all processes."""
        self._loss.add_up()
        if self._drift is not None:
            self._drift.add_up()

    def score(self) -> Score:
        """Return what was found."""
        return self._loss.score([] if self._drift is None else self._drift.result())


def scoring_batch(loaded: LoadedModel, window: int) -> int:
    """Return how many windows are scored at once, so that their logits stay within :data:`LOGIT_BYTES`."""
    vocabulary = loaded.model.config.get_text_config().vocab_size
    size = window * vocabulary * next(loaded.model.parameters()).element_size()
    return max(1, min(8, LOGIT_BYTES // size))


def chunk_losses(logits: Tensor, ids: Tensor) -> Iterator[Tensor]:
    """Yield the summed next-token losses in nats of one window's ``(t, V)`` logits, a few tokens at a time."""
    for part in token_losses(logits, ids):
        yield part.sum()


def token_losses(logits: Tensor, ids: Tensor) -> Iterator[Tensor]:
    """Yield the next-token losses in nats of one window's ``(t, V)`` logits, a few tokens at a time."""
    for part, next_ids in zip(logits[:-1].split(CHUNK), ids[1:].split(CHUNK), strict=True):
        yield F.cross_entropy(part.float(), next_ids, reduction="none")


class Loss:
    """Sum of the next-token losses in nats; it stays on the model's device until it is asked for.

    Args:
        keep: whether the losses of the first :data:`MOST_LOSSES` single tokens are kept.
    """

    def __init__(self, keep: bool = False) -> None:
        self._sum: Tensor | float = 0.0
        self.tokens = 0
        self._kept: list[np.ndarray] | None = [] if keep else None

    def add(self, logits: Tensor, ids: Tensor, scored: Sequence[int] | None = None) -> None:
        """Add a batch: logits ``(b, t, V)`` and ids ``(b, t)``; ``scored`` last positions of each row."""
        for number, (row, target) in enumerate(zip(logits, ids, strict=True)):
            last = len(target) - 1 if scored is None else scored[number]
            losses = torch.cat(list(token_losses(row[-last - 1 :], target[-last - 1 :])))
            self._sum = losses.sum(dtype=torch.float64) + self._sum
            if self._kept is not None and self.tokens < MOST_LOSSES:
                self._kept.append(losses[: MOST_LOSSES - self.tokens].half().cpu().numpy())
            self.tokens += last

    def add_up(self) -> None:
        """Add up over all processes."""
        self._sum, tokens = distributed.added_up(self.total, self.tokens)
        self.tokens = int(tokens)

    @property
    def total(self) -> float:
        """The sum so far."""
        return float(self._sum)

    @property
    def perplexity(self) -> float | None:
        """The exponential of the mean loss, ``None`` where that is no finite number."""
        mean = self.total / max(self.tokens, 1)
        return math.exp(mean) if mean < 700 else None  # false for NaN, too

    def score(self, downstream: Sequence[Downstream] = ()) -> Score:
        """Return the sums as a score."""
        losses = np.concatenate(self._kept) if self._kept else None
        return Score(self.perplexity, self.tokens, list(downstream), self.total, losses)


class _Drift:
    """Relative error and mean per-token cosine of each surviving state against the original's."""

    def __init__(self, names: Sequence[int], first: int) -> None:
        self._names, self._first = names, first
        self._sums: dict[int, Tensor] = {}  # squared error, squared norm, cosine; float64
        self._tokens = 0

    def add(self, states: list[Tensor], reference: list[Tensor]) -> None:
        self._tokens += states[0].shape[0] * states[0].shape[1]
        for state, index in zip(states, self._names, strict=True):
            if index < self._first:
                continue
            x, y = state.float(), reference[index].float()
            several = (x - y).square(), y.square(), F.cosine_similarity(x, y, dim=-1)
            added = torch.stack([each.sum(dtype=torch.float64) for each in several])
            self._sums[index] = self._sums[index] + added if index in self._sums else added

    def add_up(self) -> None:
        (tokens,) = distributed.added_up(self._tokens)
        self._tokens = int(tokens)
        nothing = torch.zeros(3, dtype=torch.float64)
        for index in sorted({index for index in self._names if index >= self._first}):
            self._sums[index] = torch.tensor(
                distributed.added_up(*self._sums.get(index, nothing).tolist()), dtype=torch.float64
            )

    def result(self) -> list[Downstream]:
        return [
            Downstream(index, math.sqrt(error / norm) if norm > 0 else 0.0, cosine / max(self._tokens, 1))
            for index, (error, norm, cosine) in sorted((i, sums.tolist()) for i, sums in self._sums.items())
        ]
