"""ReplaceMe: correct what the feed-forward branch before the gap adds to the residual stream.

Formula: x̂ = X_pre − A + A T with A the branch's contribution, T = argmin ‖A T − (X_post − X_pre + A)‖² + ridge, so
T = I + M with M = A⁺ Δ. T merges into the branch's last linear map, so no parameter is added, except in families
that normalise the branch's output. Cost: one eigendecomposition of order C.

Source: ReplaceMe (arXiv 2505.02819), its least-squares variant.
"""

from ghosted.operators import Fitted, Settings
from ghosted.operators._least_squares import least_squares

NAME, LABEL, ORDER = "replaceme", "ReplaceMe", 30
NEEDS = frozenset({"feed_forward"})


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``feed_forward`` moments.

    Raises:
        NotDefined: the gap starts at block 0, or the family's feed-forward branch is not known.
    """
    added = 0 if statistics.merges else statistics.width**2
    return least_squares(statistics, "feed_forward", settings, added)
