"""Which rotation does LinearPatch use at width C, and is there one?

A Hadamard matrix of order C = n·2ᵏ is kron(Paley of order n, Sylvester of order 2ᵏ); 576 = 36·16 takes Paley's
second construction with q = 17. Where neither of Paley's constructions over a prime field fits, an orthonormal
discrete cosine transform stands in, and whoever uses it says so.

References:
    Sylvester (1867); Paley, "On orthogonal matrices" (1933).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import scipy.fft
import scipy.linalg


@cache
def rotation(width: int) -> tuple[np.ndarray, bool]:
    """Return an orthonormal ``(width, width)`` float64 matrix, and whether it is a Hadamard matrix / √width."""
    H = hadamard(width)
    if H is not None:
        return H / np.sqrt(width), True
    return scipy.fft.dct(np.eye(width), norm="ortho", axis=0), False


def hadamard(order: int) -> np.ndarray | None:
    """Return a ``(order, order)`` matrix of ±1 with orthogonal rows, or ``None`` where none can be built here."""
    if order < 1:
        return None
    power = order & -order
    odd = order // power
    if odd == 1:
        return scipy.linalg.hadamard(order).astype(float)
    small = odd * 4
    while small <= order and order % small == 0:
        paley = _paley(small)
        if paley is not None:
            return np.kron(paley, scipy.linalg.hadamard(order // small))
        small *= 2
    return None


def _paley(order: int) -> np.ndarray | None:
    """Paley I for order q + 1 (q ≡ 3 mod 4), Paley II for order 2(q + 1) (q ≡ 1 mod 4), q prime."""
    q = order - 1
    if _is_prime(q) and q % 4 == 3:
        return np.eye(order) + _bordered(q, sign=-1.0)
    q = order // 2 - 1
    if order % 2 == 0 and _is_prime(q) and q % 4 == 1:
        C, one = _bordered(q, sign=1.0), np.eye(q + 1)
        return np.kron(C, [[1, 1], [1, -1]]) + np.kron(one, [[1, -1], [-1, -1]])
    return None


def _bordered(q: int, sign: float) -> np.ndarray:
    """Return the conference matrix of order q + 1: Jacobsthal's matrix with a border of ones (skew for sign −1)."""
    residues = {pow(i, 2, q) for i in range(1, q)}
    character = np.array([0.0] + [1.0 if i in residues else -1.0 for i in range(1, q)])
    jacobsthal = character[(np.arange(q)[:, None] - np.arange(q)) % q]
    C = np.zeros((q + 1, q + 1))
    C[0, 1:], C[1:, 0], C[1:, 1:] = 1.0, sign, jacobsthal
    return C


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
