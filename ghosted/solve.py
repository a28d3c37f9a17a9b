"""How is a linear least-squares repair solved from additive moments, in float64?

With features φ (rows = tokens), G = φᵀφ and B = φᵀΔ, the repair M* = argmin ‖φM − Δ‖²_F + λ‖M‖²_F of minimum norm
is read off the eigendecomposition of G. Nothing here sees a token: cost is O(C³), memory O(C²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 2.0**-52


@dataclass(frozen=True, eq=False)
class Solution:
    """A least-squares repair.

    Attributes:
        M: ``(C, C)`` float64.
        rank: eigenvalues of G that were kept.
        dof: effective degrees of freedom Σ e/(e + λ) over the kept eigenvalues.
    """

    M: Tensor
    rank: int
    dof: float


def ridge_solve(G: Tensor, B: Tensor, ridge: float) -> Solution:
    """Solve (G + λI) M = B on the range of G, with λ = ``ridge`` · mean(diag G).

    Args:
        G: ``(C, C)`` symmetric positive semi-definite Gram matrix, float64.
        B: ``(C, K)`` cross moments φᵀΔ, float64.
        ridge: λ relative to the mean of G's diagonal; 0 gives the minimum-norm least-squares solution.

    Returns:
        The solution; eigenvalues of G below C·2⁻⁵²·e_max are cut.

    References:
        *Ghosted Layers* (2026), the unconstrained activation alignment M* = X_pre⁺ Δ; ridge as in Hoerl and
        Kennard (1970).
    """
    e, V = torch.linalg.eigh(G)
    floor = len(G) * EPSILON * e[-1].clamp(min=0)
    kept = e > floor
    lam = ridge * G.diagonal().mean()
    gain = torch.where(kept, 1.0 / torch.where(kept, e + lam, torch.ones_like(e)), torch.zeros_like(e))
    M = V @ (gain[:, None] * (V.mT @ B))
    return Solution(M, rank=int(kept.sum()), dof=float((gain * e).sum()))


def residual_norm(M: Tensor, G: Tensor, B: Tensor, delta_squared: float) -> float | None:
    """Return ‖φM − Δ‖_F / ‖Δ‖_F from moments, ``None`` where Δ = 0.

    Args:
        M: ``(C, C)`` repair.
        G: ``(C, C)`` φᵀφ, unweighted.
        B: ``(C, C)`` φᵀΔ, unweighted.
        delta_squared: ‖Δ‖²_F.
    """
    if delta_squared <= 0:
        return None
    M = M.to(G)
    left = float(((G @ M) * M).sum() - 2 * (M * B).sum()) + delta_squared
    return math.sqrt(max(left, 0.0) / delta_squared)
