"""What is an operator made of? W = S + A, a symmetric stretch and an antisymmetric rotation, and their spectra.

S = (W + Wᵀ)/2 and A = (W − Wᵀ)/2 are orthogonal in the Frobenius inner product, so ‖W‖² = ‖S‖² + ‖A‖² and the shares
add to 1. The symmetric part of W* is *not* the best symmetric operator; see DESIGN's ``symmetric`` method.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ghosted.removed import gap_name
from ghosted.results import Decomposition


def decompose(M: Tensor, method: str, gap: range, *, spectra: bool = True) -> Decomposition:
    """Decompose W = I + M.

    Args:
        M: ``(C, C)``; computed in float64.
        method: whose operator it is.
        gap: the gap it repairs.
        spectra: without them only W and its shares are computed, and the rest is empty.

    Returns:
        W, the shares of A in W and in M, eigenvalues of W and S, rotation rates θ of A (imaginary parts of its
        eigenvalue pairs), singular values of M.
    """
    M = M.double()
    W = torch.eye(len(M), dtype=M.dtype, device=M.device) + M
    S, A = (W + W.mT) / 2, (W - W.mT) / 2
    values = _spectra(M, W, S, A) if spectra else [M.new_zeros(0)] * 4
    eigenvalues, symmetric, rotations, singular = (v.cpu().numpy() for v in values)
    return Decomposition(
        method=method,
        gap=gap_name(gap),
        W=W.float().cpu().numpy(),
        share_antisymmetric=_share(A, W),
        share_antisymmetric_M=_share(A, M),
        eigenvalues=eigenvalues,
        eigenvalues_symmetric=symmetric,
        rotations=rotations,
        singular_values=singular,
    )


def _spectra(M: Tensor, W: Tensor, S: Tensor, A: Tensor) -> list[Tensor]:
    theta = torch.linalg.eigvalsh(1j * A)
    return [
        torch.linalg.eigvals(W),
        torch.linalg.eigvalsh(S).flip(0),
        theta[theta > 0].flip(0),
        torch.linalg.svdvals(M),
    ]


def _share(part: Tensor, whole: Tensor) -> float:
    total = float(whole.square().sum())
    return float(part.square().sum()) / total if total > 0 else 0.0
