"""How much of the gap does a pure rotation close? The best orthogonal operator.

Formula: W = argmin ‖X_pre W − X_post‖²_F subject to WᵀW = I, that is W = U Vᵀ of the singular value decomposition
X_preᵀX_post = G + B = U Σ Vᵀ. Where singular values are 0 (fewer tokens than channels) the data leave a part of W
open; it is completed by the orthogonal map nearest to I. Cost: one singular value decomposition of order C.

Source: Schönemann, *A generalized solution of the orthogonal Procrustes problem* (1966).
"""

import torch
from torch import Tensor

from ghosted.operators import Fitted, Settings
from ghosted.solve import EPSILON

NAME, LABEL, ORDER = "procrustes", "orthogonal (Procrustes)", 22
NEEDS = frozenset({"state"})


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``state`` moments; no setting matters. Its free numbers are those of a rotation, C(C − 1)/2."""
    moments = statistics.moments("state")
    W = orthogonal(moments.G + moments.B)
    width = len(W)
    return Fitted("state", W - torch.eye(width).to(W), added_parameters=width * (width - 1) // 2)


def orthogonal(cross: Tensor) -> Tensor:
    """Return the orthogonal W of the largest tr(Wᵀ ``cross``), nearest to I where that leaves it open.

    Args:
        cross: ``(C, C)`` X_preᵀX_post, float64.
    """
    U, s, Vh = torch.linalg.svd(cross)
    seen = int((s > len(s) * EPSILON * s[0]).sum())
    left, right = U[:, seen:], Vh[seen:]
    inner, _, outer = torch.linalg.svd(left.mT @ right.mT)
    return U[:, :seen] @ Vh[:seen] + left @ (inner @ outer) @ right
