"""Ghosted and ReplaceMe in one fit: the operator and the last map of the branch before the gap share the work.

Formula: x̂ = x + [x − A, h] M with M = argmin Σ_t (‖[x − A, h]_t M − Δ_t‖² / ‖x_post,t‖²) + ridge, where A is what the
feed-forward branch before the gap adds, h the F hidden channels that its last linear map reads, and x − A what
bypasses the branch. The F lower rows of M merge into that map, so the repair adds C² numbers, as ``ghosted`` does.
Columns are scaled to the same mean square before the ridge. Cost: one eigendecomposition of order C + F.

Source: ours; not in the paper. README says what was tried beside it. Where no single linear map ends the branch it is
``ghosted-weighted``.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ghosted.operators import Fitted, Settings
from ghosted.operators._least_squares import held_out_moments, least_squares
from ghosted.solve import Spectrum

NAME, LABEL, ORDER = "best", "best", 70
NEEDS = frozenset({"joint_weighted", "state_weighted"})

RIDGE = 1e-3
"""Least ridge: C + F columns follow noise where C alone do not."""


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``joint_weighted`` moments; a ridge counts if it is ``auto`` or above :data:`RIDGE`."""
    width, kind = statistics.width, "joint_weighted"
    if not statistics.hidden:
        plain = least_squares(statistics, "state_weighted", settings, width**2)
        return replace(plain, note="No single linear map ends the feed-forward branch before this gap, so best is "
                                   "ghosted-weighted here.")  # fmt: skip
    moments = statistics.moments(kind)
    diagonal = moments.G.diagonal()
    mean_square = torch.cat([rows.mean().expand(len(rows)) for rows in diagonal.split([width, statistics.hidden])])
    scale = mean_square.clamp(min=torch.finfo(torch.float64).tiny).rsqrt()[:, None]
    spectrum, B, chosen = Spectrum(moments.G * scale * scale.mT), moments.B * scale, None
    if settings.ridge == "auto":
        held_out = held_out_moments(kind, settings)
        chosen = spectrum.best_ridge(B, held_out.G * scale * scale.mT, held_out.B * scale, settings.cancel)
    ridge = max(RIDGE, settings.ridge) if chosen is None else chosen
    solution = spectrum.solve(B, ridge)
    return Fitted("joint", solution.M * scale, width**2, solution.rank, solution.dof, chosen, solution.condition)
