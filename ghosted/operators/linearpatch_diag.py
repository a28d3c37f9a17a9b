"""LinearPatch without its rotation: one scale per channel.

Formula: W = diag(d), d_k = mean over sequences of mean|X_post|_k / mean|X_pre|_k (means over the sequence's tokens);
a dead channel gets factor 1. Symmetric by construction. Cost: C divisions.

Source: LinearPatch (arXiv 2505.24680), its ablation without the Hadamard transform.
"""

from ghosted.operators import Fitted, Settings

NAME, LABEL, ORDER = "linearpatch-diag", "LinearPatch, diagonal", 10
NEEDS = frozenset({"ratios"})


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``ratios`` of :class:`~ghosted.calibration.statistics.GapStatistics`; no setting matters."""
    d = statistics.ratios("identity")
    return Fitted("state", (d - 1.0).diag(), added_parameters=len(d))
