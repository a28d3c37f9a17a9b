"""How much of a gap can each family of matrices close? More free numbers never leave more on calibration tokens."""

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghosted import operators
from ghosted.calibration.statistics import GapStatistics
from ghosted.operators import Settings

INCLUSIONS = (
    ("none", "scalar"), ("scalar", "diagonal"), ("diagonal", "symmetric"), ("symmetric", "ghosted"),
    ("none", "procrustes"), ("procrustes", "ghosted"), ("none", "low-rank"), ("low-rank", "ghosted"),
)  # fmt: skip


def states(seed, tokens, width, rank, sink, dead):
    """Float64 states of a given rank, one token of which may dwarf the others, and one channel of which may be dead."""
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(tokens, rank, generator=g, dtype=torch.float64) @ torch.randn(rank, width, generator=g).double()
    X[0] *= sink
    X[:, 0] *= not dead
    noise = torch.randn(tokens, width, generator=g, dtype=torch.float64)
    return X, X @ torch.randn(width, width, generator=g).double() * 0.3 + noise


def statistics_of(X, D):
    found = GapStatistics(range(1, 2), X.shape[1], frozenset({"state"}))
    found.sums |= {"state.G": X.mT @ X, "state.B": X.mT @ D, "delta": D.square().sum()[None]}
    return found


SHAPES = given(
    seed=st.integers(0, 2**31), tokens=st.integers(1, 60), width=st.integers(2, 14), rank=st.integers(1, 14),
    sink=st.sampled_from([1.0, 300.0]), dead=st.booleans(),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@SHAPES
def test_more_free_numbers_never_leave_more(seed, tokens, width, rank, sink, dead):
    X, D = states(seed, tokens, width, min(rank, width), sink, dead)
    statistics, tolerance = statistics_of(X, D), 1e-9 * float(D.norm())

    def left(name, **more):
        M = operators.method(name).fit(statistics, Settings(ridge=0.0, **more)).M
        return float(D.norm() if M is None else (X @ M - D).norm())

    errors = {name: left(name) for pair in INCLUSIONS for name in pair}
    for fewer, more in INCLUSIONS:
        assert errors[more] <= errors[fewer] + tolerance, (fewer, more)
    by_rank = [float(D.norm()), *(left("low-rank", rank=r) for r in range(1, width + 1))]
    assert all(b <= a + tolerance for a, b in pairwise(by_rank))
    assert abs(by_rank[-1] - errors["ghosted"]) <= tolerance


@settings(max_examples=40, deadline=None)
@SHAPES
def test_the_whole_curve_by_rank_is_what_the_operators_leave(seed, tokens, width, rank, sink, dead):
    X, D = states(seed, tokens, width, min(rank, width), sink, dead)
    statistics = statistics_of(X, D)
    curve = operators.method("low-rank").fit(statistics, Settings(ridge=0.0)).error_by_rank
    assert len(curve) == width + 1 and curve[0] == 1.0
    assert all(b <= a for a, b in pairwise(curve))
    for r in range(1, width + 1):
        M = operators.method("low-rank").fit(statistics, Settings(ridge=0.0, rank=r)).M
        # Squares are compared, for the curve is read off them: an exact fit is exact to the root of the precision.
        assert abs(curve[r] ** 2 - float((X @ M - D).norm() / D.norm()) ** 2) < 1e-9
