"""ReplaceMe: correct what the feed-forward branch before the gap adds to the residual stream.

Formula: x̂ = X_pre − A + A T with A the branch's contribution, T = argmin ‖A T − (X_post − X_pre + A)‖² + ridge, so
T = I + M with M = A⁺ Δ. T merges into the branch's last linear map, so no parameter is added, except in families
that normalise the branch's output. Cost: one eigendecomposition of order C.

Source: ReplaceMe (arXiv 2505.02819), its least-squares variant.
"""

from ghosted.operators import Fitted
from ghosted.solve import ridge_solve

NAME, LABEL, ORDER = "replaceme", "ReplaceMe", 30
NEEDS = frozenset({"feed_forward"})


def fit(statistics, ridge: float) -> Fitted:
    """Fit from the ``feed_forward`` moments.

    Raises:
        NotDefined: the gap starts at block 0, or the family's feed-forward branch is not known.
    """
    moments = statistics.moments("feed_forward")
    solution = ridge_solve(moments.G, moments.B, ridge)
    added = 0 if statistics.merges else len(moments.G) ** 2
    return Fitted("feed_forward", solution.M, added, solution.rank, solution.dof)
