"""How much of the gap does one number close? The first rung of the ladder of operators.

Formula: W = w I with w = argmin ‖X_pre w − X_post‖²_F, so M = m I with m = tr(B)/tr(G), G = X_preᵀX_pre and
B = X_preᵀΔ. Cost: two traces.

Source: least squares with one unknown; ours as a yardstick, not in the paper.
"""

import torch

from ghosted.operators import Fitted, Settings

NAME, LABEL, ORDER = "scalar", "one scale", 2
NEEDS = frozenset({"state"})
STORED = "scale"


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``state`` moments; no setting matters."""
    moments = statistics.moments("state")
    energy = moments.G.trace()
    m = moments.B.trace() / energy if energy > 0 else torch.zeros_like(energy)
    return Fitted("state", m * torch.eye(statistics.width).to(moments.G), added_parameters=1, structure="scalar")
