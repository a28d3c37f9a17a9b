"""LinearPatch: one scale per channel of a Hadamard-rotated state.

Formula: W = Q diag(d) Qᵀ, d_k = mean over sequences of mean|X_post Q|_k / mean|X_pre Q|_k, Q = a Hadamard matrix / √C.
Symmetric by construction, so it can never rotate a state. Cost: one product of order C.

Source: LinearPatch (arXiv 2505.24680).
"""

import torch

from ghosted.hadamard import rotation
from ghosted.operators import Fitted, Settings

NAME, LABEL, ORDER = "linearpatch", "LinearPatch", 20
NEEDS = frozenset({"ratios"})
DISTILLS = True


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``ratios`` of :class:`~ghosted.calibration.statistics.GapStatistics`; no setting matters."""
    d = statistics.ratios("rotated")
    Q, is_hadamard = rotation(len(d))
    Q = torch.from_numpy(Q).to(d)
    note = None if is_hadamard else f"No Hadamard matrix of order {len(d)} is built here; a cosine transform is used."
    return Fitted("state", (Q * (d - 1.0)) @ Q.mT, added_parameters=len(d) ** 2, note=note)
