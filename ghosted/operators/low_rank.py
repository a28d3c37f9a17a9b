"""How many directions does a repair need? The best operator of rank r, and the error left by every r.

Formula: M_r = argmin ‖X_pre M − Δ‖²_F + λ‖M‖²_F over rank(M) ≤ r (reduced-rank regression). With
(G + λI)^(−½) B = U Σ Vᵀ it is M_r = (G + λI)^(−½) U_r Σ_r V_rᵀ: a truncation of M* in the norm of G + λI. A plain
singular value decomposition of M* would keep directions that no state ever takes. The error of all r comes from that
one decomposition: ‖X_pre M_r − Δ‖² = ‖Δ‖² − Σ_{k ≤ r} σ_k² (2 − Σ_i U_ik² e_i/(e_i + λ)).
Cost: two eigendecompositions of order C; with λ chosen, one more for each λ tried.

Source: Izenman, *Reduced-rank regression for the multivariate linear model* (1975).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ghosted.operators import Fitted, Settings, check_rank
from ghosted.operators._least_squares import held_out_moments
from ghosted.solve import Spectrum, moment_error, ridge_of_least_error

NAME, LABEL, ORDER = "low-rank", "low rank", 26
NEEDS = frozenset({"state"})
STORED = "left and right"


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``state`` moments; rank C // 8 where none is given, and at least 1.

    Raises:
        InputError: the rank is above C, or ``ridge`` is ``auto`` without held-out statistics.
    """
    width = statistics.width
    rank = default_rank(width) if settings.rank is None else settings.rank
    check_rank(rank, width)
    moments = statistics.moments("state")
    spectrum = statistics.spectrum("state")
    ridge, chosen = settings.ridge, None
    if ridge == "auto":
        held_out = held_out_moments("state", settings)

        def error(candidate: float) -> float:
            left, right = reduced_rank(spectrum, moments.B, candidate).factors(rank)
            return moment_error(left @ right, held_out.G, held_out.B)

        ridge = chosen = ridge_of_least_error(error, settings.cancel)
    reduced = reduced_rank(spectrum, moments.B, ridge)
    factors = reduced.factors(rank)
    return Fitted("state", factors[0] @ factors[1], 2 * width * rank, spectrum.rank, ridge=chosen,
                  condition=spectrum.condition, note=f"The operator has rank {rank:,} of {width:,}.",
                  factors=factors, error_by_rank=reduced.error_by_rank(statistics.delta_squared))  # fmt: skip


def default_rank(width: int) -> int:
    """Return the rank that is taken where none is given: an eighth of the width, at least 1."""
    return max(1, width // 8)


@dataclass(frozen=True, eq=False)
class Reduced:
    """The least-squares repair, its directions in the order of what they explain.

    Attributes:
        left: ``(C, C)`` columns (G + λI)^(−½) u_k σ_k.
        right: ``(C, C)`` rows v_k, orthonormal; M* = left right.
        gain: ``(C,)`` by how much each direction lowers ‖X_pre M − Δ‖².
    """

    left: Tensor
    right: Tensor
    gain: Tensor

    def factors(self, rank: int) -> tuple[Tensor, Tensor]:
        """Return ``(C, r)`` and ``(r, C)``, whose product is the best operator of that rank."""
        return self.left[:, :rank].contiguous(), self.right[:rank].contiguous()

    def error_by_rank(self, delta_squared: float) -> list[float] | None:
        """Return ‖X_pre M_r − Δ‖/‖Δ‖ on calibration tokens for r = 0 … C; ``None`` where Δ = 0."""
        if delta_squared <= 0:
            return None
        lowered = [0.0, *self.gain.cumsum(0).tolist()]
        return [math.sqrt(max(1.0 - part / delta_squared, 0.0)) for part in lowered]


def reduced_rank(spectrum: Spectrum, B: Tensor, ridge: float) -> Reduced:
    """Return the repairs of every rank at one λ.

    Args:
        spectrum: of G.
        B: ``(C, C)`` X_preᵀΔ, float64.
        ridge: λ relative to ``mean(diag G)``.
    """
    inverse = spectrum.inverse(ridge)
    root = inverse.sqrt()
    Z = root[:, None] * (spectrum.V.mT @ B)
    # The eigenvectors of ZᵀZ are Z's right singular vectors, thirty times sooner than by its own decomposition; nothing
    # is divided by a singular value, so those that are rounding do no harm.
    right = torch.linalg.eigh(Z.mT @ Z).eigenvectors.flip(1)
    explained = Z @ right
    gain = (2.0 - inverse * spectrum.e) @ explained.square()
    return Reduced(spectrum.V @ (root[:, None] * explained), right.mT, gain)
