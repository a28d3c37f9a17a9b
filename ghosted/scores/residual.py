"""How much error is left at the boundary? ‖x̂ − X_post‖ / ‖Δ‖; plain pruning is exactly 1.

On calibration tokens it is read off the moments; on held-out tokens every token's own ratio is kept as well, for one
sink token can own the Frobenius norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from ghosted.calibration import Calibration
from ghosted.calibration.statistics import GapStatistics
from ghosted.operators import Fitted
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.pruned import OF_THE_BRANCH
from ghosted.removed import gap_name
from ghosted.results import Residual
from ghosted.solve import residual_norm

if TYPE_CHECKING:
    from torch import Tensor

    from ghosted.scores.profile import Profiler

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def calibration_error(fitted: Fitted, statistics: GapStatistics) -> float | None:
    """Return the residual boundary error on calibration tokens, from moments; ``None`` where Δ = 0."""
    if fitted.M is None:
        # Plain pruning is the yardstick; without moments of its own, Δ = 0 is known only if others were taken.
        return None if statistics.tokens and statistics.delta_squared <= 0 else 1.0
    moments = statistics.moments(fitted.feature)
    return residual_norm(fitted.M, moments.G, moments.B, statistics.delta_squared)


def boundary_residuals(
    calibration: Calibration, gap: range, fitted: Mapping[str, Fitted], statistics: GapStatistics,
    cancel: CancelFlag | None = None, profiler: Profiler | None = None,
) -> Steps[dict[str, Residual]]:
    """Measure the residual of several repairs of one gap, on calibration and on held-out tokens.

    Args:
        calibration: gives the held-out states, from its store or by running the model again.
        gap: the removed blocks.
        fitted: repairs by method name.
        statistics: the gap's statistics on calibration tokens.
        cancel: checked between batches.
        profiler: is handed every squared error, to say where it lies.

    Returns:
        A :class:`~ghosted.results.Residual` by method name.
    """
    branch = any(f.feature in OF_THE_BRANCH for f in fitted.values())
    M = {name: f.M.float() for name, f in fitted.items() if f.M is not None}
    ratios = {name: Ratios() for name in fitted}
    stage = Stage(f"held-out error of {gap_name(gap)}", len(calibration.splits["held_out"]), cancel)
    for boundary in calibration.boundaries("held_out", gap, branch):
        pre, post = boundary.pre.float().flatten(0, 1), boundary.post.float().flatten(0, 1)
        delta = post - pre
        plain = delta.double().square()
        yardstick = plain.sum(-1)
        if profiler is not None:
            profiler.start(boundary.post, plain)
        for name, repair in fitted.items():
            squared, error = plain, yardstick
            if repair.M is not None:
                source = boundary.features(repair.feature, statistics.eps).flatten(0, 1)
                squared = (source @ M[name] - delta).double().square()
                error = squared.sum(-1)
            ratios[name].add(error, yardstick)
            if profiler is not None:
                profiler.add(name, squared, error)
        yield stage.step(len(boundary.pre))
    return {name: ratios[name].residual(calibration_error(f, statistics)) for name, f in fitted.items()}


class Ratios:
    """Squared errors against a yardstick, summed and token by token."""

    def __init__(self) -> None:
        self._sums: Tensor | float = 0.0  # of errors and of yardsticks; they stay on their device until asked for
        self._tokens: list[Tensor] = []

    def add(self, error: Tensor, yardstick: Tensor) -> None:
        """Add squared errors and yardsticks ``(tokens,)``; tokens whose yardstick is 0 have no ratio."""
        self._sums = torch.stack([error.sum(), yardstick.sum()]) + self._sums
        ratio = (error / yardstick).sqrt().float()
        self._tokens.append(torch.where(yardstick > 0, ratio, -1.0))  # to be left out, once somebody asks

    @property
    def norm(self) -> float | None:
        """Ratio of the Frobenius norms, ``None`` where there is nothing to repair."""
        left, whole = self._sums.tolist() if self._tokens else (0.0, 0.0)
        return math.sqrt(left / whole) if whole > 0 else None

    def residual(self, calibration: float | None) -> Residual:
        """Return these as the held-out half of a residual."""
        if self.norm is None:
            return Residual(calibration, None, None)
        ratios = torch.cat(self._tokens)
        points = tuple(_quantiles(ratios[~(ratios < 0)].cpu()).tolist())
        return Residual(calibration, self.norm, points[QUANTILES.index(0.5)], points)


def _quantiles(values: Tensor) -> Tensor:
    ordered = values.sort().values  # torch.quantile refuses more than 16 million values
    places = torch.tensor(QUANTILES, dtype=torch.float64) * (len(ordered) - 1)
    low, high = ordered[places.floor().long()].double(), ordered[places.ceil().long()].double()
    return low + (high - low) * (places - places.floor())
