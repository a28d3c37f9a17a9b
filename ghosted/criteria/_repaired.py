"""What does a repaired model still predict? Its loss on held-out text, window by window, resumed from kept states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ghosted.calibration import not_finite
from ghosted.criteria import best_of
from ghosted.criteria._removal import mean_losses
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice
from ghosted.scores.perplexity import Loss
from ghosted.states import Resumed

if TYPE_CHECKING:
    from torch import Tensor

    from ghosted.calibration import Calibration
    from ghosted.texts.windows import Windows


def kept_windows(calibration: Calibration) -> int | None:
    """Return how many calibration windows the store holds; ``None`` where it holds none and all are read anew."""
    return len(calibration.stores["calibration"]) or None


def scored_windows(calibration: Calibration, tokens: int) -> Windows:
    """Return the first held-out windows that make up about ``tokens`` tokens."""
    windows = calibration.splits["held_out"]
    return windows.first(max(1, tokens // windows.window))


def lowest_loss(
    name: str, removed: Sequence[RemovedBlocks], losses: np.ndarray, windows: Windows, dtype: str
) -> Choice:
    """Choose the set of blocks whose repaired model has the least loss; those without a finite one do not count.

    Args:
        name: the criterion's.
        removed: the candidates.
        losses: ``(windows, candidates)`` mean loss in nats.
        windows: what was scored.
        dtype: the model's, for the message.

    Raises:
        ModelError: no loss is finite.
    """
    finite = np.isfinite(losses).all(0)
    if not finite.any():
        raise not_finite("logits after every repair", dtype)
    left, losses = [one for one, good in zip(removed, finite, strict=True) if good], losses[:, finite]
    return best_of(name, left, mean_losses(losses, windows), losses, higher_is_better=False)


class RepairedModel:
    """The model without ``removed``, repaired, from the block before its first gap on."""

    def __init__(self, calibration: Calibration, removed: RemovedBlocks, repairs: Sequence[Repair]) -> None:
        self._start = removed.resumes_at
        gone = RemovedBlocks.of([*range(self._start), *removed.blocks])
        self._resumed = Resumed(pruned_view(calibration.loaded.model, gone, repairs))

    def losses(self, ids: Tensor, states: Sequence[Tensor]) -> list[float]:
        """Return each window's mean loss in nats; ``ids`` is ``(b, t)``, ``states`` the unpruned model's L + 1."""
        found = []
        for row in range(len(ids)):
            loss, one = Loss(), slice(row, row + 1)
            with torch.inference_mode(), self._resumed.fed(states[self._start][one]) as view:
                loss.add(view(input_ids=ids[one], use_cache=False).logits, ids[one])
            found.append(loss.total / loss.tokens)
        return found
