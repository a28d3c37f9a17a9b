"""Ghosted Layers: the unconstrained least-squares operator.

Formula: M* = argmin ‖X_pre M − Δ‖²_F + λ‖M‖²_F of minimum norm, W* = I + M*; λ = ridge · mean(diag G).
Cost: one eigendecomposition of order C.

Source: Yun, Jo, Karimireddy and Lee, *Ghosted Layers* (2026).
"""

from ghosted.operators import Fitted, Settings
from ghosted.operators._least_squares import least_squares

NAME, LABEL, ORDER = "ghosted", "ghosted", 40
NEEDS = frozenset({"state"})
DISTILLS = True


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``state`` moments G = X_preᵀX_pre and B = X_preᵀΔ."""
    return least_squares(statistics, "state", settings, statistics.width**2)
