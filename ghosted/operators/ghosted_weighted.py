"""Ghosted with token weights: relative instead of absolute error, so that no sink token owns the fit.

Formula: as ``ghosted`` with each token weighted by 1/‖x_post‖²; the ridge is relative to the weighted G.
Cost: as ``ghosted``.

Source: ours; not in the paper.
"""

from ghosted.operators import Fitted
from ghosted.solve import ridge_solve

NAME, LABEL, ORDER = "ghosted-weighted", "ghosted, weighted", 50
NEEDS = frozenset({"state", "state_weighted"})


def fit(statistics, ridge: float) -> Fitted:
    """Fit from the ``state_weighted`` moments."""
    moments = statistics.moments("state_weighted")
    solution = ridge_solve(moments.G, moments.B, ridge)
    return Fitted("state", solution.M, len(moments.G) ** 2, solution.rank, solution.dof)
