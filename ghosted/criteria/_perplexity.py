"""The two one-shot perplexity criteria: the loss without each block alone, with and without the ``+`` rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghosted.criteria import Evidence, lowest_blocks
from ghosted.criteria._removal import mean_losses, removal_cost, removal_losses
from ghosted.progress import Stage, Steps
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, Cost
from ghosted.texts.windows import Windows

SAMPLES = 10
"""Calibration windows that are scored, as many as the paper's samples."""


def perplexity_cost(evidence: Evidence, allowed: Sequence[int]) -> Cost:
    """Return one pass of the model and a part of one for each block that may go."""
    return removal_cost(evidence.calibration.loaded, 1 + len(allowed), _samples(evidence))


def lowest_losses(name: str, evidence: Evidence, count: int, allowed: Sequence[int]) -> Steps[Choice]:
    """Choose the ``count`` allowed blocks whose removal, each alone, leaves the lowest loss.

    Raises:
        InputError: fewer than ``count`` blocks may go.
        ModelError: a loss is not a finite number.
        Cancelled: ``evidence.cancel`` was set.
    """
    loaded, windows = evidence.calibration.loaded, _samples(evidence)
    stage = Stage("scoring without each block", len(windows) * (1 + len(allowed)), evidence.cancel)
    losses = yield from removal_losses(loaded, RemovedBlocks(), allowed, windows, stage)
    by_text = np.full((len(windows), loaded.blocks), np.inf)
    by_text[:, list(allowed)] = losses
    return lowest_blocks(name, count, mean_losses(by_text, windows), by_text, allowed)


def _samples(evidence: Evidence) -> Windows:
    return evidence.calibration.splits["calibration"].first(SAMPLES)
