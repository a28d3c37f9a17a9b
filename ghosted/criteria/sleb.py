"""SLEB: remove the block that harms the loss least, score again without it, and so on until ``count`` are gone.

Formula: at each step the score of block i = mean next-token loss (nats) of the model without the blocks that are gone
already and without i, on the first 4,096 calibration tokens; the smallest goes. The choice's score is thus the loss of
the model without all chosen blocks. The candidates are the *sets* that the last step compared: what went before and one
block more; the runner-up is the choice with its last removal swapped. Earlier steps may have been near ties, too.

Source: SLEB (arXiv 2402.09025), with its metric of the pruned model's own loss.

Cost: step k (from 0) makes one pass and L − k partial ones: n + Σ (L − k) passes over the scored tokens in all.
"""

from __future__ import annotations

from ghosted.criteria import Evidence, best_of, check_count
from ghosted.criteria._removal import mean_losses, removal_cost, removal_losses
from ghosted.progress import Stage, Steps
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, Cost
from ghosted.texts.windows import Windows

NAME, LABEL, ORDER = "sleb", "SLEB (greedy)", 50
SCORING_TOKENS = 4096


def cost(evidence: Evidence, count: int) -> Cost:
    """Return the exact number of tokens that go through the model or a part of it."""
    return removal_cost(evidence.calibration.loaded, _passes(evidence.similarity.blocks, count), _scored(evidence))


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` blocks one after the other, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
        ModelError: a loss is not a finite number.
        Cancelled: ``evidence.cancel`` was set.
    """
    loaded, windows = evidence.calibration.loaded, _scored(evidence)
    check_count(count, loaded.blocks)
    stage = Stage("greedy removal", len(windows) * _passes(loaded.blocks, count), evidence.cancel)
    removed = RemovedBlocks()
    while True:
        candidates = removed.survivors(loaded.blocks)
        by_text = yield from removal_losses(loaded, removed, candidates, windows, stage)
        scores = mean_losses(by_text, windows)
        sets = [RemovedBlocks.of([*removed.blocks, block]) for block in candidates]
        removed = sets[int(scores.argmin())]
        if removed.count == count:
            return best_of(NAME, sets, scores, by_text, higher_is_better=False)


def _passes(blocks: int, count: int) -> int:
    return sum(1 + blocks - gone for gone in range(count))


def _scored(evidence: Evidence) -> Windows:
    windows = evidence.calibration.splits["calibration"]
    return windows.first(max(1, SCORING_TOKENS // windows.window))
