"""Ghosted and ReplaceMe in one fit: the operator and the last map of the branch before the gap share the work.

Formula: x̂ = x + [x − A, h] M with M = argmin Σ_t (‖[x − A, h]_t M − Δ_t‖² / ‖x_post,t‖²) + ridge, where A is what the
feed-forward branch before the gap adds, h the F hidden channels that its last linear map reads, and x − A what
bypasses the branch. The F lower rows of M merge into that map, so the repair adds C² numbers, as ``ghosted`` does.
Columns are scaled to the same mean square before the ridge. Where no single linear map ends the branch, [x − A, h] is x
alone. To the calibration text comes text that the model writes itself, one token in five: a fit to one kind of text
alone is worse on any other (README has the numbers). Cost: one eigendecomposition of order C + F, and once per model
the writing of 16,384 tokens.

Source: ours; not in the paper. The joint fit is ReplaceMe's (arXiv 2505.02819) and the paper's at once; own text for
calibration is from LLM-QAT (arXiv 2305.17888). README says what was tried beside it.
"""

from __future__ import annotations

import torch

from ghosted.calibration.statistics import Moments
from ghosted.operators import Fitted, Settings
from ghosted.operators._least_squares import held_out_moments
from ghosted.solve import Spectrum

NAME, LABEL, ORDER = "best", "best", 70
NEEDS = frozenset({"joint_weighted", "state_weighted"})

RIDGE = 1e-3
"""Least ridge: C + F columns follow noise where C alone do not."""

GENERATED_TOKENS = 16_384
GENERATED_WEIGHT = 0.25
"""Of all of the model's own text beside all of the calibration text."""


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``joint_weighted`` moments; a ridge counts if it is ``auto`` or above :data:`RIDGE`."""
    width, joint = statistics.width, bool(statistics.hidden)
    kind = "joint_weighted" if joint else "state_weighted"
    moments = _mixed(statistics, settings.generated, kind)
    columns = moments.G.diagonal().split([width, statistics.hidden] if joint else [width])
    mean_square = torch.cat([part.mean().expand(len(part)) for part in columns])
    scale = mean_square.clamp(min=torch.finfo(torch.float64).tiny).rsqrt()[:, None]
    spectrum, B, chosen = Spectrum(moments.G * scale * scale.mT), moments.B * scale, None
    if settings.ridge == "auto":
        held_out = held_out_moments(kind, settings)
        chosen = spectrum.best_ridge(B, held_out.G * scale * scale.mT, held_out.B * scale, settings.cancel)
    solution = spectrum.solve(B, max(RIDGE, settings.ridge) if chosen is None else chosen)
    note = None if joint else "No single linear map ends the feed-forward branch before this gap; best acts on x alone."
    return Fitted("joint" if joint else "state", solution.M * scale, width**2, solution.rank, solution.dof, chosen,
                  solution.condition, note)  # fmt: skip


def _mixed(statistics, generated, kind: str) -> Moments:
    moments = statistics.moments(kind)
    if generated is None or not generated.tokens:
        return moments
    own, weight = generated.moments(kind), GENERATED_WEIGHT * statistics.tokens / generated.tokens
    return Moments(moments.G + weight * own.G, moments.B + weight * own.B)
