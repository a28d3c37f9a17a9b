"""The unconstrained least-squares fit that several methods share; they differ in the moments they fit from."""

from __future__ import annotations

from ghosted.calibration.statistics import MOMENTS, GapStatistics, Moments
from ghosted.errors import InputError
from ghosted.operators import Fitted, Settings


def least_squares(statistics: GapStatistics, kind: str, settings: Settings, added_parameters: int) -> Fitted:
    """Fit M* = argmin ‖φM − Δ‖² + λ‖M‖² from the moments ``kind``.

    Args:
        statistics: of one gap.
        kind: a name of :data:`~ghosted.calibration.statistics.MOMENTS`.
        settings: gives the ridge; ``auto`` takes the λ of the least error on held-out moments of the same kind.
        added_parameters: numbers that the repair adds to the model.

    Raises:
        NotDefined: the feature has no meaning at this gap.
        InputError: ``ridge`` is ``auto`` without held-out statistics.
    """
    moments = statistics.moments(kind)
    spectrum = statistics.spectrum(kind)
    chosen = None
    if settings.ridge == "auto":
        held_out = held_out_moments(kind, settings)
        chosen = spectrum.best_ridge(moments.B, held_out.G, held_out.B, settings.cancel)
    solution = spectrum.solve(moments.B, settings.ridge if chosen is None else chosen)
    return Fitted(MOMENTS[kind][0], solution.M, added_parameters, solution.rank, solution.dof, chosen,
                  solution.condition)  # fmt: skip


def held_out_moments(kind: str, settings: Settings) -> Moments:
    """Return the held-out moments that a λ is chosen by.

    Raises:
        InputError: the settings have none.
    """
    if settings.held_out is None:
        raise InputError("The ridge auto needs held-out statistics; give it a held-out text, or a number instead.")
    return settings.held_out.moments(kind)
