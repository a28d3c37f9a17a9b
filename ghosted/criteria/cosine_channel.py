"""Cosine per channel: remove the run of ``count`` blocks whose entering and leaving states vary alike over the tokens.

Formula: score of start i = mean over channels c of cos(x_c, y_c), where x_c and y_c are channel c of states i and i + n
read along the tokens of one window; then the mean over windows, weighted by their tokens; the largest wins. Every
channel counts the same, and within a channel the tokens with the largest states (sinks) decide, where the cosine per
token lets the largest channels decide and counts every token the same.

Source: the published code of LinearPatch (arXiv 2505.24680), whose cosine runs along the token axis. It looks at
starts 1 … L − n − 1 only; here the first and the last run are candidates, too.

Cost: elementwise products of the kept states; one more pass over the calibration windows where not all were kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from ghosted.criteria import Evidence, best_run, check_count
from ghosted.progress import Stage, Steps
from ghosted.results import Choice, Cost

if TYPE_CHECKING:
    from torch import Tensor

NAME, LABEL, ORDER = "cosine-channel", "cosine per channel", 12


def cost(evidence: Evidence, count: int) -> Cost:
    """Return one more pass over the calibration windows, unless all their states are kept."""
    calibration = evidence.calibration
    return Cost(0 if calibration.complete("calibration") else calibration.splits["calibration"].tokens, 0)


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` contiguous blocks, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
        Cancelled: ``evidence.cancel`` was set.
    """
    calibration = evidence.calibration
    check_count(count, evidence.similarity.blocks)
    windows = calibration.splits["calibration"]
    stage = Stage("comparing channels", len(windows), evidence.cancel)
    by_text = []
    for ids, states in calibration.states("calibration"):
        for row in range(len(ids)):
            by_text.append(_channel_cosines([s[row] for s in states], count))
        yield stage.step(len(ids))
    by_text = np.array(by_text)
    scores = np.average(by_text, axis=0, weights=[len(row) for row in windows.rows])
    return best_run(NAME, count, scores, by_text, higher_is_better=True)


def _channel_cosines(states: list[Tensor], count: int) -> list[float]:
    """Return, for each start, the mean over channels of the cosine along the tokens; states are ``(t, C)`` each."""
    unit = [F.normalize(s.float(), dim=0) for s in states]
    return [
        float((x * y).sum(0, dtype=torch.float64).mean()) for x, y in zip(unit, unit[count:], strict=False)
    ]
