import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghosted.solve import Spectrum, residual_norm


def moments(X, D):
    X, D = X.double(), D.double()
    return X.T @ X, X.T @ D, float(D.square().sum())


def test_case_13_rank_deficient_minimum_norm():
    X = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    G, B, _ = moments(X, X)
    solution = Spectrum(G).solve(B, 0.0)
    assert solution.rank == 2
    np.testing.assert_allclose(solution.M[0], [0.8333, 0.3333, -0.1667], atol=1e-4)
    assert solution.dof == pytest.approx(2.0)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31), tokens=st.integers(1, 60), width=st.integers(1, 12),
    rank=st.integers(1, 12), sink=st.sampled_from([1.0, 300.0]),
)
def test_agrees_with_a_pseudo_inverse_of_the_states(seed, tokens, width, rank, sink):
    g = torch.Generator().manual_seed(seed)
    rank = min(rank, width, tokens)
    U = torch.linalg.qr(torch.randn(tokens, rank, generator=g, dtype=torch.float64)).Q
    V = torch.linalg.qr(torch.randn(width, rank, generator=g, dtype=torch.float64)).Q
    X = (U * torch.linspace(1, 5, rank, dtype=torch.float64)) @ V.T
    X[0] *= sink
    D = torch.randn(tokens, width, generator=g, dtype=torch.float64)
    G, B, d2 = moments(X, D)
    M = Spectrum(G).solve(B, 0.0).M
    best = torch.linalg.lstsq(X, D, driver="gelsd", rcond=1e-7).solution
    ours, theirs = (X @ M - D).norm(), (X @ best - D).norm()
    # Moments square the condition number: an exact fit is exact to about the square root of the precision.
    assert ours <= theirs + 1e-5 * math.sqrt(d2)
    assert residual_norm(M, G, B, d2) == pytest.approx(float(ours) / math.sqrt(d2), abs=1e-5)


def test_ridge_is_relative_to_the_mean_of_the_diagonal():
    X = torch.randn(50, 4, dtype=torch.float64)
    D = torch.randn(50, 4, dtype=torch.float64)
    G, B, _ = moments(X, D)
    lam = 0.3 * G.diagonal().mean()
    expected = torch.linalg.solve(G + lam * torch.eye(4, dtype=torch.float64), B)
    solution = Spectrum(G).solve(B, 0.3)
    torch.testing.assert_close(solution.M, expected)
    e = torch.linalg.eigvalsh(G)
    assert solution.dof == pytest.approx(float((e / (e + lam)).sum()))
    scaled = Spectrum(G * 1e6).solve(B * 1e6, 0.3)
    torch.testing.assert_close(scaled.M, solution.M)


def test_nothing_to_repair_is_none():
    G = torch.eye(3, dtype=torch.float64)
    assert residual_norm(torch.zeros(3, 3), G, torch.zeros(3, 3, dtype=torch.float64), 0.0) is None


def test_no_repair_leaves_exactly_one():
    X, D = torch.randn(20, 3), torch.randn(20, 3)
    G, B, d2 = moments(X, D)
    assert residual_norm(torch.zeros(3, 3), G, B, d2) == 1.0
