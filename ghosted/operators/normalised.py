"""What if the repair sees what the removed blocks saw? They read the state through their own norms.

Formula: x̂ = x + φ M with φ = x/rms(x) (RMS without weight, eps of the norm that reads the state after the gap) and
M = argmin ‖φM − Δ‖²_F + λ‖M‖²_F. Not linear in x, so it has no W, S or A. A sink token of huge norm weighs no more
here than any other in φ. Cost: one eigendecomposition of order C.

Source: ours; not in the paper.
"""

from ghosted.operators import Fitted, Settings
from ghosted.operators._least_squares import least_squares

NAME, LABEL, ORDER = "normalised", "ghosted, normalised", 60
NEEDS = frozenset({"normalised"})


def fit(statistics, settings: Settings) -> Fitted:
    """Fit from the ``normalised`` moments."""
    return least_squares(statistics, "normalised", settings, statistics.width**2)
