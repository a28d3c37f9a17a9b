"""Ghosted with token weights: relative instead of absolute error, so that no sink token owns the fit.

Formula: as ``ghosted`` with each token weighted by 1/‖x_post‖²; the ridge is relative to the weighted G.
Cost: as ``ghosted``.

Source: ours; not in the paper.
"""

from ghosted.operators import Fitted, Settings
from ghosted.operators._least_squares import least_squares

NAME, LABEL, ORDER = "ghosted-weighted", "ghosted, weighted", 50
NEEDS = frozenset({"state", "state_weighted"})
DISTILLS = True


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``state_weighted`` moments."""
    return least_squares(statistics, "state_weighted", settings, statistics.width**2)
