import numpy as np
import pytest
import torch

from ghosted.decomposition import decompose


def test_a_rotation_is_read_off_with_its_rate():
    angle = 0.3
    M = torch.tensor([[0.0, -angle, 0], [angle, 0, 0], [0, 0, 0.5]])
    d = decompose(M, "ghosted", range(2, 4))
    assert d.gap == "2-3"
    np.testing.assert_allclose(d.rotations, [angle], atol=1e-6)
    np.testing.assert_allclose(d.eigenvalues_symmetric, [1.5, 1, 1], atol=1e-6)
    np.testing.assert_allclose(sorted(d.singular_values), [0.3, 0.3, 0.5], atol=1e-6)
    assert d.share_antisymmetric == pytest.approx(0.18 / (0.18 + 2 + 2.25), rel=1e-5)
    assert d.share_antisymmetric_M == pytest.approx(0.18 / (0.18 + 0.25), rel=1e-5)


def test_shares_add_to_one_and_parts_add_to_W():
    torch.manual_seed(0)
    d = decompose(torch.randn(7, 7), "ghosted", range(1, 2))
    np.testing.assert_allclose(d.S + d.A, d.W, atol=1e-6)
    whole = np.square(d.W).sum()
    assert np.square(d.S).sum() / whole == pytest.approx(1 - d.share_antisymmetric, rel=1e-5)
    assert np.square(d.A).sum() / whole == pytest.approx(d.share_antisymmetric, rel=1e-5)


def test_a_symmetric_patch_has_no_rotation():
    torch.manual_seed(0)
    S = torch.randn(6, 6)
    d = decompose(S + S.T, "linearpatch", range(0, 1))
    assert d.share_antisymmetric == pytest.approx(0, abs=1e-12)
    assert abs(d.eigenvalues.imag).max() < 1e-6
