"""How is a linear least-squares repair solved from additive moments, in float64?

With features φ (rows = tokens), G = φᵀφ and B = φᵀΔ, the repair M* = argmin ‖φM − Δ‖²_F + λ‖M‖²_F of minimum norm
is read off the eigendecomposition of G. Nothing here sees a token: cost is O(C³), memory O(C²).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ghosted.progress import CancelFlag

EPSILON = 2.0**-52
RIDGES = tuple(10.0 ** (half / 2) for half in range(-20, 3))
"""What ``auto`` chooses from, relative to mean(diag G): 1e-10 … 10 in half decades."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A least-squares repair.

    Attributes:
        M: ``(C, C)`` float64.
        rank: eigenvalues of G that were kept.
        dof: effective degrees of freedom Σ e/(e + λ) over the kept eigenvalues.
        condition: e_max/e_min over the kept eigenvalues of G, before λ.
    """

    M: Tensor
    rank: int
    dof: float
    condition: float


class Spectrum:
    """The eigendecomposition G = V diag(e) Vᵀ with its cut-off, from which solutions for any λ are cheap.

    Args:
        G: ``(C, C)`` symmetric positive semi-definite Gram matrix, float64.

    Attributes:
        e: ``(C,)`` eigenvalues, ascending, not below 0.
        V: ``(C, C)`` eigenvectors in columns.
        kept: ``(C,)`` whether an eigenvalue is above C·2⁻⁵²·e_max.
        scale: mean(diag G), what a ridge is relative to.
    """

    def __init__(self, G: Tensor) -> None:
        e, self.V = torch.linalg.eigh(G)
        self.e = e.clamp(min=0)
        self.kept = self.e > self.floor
        self.scale = G.diagonal().mean()

    @property
    def floor(self) -> Tensor:
        """The cut-off C·2⁻⁵²·e_max: what lies below is rounding."""
        return len(self.e) * EPSILON * self.e[-1]

    @property
    def rank(self) -> int:
        """Eigenvalues kept."""
        return int(self.kept.sum())

    @property
    def condition(self) -> float:
        """e_max/e_min over the kept eigenvalues; 1 where none is kept."""
        e = self.e[self.kept]
        return float(e[-1] / e[0]) if len(e) else 1.0

    def inverse(self, ridge: float) -> Tensor:
        """Return ``(C,)`` 1/(e + λ) where the eigenvalue is kept, 0 elsewhere."""
        shifted = torch.where(self.kept, self.e + ridge * self.scale, torch.ones_like(self.e))
        return torch.where(self.kept, 1.0 / shifted, torch.zeros_like(self.e))

    def solve(self, B: Tensor, ridge: float) -> Solution:
        """Solve (G + λI) M = B on the range of G, with λ = ``ridge`` · mean(diag G).

        Args:
            B: ``(C, K)`` cross moments φᵀΔ, float64.
            ridge: λ relative to the mean of G's diagonal; 0 gives the minimum-norm least-squares solution.

        References:
            *Ghosted Layers* (2026), the unconstrained activation alignment M* = X_pre⁺ Δ; ridge as in Hoerl and
            Kennard (1970).
        """
        gain = self.inverse(ridge)
        M = self.V @ (gain[:, None] * (self.V.mT @ B))
        return Solution(M, self.rank, float((gain * self.e).sum()), self.condition)

    def rotated(self, matrix: Tensor) -> Tensor:
        """Return Vᵀ ``matrix`` V: a ``(C, C)`` matrix in the eigenbasis."""
        return self.V.mT @ matrix @ self.V

    def best_ridge(self, B: Tensor, G_held: Tensor, B_held: Tensor, cancel: CancelFlag | None = None) -> float:
        """Return the one of :data:`RIDGES` whose solution has the least error on held-out moments.

        In the eigenbasis M = diag(g) B̃ with g = 1/(e + λ), so the held-out error is a quadratic form of the vector
        g: after four products of order C each λ costs O(C²), and no token is seen.

        Args:
            B: ``(C, K)`` cross moments that belong to G.
            G_held: ``(C, C)`` φᵀφ of held-out tokens.
            B_held: ``(C, K)`` φᵀΔ of held-out tokens.
            cancel: checked between two λ.
        """
        cross = self.V.mT @ B
        quadratic = self.rotated(G_held) * (cross @ cross.mT)
        linear = (cross * (self.V.mT @ B_held)).sum(-1)

        def error(ridge: float) -> float:
            gain = self.inverse(ridge)
            return float(gain @ quadratic @ gain - 2 * gain @ linear)

        return ridge_of_least_error(error, cancel)


def ridge_of_least_error(error: Callable[[float], float], cancel: CancelFlag | None = None) -> float:
    """Return the one of :data:`RIDGES` with the least ``error``; of equals the smallest.

    Args:
        error: of a ridge, on held-out tokens.
        cancel: checked before each.
    """
    errors = []
    for ridge in RIDGES:
        if cancel is not None:
            cancel.check()
        errors.append(error(ridge))
    return RIDGES[errors.index(min(errors))]


def moment_error(M: Tensor, G: Tensor, B: Tensor) -> float:
    """Return ‖φM − Δ‖²_F − ‖Δ‖²_F from moments; arguments as in :func:`residual_norm`."""
    m = M.diagonal()
    if int(M.count_nonzero()) == int(m.count_nonzero()):  # no product for a scale per channel
        return float((m * (m * G.diagonal() - 2 * B.diagonal())).sum())
    return float(((G @ M) * M).sum() - 2 * (M * B).sum())


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
    return math.sqrt(max(moment_error(M, G, B) + delta_squared, 0.0) / delta_squared)
