"""What is an operator made of?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Decomposition:
    """What W = I + M is made of: W = S + A with S symmetric and A antisymmetric.

    While a range is being changed the four spectra are empty arrays: they follow.

    Attributes:
        method: whose operator it is.
        gap: its gap, by name.
        W: ``(C, C)`` the operator, acting on the right; ``x_new = x W``.
        share_antisymmetric: ‖A‖²/‖W‖² of W (the symmetric share is 1 minus it).
        share_antisymmetric_M: the same of M.
        eigenvalues: ``(C,)`` complex, of W.
        eigenvalues_symmetric: ``(C,)`` real, of S, descending.
        rotations: imaginary parts θ > 0 of A's eigenvalue pairs, descending.
        singular_values: ``(C,)`` of M, descending.
        contained: share of ‖M‖² inside each smaller family: ``scalar``, ``diagonal``, ``rotated`` (Q diag Qᵀ, Q as
            LinearPatch's) and ``symmetric``.
        rotation: what Q is at this width, ``Hadamard`` or ``cosine`` (transform).
        precision: what the spectra were computed in.
        error_by_rank: ``(C+1,)`` relative error on calibration tokens left by the best operator of rank 0 … C at this
            gap, where it is known.
    """

    method: str
    gap: str
    W: np.ndarray
    share_antisymmetric: float
    share_antisymmetric_M: float
    eigenvalues: np.ndarray
    eigenvalues_symmetric: np.ndarray
    rotations: np.ndarray
    singular_values: np.ndarray
    contained: dict[str, float] = field(default_factory=dict)
    rotation: str = "Hadamard"
    precision: str = "float64"
    error_by_rank: np.ndarray | None = None

    @property
    def S(self) -> np.ndarray:
        """``(C, C)`` symmetric part of W."""
        return (self.W + self.W.T) / 2

    @property
    def A(self) -> np.ndarray:
        """``(C, C)`` antisymmetric part of W."""
        return (self.W - self.W.T) / 2


def operator_key(method: str, gap: str, first: bool) -> str:
    """Return what an operator is called in :attr:`Run.decompositions`: ``ghosted``, and ``ghosted 25-26`` later on.

    Args:
        method: whose operator it is.
        gap: its gap, by name.
        first: whether that is the run's first gap; its operators are called by the method alone.
    """
    return method if first else f"{method} {gap}"
