"""How much of the gap does one scale per channel close, each fitted by least squares?

Formula: W = I + diag(m) with m_k = B_kk/G_kk, G = X_preᵀX_pre and B = X_preᵀΔ; a channel whose share of the energy
tr(G) is below C·2⁻⁵² is dead and keeps its factor 1. Cost: C divisions.

Source: least squares per channel; ours as a rung of the ladder. LinearPatch (arXiv 2505.24680) without its rotation
has the same form, but matches mean magnitudes: see ``linearpatch-diag``.
"""

from ghosted.operators import Fitted, Settings
from ghosted.solve import EPSILON

NAME, LABEL, ORDER = "diagonal", "one scale per channel", 4
NEEDS = frozenset({"state"})
STORED = "diagonal"


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``state`` moments; no setting matters."""
    moments = statistics.moments("state")
    energy, shared = moments.G.diagonal(), moments.B.diagonal()
    alive = energy > len(energy) * EPSILON * energy.sum()
    m = (shared / energy.where(alive, energy.new_ones(()))).where(alive, energy.new_zeros(()))
    return Fitted("state", m.diag(), added_parameters=len(m), structure="diagonal")
