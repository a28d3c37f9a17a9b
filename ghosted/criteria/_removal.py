"""What does a model lose without one block more? The loss without each candidate, window by window.

One pass of the model as it stands gives its states; without block b it differs from the next block on only, so each
candidate resumes from the state that enters the block before b. Cost: one pass, and a part of one per candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ghosted.calibration import not_finite
from ghosted.progress import Stage, Steps
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.results import Cost
from ghosted.scores.perplexity import Loss, scoring_batch
from ghosted.states import Resumed, hidden_forward, recording

if TYPE_CHECKING:
    from torch import Tensor

    from ghosted.models import LoadedModel
    from ghosted.texts.windows import Windows


def removal_losses(
    loaded: LoadedModel, removed: RemovedBlocks, candidates: Sequence[int], windows: Windows, stage: Stage
) -> Steps[np.ndarray]:
    """Score the model without ``removed`` and one block more, for each candidate.

    Args:
        loaded: the original model; it is only read.
        removed: blocks that are gone already.
        candidates: surviving blocks, each removed alone.
        windows: the text.
        stage: counts windows, ``1 + len(candidates)`` times each.

    Returns:
        ``(windows, candidates)`` mean loss in nats over each window's scored tokens.

    Raises:
        ModelError: a loss is not a finite number in this dtype.
        Cancelled: the stage's flag was set.
    """
    current = pruned_view(loaded.model, removed)
    variants = [_Without(loaded, removed, block) for block in candidates]
    found = []
    for ids in windows.batches(scoring_batch(loaded, windows.window)):
        ids = ids.to(loaded.device)
        with recording(current) as recorder:
            hidden_forward(current, ids)
            states = recorder.states
        yield stage.step(len(ids))
        losses = np.empty((len(ids), len(candidates)))
        for place, variant in enumerate(variants):
            losses[:, place] = variant.losses(ids, states)
            yield stage.step(len(ids))
        found.append(losses)
    losses = np.concatenate(found)
    if not np.isfinite(losses).all():
        block = candidates[int(np.argmin(np.isfinite(losses).all(0)))]
        raise not_finite(f"logits without block {block}", loaded.dtype)
    return losses


def mean_losses(losses: np.ndarray, windows: Windows) -> np.ndarray:
    """Return the mean over all scored tokens, ``(candidates,)``; a window's first position is never scored."""
    return np.average(losses, axis=0, weights=[len(row) - 1 for row in windows.rows])


def removal_cost(loaded: LoadedModel, passes: int, windows: Windows) -> Cost:
    """Return the cost of ``passes`` passes over ``windows``: one batch's states and logits exist at once."""
    config = loaded.model.config.get_text_config()
    size = next(loaded.model.parameters()).element_size()
    tokens = min(scoring_batch(loaded, windows.window), len(windows)) * windows.window
    held = tokens * ((loaded.blocks + 1) * loaded.width + 2 * config.vocab_size) * size
    return Cost(passes * windows.tokens, held)


class _Without:
    """The model without some blocks and ``block``, from the survivor before ``block`` on."""

    def __init__(self, loaded: LoadedModel, removed: RemovedBlocks, block: int) -> None:
        kept = removed.survivors(loaded.blocks)
        self._start = max(kept.index(block) - 1, 0)
        gone = RemovedBlocks.of([*removed.blocks, *kept[: self._start], block])
        self._resumed = Resumed(pruned_view(loaded.model, gone))

    def losses(self, ids: Tensor, states: Sequence[Tensor]) -> list[float]:
        """Return the mean loss of each window of a batch ``(b, t)`` whose states without ``removed`` are given."""
        with torch.inference_mode(), self._resumed.fed(states[self._start]) as view:
            logits = view(input_ids=ids, use_cache=False).logits
            found = []
            for row in range(len(ids)):
                loss = Loss()
                loss.add(logits[row : row + 1], ids[row : row + 1])
                found.append(loss.total / loss.tokens)
        return found
