"""Ghosted Layers: the unconstrained least-squares operator.

Formula: M* = argmin ‖X_pre M − Δ‖²_F + λ‖M‖²_F of minimum norm, W* = I + M*; λ = ridge · mean(diag G).
Cost: one eigendecomposition of order C.

Source: Yun, Jo, Karimireddy and Lee, *Ghosted Layers* (2026).
"""

from ghosted.operators import Fitted
from ghosted.solve import ridge_solve

NAME, LABEL, ORDER = "ghosted", "ghosted", 40
NEEDS = frozenset({"state"})


def fit(statistics, ridge: float) -> Fitted:
    """Fit from the ``state`` moments G = X_preᵀX_pre and B = X_preᵀΔ."""
    moments = statistics.moments("state")
    solution = ridge_solve(moments.G, moments.B, ridge)
    return Fitted("state", solution.M, len(moments.G) ** 2, solution.rank, solution.dof)
