"""How much of the gap does the best *symmetric* operator close? Stretches along fixed axes, and no rotation.

Formula: M = argmin ‖X_pre M − Δ‖²_F + λ‖M‖²_F over M = Mᵀ, which solves (G + λI)M + M(G + λI) = B + Bᵀ. In the
eigenbasis G = V diag(e) Vᵀ it is one division per entry: M̃_ij = (B̃ + B̃ᵀ)_ij / (e_i + e_j + 2λ), and 0 where
e_i + e_j is below the cut-off. It is *not* the symmetric part of the unconstrained operator, which ruins the model.
Cost: one eigendecomposition and four products of order C.

Source: the symmetric Procrustes problem, Higham, *The symmetric Procrustes problem* (1988).
"""

from torch import Tensor

from ghosted.operators import Fitted, Settings
from ghosted.operators._least_squares import held_out_moments
from ghosted.solve import Spectrum, moment_error, ridge_of_least_error

NAME, LABEL, ORDER = "symmetric", "symmetric", 24
NEEDS = frozenset({"state"})


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``state`` moments; with ``ridge`` ``auto``, λ has the least error on held-out tokens.

    Raises:
        InputError: ``ridge`` is ``auto`` without held-out statistics.
    """
    moments = statistics.moments("state")
    spectrum = statistics.spectrum("state")
    cross, chosen, ridge = spectrum.rotated(moments.B), None, settings.ridge
    if ridge == "auto":
        held_out = held_out_moments("state", settings)
        G, B = spectrum.rotated(held_out.G), spectrum.rotated(held_out.B)
        ridge = chosen = ridge_of_least_error(lambda r: moment_error(_entries(spectrum, cross, r), G, B),
                                              settings.cancel)  # fmt: skip
    M = spectrum.V @ _entries(spectrum, cross, ridge) @ spectrum.V.mT
    width = statistics.width
    return Fitted("state", (M + M.mT) / 2, width * (width + 1) // 2, spectrum.rank, ridge=chosen,
                  condition=spectrum.condition)  # fmt: skip


def _entries(spectrum: Spectrum, cross: Tensor, ridge: float) -> Tensor:
    """Return M in the eigenbasis, ``(C, C)``; ``cross`` is B in it."""
    pairs = spectrum.e[:, None] + spectrum.e
    kept = pairs > spectrum.floor
    shifted = (pairs + 2 * ridge * spectrum.scale).where(kept, pairs.new_ones(()))
    return ((cross + cross.mT) / shifted).where(kept, pairs.new_zeros(()))
