import numpy as np
import pytest

from ghosted.hadamard import hadamard, rotation


@pytest.mark.parametrize("order", [1, 2, 4, 12, 20, 28, 36, 60, 64, 576, 768, 896, 960, 2048])
def test_rows_are_orthogonal_signs(order):
    H = hadamard(order)
    assert set(np.unique(H)) <= {-1.0, 1.0}
    np.testing.assert_array_equal(H @ H.T, order * np.eye(order))


def test_576_is_paley_of_36_times_sylvester_of_16():
    H = hadamard(576)
    block = H[:16, :16]
    np.testing.assert_array_equal(H[16:32, :16] * block[0, 0], block * H[16, 0] * 1.0)
    np.testing.assert_array_equal(abs(block @ block.T), 16 * np.eye(16))


@pytest.mark.parametrize("order", [3, 6, 33, 100])
def test_where_there_is_none_a_cosine_transform_stands_in(order):
    Q, is_hadamard = rotation(order)
    assert not is_hadamard
    np.testing.assert_allclose(Q @ Q.T, np.eye(order), atol=1e-12)
