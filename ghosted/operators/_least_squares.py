"""The unconstrained least-squares fit that several methods share; they differ in the moments they fit from."""

from __future__ import annotations

from ghosted.calibration.statistics import MOMENTS, GapStatistics
from ghosted.operators import Fitted, Settings
from ghosted.solve import ridge_solve


def least_squares(statistics: GapStatistics, kind: str, settings: Settings, added_parameters: int) -> Fitted:
    """Fit M* = argmin ‖φM − Δ‖² + λ‖M‖² from the moments ``kind``.

    Args:
        statistics: of one gap.
        kind: a name of :data:`~ghosted.calibration.statistics.MOMENTS`.
        settings: gives the ridge.
        added_parameters: numbers that the repair adds to the model.

    Raises:
        NotDefined: the feature has no meaning at this gap.
    """
    moments = statistics.moments(kind)
    solution = ridge_solve(moments.G, moments.B, settings.ridge)
    return Fitted(MOMENTS[kind][0], solution.M, added_parameters, solution.rank, solution.dof,
                  condition=solution.condition)
