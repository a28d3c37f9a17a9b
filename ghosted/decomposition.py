"""What is an operator made of? W = S + A, a symmetric stretch and an antisymmetric rotation, and their spectra.

S = (W + Wᵀ)/2 and A = (W − Wᵀ)/2 are orthogonal in the Frobenius inner product, so ‖W‖² = ‖S‖² + ‖A‖² and the shares
add to 1. The symmetric part of W* is *not* the best symmetric operator; see DESIGN's ``symmetric`` method.

How much of M = W − I a smaller family could hold is asked the same way: the share of ‖M‖² inside the span of
{s I}, {diag m}, {Q diag(m) Qᵀ} (LinearPatch's, Q its Hadamard rotation) and {M = Mᵀ}. Each is a linear subspace, so the
share is that of the orthogonal projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ghosted.hadamard import rotation
from ghosted.removed import gap_name
from ghosted.results import Decomposition, operator_key

if TYPE_CHECKING:
    from ghosted.calibration.statistics import GapStatistics
    from ghosted.operators import Fitted

WIDEST_DOUBLE = 2048
"""Above this width spectra are computed in float32: the eigenvalues of a 4,096 matrix take minutes in float64."""
SYMMETRIC = 1e-20
"""A share of A in W below this is rounding: the operator is symmetric, and its eigenvalues are real."""


def decompose(
    M: Tensor, method: str, gap: range, error_by_rank: list[float] | None = None, *, spectra: bool = True
) -> Decomposition:
    """Decompose W = I + M.

    Args:
        M: ``(C, C)``; shares are computed in float64, spectra in float64 up to :data:`WIDEST_DOUBLE`.
        method: whose operator it is.
        gap: the gap it repairs.
        error_by_rank: what the best operators of rank 0 … C leave there, where that is known; passed on.
        spectra: without them only W and its shares are computed, and the spectra are empty.

    Returns:
        W, the shares of A in W and in M, what the smaller families hold of M, eigenvalues of W and S, rotation rates θ
        of A (imaginary parts of its eigenvalue pairs), singular values of M.
    """
    M = M.double()
    W = torch.eye(len(M), dtype=M.dtype, device=M.device) + M
    A = (M - M.mT) / 2
    share, share_M = _share(A, W), _share(A, M)
    held, is_hadamard = contained(M)
    if len(M) > WIDEST_DOUBLE:
        M, W, A = M.float(), W.float(), A.float()
    found = _spectra(M, W, A, share < SYMMETRIC) if spectra else [M.new_zeros(0)] * 4
    eigenvalues, stretches, turns, singular = (values.cpu().numpy() for values in found)
    return Decomposition(
        method=method,
        gap=gap_name(gap),
        W=W.float().cpu().numpy(),
        share_antisymmetric=share,
        share_antisymmetric_M=share_M,
        eigenvalues=eigenvalues,
        eigenvalues_symmetric=stretches,
        rotations=turns,
        singular_values=singular,
        contained=held,
        rotation="Hadamard" if is_hadamard else "cosine",
        precision="float32" if M.dtype == torch.float32 else "float64",
        error_by_rank=None if error_by_rank is None else np.asarray(error_by_rank),
    )


def _spectra(M: Tensor, W: Tensor, A: Tensor, symmetric: bool) -> list[Tensor]:
    """Return the eigenvalues of W and of S, the rotation rates of A, and the singular values of M."""
    stretches = torch.linalg.eigvalsh(W - A).flip(0)
    if symmetric:
        singular = (stretches - 1).abs().sort(descending=True).values
        return [stretches.to(torch.complex128), stretches, stretches[:0], singular]
    return [torch.linalg.eigvals(W), stretches, _rotations(A), torch.linalg.svdvals(M)]


def linear_operators(
    fitted: Mapping[str, Sequence[Fitted]], gaps: Sequence[range]
) -> Iterator[tuple[str, str, int]]:
    """Yield key (:func:`~ghosted.results.operator_key`), method and gap's number of every operator that is linear in x.

    Args:
        fitted: by method, one fit per gap, or none.
        gaps: in the order of the fits.
    """
    for number, gap in enumerate(gaps):
        for method, fits in fitted.items():
            if fits and fits[number].feature == "state" and fits[number].M is not None:
                yield operator_key(method, gap_name(gap), number == 0), method, number


def contained(M: Tensor) -> tuple[dict[str, float], bool]:
    """Return the share of ‖M‖² that each smaller family holds, and whether Q is a Hadamard matrix here.

    Args:
        M: ``(C, C)`` float64.

    Returns:
        By family: ``scalar`` (tr M)²/C, ``diagonal`` ‖diag M‖², ``rotated`` ‖diag(Qᵀ M Q)‖², ``symmetric``
        ‖(M + Mᵀ)/2‖², each relative to ‖M‖²; all 0 for M = 0.
    """
    Q, is_hadamard = rotation(len(M))
    Q = torch.from_numpy(Q).to(M)
    rotated = ((M @ Q) * Q).sum(0)
    squared = {
        "scalar": float(M.trace()) ** 2 / len(M), "diagonal": float(M.diagonal().square().sum()),
        "rotated": float(rotated.square().sum()), "symmetric": float(((M + M.mT) / 2).square().sum()),
    }
    total = float(M.square().sum())
    return {family: part / total if total > 0 else 0.0 for family, part in squared.items()}, is_hadamard


def errors_by_rank(statistics: GapStatistics, ridge: float) -> list[float] | None:
    """Return what the best operator of each rank 0 … C leaves of ‖Δ‖ on calibration tokens at one gap.

    That of rank C is ``ghosted``'s own. ``None`` where Δ = 0, and above :data:`WIDEST_DOUBLE`: two eigendecompositions.

    Args:
        statistics: of the gap.
        ridge: λ relative to ``mean(diag G)``.
    """
    from ghosted.operators.low_rank import reduced_rank
    from ghosted.solve import Spectrum

    if statistics.width > WIDEST_DOUBLE:
        return None
    moments = statistics.moments("state")
    return reduced_rank(Spectrum(moments.G), moments.B, ridge).error_by_rank(statistics.delta_squared)


def _rotations(A: Tensor) -> Tensor:
    """Return θ > 0 of A's eigenvalue pairs ±iθ, descending: each is a singular value twice."""
    turns = torch.linalg.svdvals(A)[::2]
    return turns[turns > len(A) * torch.finfo(A.dtype).eps * turns[:1]]


def _share(part: Tensor, whole: Tensor) -> float:
    total = float(whole.square().sum())
    return float(part.square().sum()) / total if total > 0 else 0.0
