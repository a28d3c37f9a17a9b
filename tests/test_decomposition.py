"""What an operator is made of: its parts, spectra and the families that hold it, on matrices one can check."""

import dataclasses

import numpy as np
import pytest
import torch
from tiny import TINY, tokenizer

from ghosted import decomposition
from ghosted.calibration.statistics import Boundary, GapStatistics
from ghosted.decomposition import decompose, errors_by_rank
from ghosted.experiment import Experiment
from ghosted.hadamard import rotation
from ghosted.models import LoadedModel
from ghosted.operators import Settings, method
from ghosted.progress import drain
from ghosted.results import operator_key
from ghosted.run import run
from ghosted.solve import residual_norm
from ghosted.workspace import Workspace


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
    assert len(d.rotations) == 0
    np.testing.assert_allclose(d.singular_values, np.linalg.svd(d.W - np.eye(6), compute_uv=False), rtol=1e-5)


def test_rounding_in_linearpatch_is_no_rotation():
    Q = torch.from_numpy(rotation(12)[0])
    d = decompose((Q * torch.linspace(-0.5, 2, 12).double()) @ Q.T, "linearpatch", range(0, 1))
    assert len(d.rotations) == 0
    assert not d.eigenvalues.imag.any()
    np.testing.assert_allclose(np.sort(d.eigenvalues.real), np.linspace(0.5, 3, 12), atol=1e-9)


def test_each_family_holds_its_own_and_only_its_part_of_others():
    torch.manual_seed(1)
    Q = torch.from_numpy(rotation(8)[0])
    full = torch.randn(8, 8).double()
    inside = {
        "scalar": 0.3 * torch.eye(8).double(), "diagonal": torch.randn(8).double().diag(),
        "rotated": (Q * torch.randn(8).double()) @ Q.T, "symmetric": full + full.T,
    }
    held = {name: decompose(M, "x", range(1)).contained for name, M in inside.items()}
    for name, shares in held.items():
        assert shares[name] == pytest.approx(1, abs=1e-12), name
        assert shares["symmetric"] == pytest.approx(1, abs=1e-12), "every one of them is symmetric"
    assert held["scalar"]["rotated"] == pytest.approx(1, abs=1e-12)
    assert held["diagonal"]["rotated"] < 0.9
    assert held["rotated"]["diagonal"] < 0.9
    projected = Q @ torch.diag((Q.T @ full @ Q).diagonal()) @ Q.T
    found = decompose(full, "x", range(1))
    assert found.contained["rotated"] == pytest.approx(float(projected.square().sum() / full.square().sum()))
    assert found.contained["symmetric"] == pytest.approx(1 - found.share_antisymmetric_M)
    assert set(decompose(torch.zeros(8, 8), "x", range(1)).contained.values()) == {0.0}


def test_a_width_without_a_hadamard_matrix_says_so():
    assert decompose(torch.eye(8), "x", range(1)).rotation == "Hadamard"
    assert decompose(torch.eye(7), "x", range(1)).rotation == "cosine"


def test_wide_operators_are_computed_in_float32_and_say_so(monkeypatch):
    torch.manual_seed(0)
    M = torch.randn(40, 40) / 10
    narrow = decompose(M, "ghosted", range(1))
    monkeypatch.setattr(decomposition, "WIDEST_DOUBLE", 32)
    wide = decompose(M, "ghosted", range(1))
    assert (narrow.precision, wide.precision) == ("float64", "float32")
    assert wide.share_antisymmetric == narrow.share_antisymmetric, "shares stay in float64"
    np.testing.assert_allclose(wide.singular_values, narrow.singular_values, atol=1e-5)
    np.testing.assert_allclose(wide.rotations, narrow.rotations, atol=1e-5)
    assert wide.singular_values.dtype == np.float32


def test_the_curve_of_ranks_starts_at_doing_nothing_and_ends_at_the_operator_itself(monkeypatch):
    torch.manual_seed(0)
    pre = torch.randn(1, 60, 6)
    post = pre @ (torch.eye(6) + 0.4 * torch.randn(6, 6)) + 0.3 * torch.randn(1, 60, 6)
    statistics = GapStatistics(range(2, 4), 6, frozenset({"state"}))
    statistics.add(Boundary(pre, post, None, None))
    errors = errors_by_rank(statistics, 1e-6)
    M, moments = method("ghosted").fit(statistics, Settings(1e-6)).M, statistics.moments("state")
    assert len(errors) == 7
    assert errors[0] == 1
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(residual_norm(M, moments.G, moments.B, statistics.delta_squared), rel=1e-6)
    assert list(decompose(M, "ghosted", range(2, 4), errors).error_by_rank) == errors
    monkeypatch.setattr(decomposition, "WIDEST_DOUBLE", 5)
    assert errors_by_rank(statistics, 1e-6) is None


def test_an_operator_is_named_by_its_method_and_after_the_first_gap_by_both():
    assert operator_key("ghosted", "10", first=True) == "ghosted"
    assert operator_key("ghosted", "25-26", first=False) == "ghosted 25-26"


def test_a_run_decomposes_every_gap_and_knows_the_curve_of_ranks_at_each(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Sentence {i} of a text that goes on about {i * i % 97} things. " for i in range(900)))
    asked = Experiment(text=str(text), tokens=512, window=64, windows=2, remove="1,3-4", fit="independent",
                       methods=("none", "linearpatch", "ghosted", "low-rank", "normalised"), rank=4)
    space, parts = Workspace(LoadedModel.of(TINY("llama"), tokenizer())), ("boundary", "decomposition")
    found = drain(run(asked, space, parts=parts))
    assert list(found.decompositions) == ["linearpatch", "ghosted", "low-rank", "linearpatch 3-4", "ghosted 3-4",
                                          "low-rank 3-4"]
    for name, each in found.decompositions.items():
        left = found.method(each.method).gaps[each.gap].calibration
        assert name == operator_key(each.method, each.gap, each.gap == "1")
        if each.method == "ghosted":
            assert len(each.error_by_rank) == 33
            assert each.error_by_rank[-1] == pytest.approx(left, abs=1e-4)
        if each.method == "low-rank":
            assert each.error_by_rank[4] == pytest.approx(left, abs=1e-4), "of the gap at hand"
        if each.method == "linearpatch":
            assert each.error_by_rank is None
            assert len(each.rotations) == 0
    later = drain(run(dataclasses.replace(asked, fit="sequential"), space, parts=parts)).decompositions
    assert later["ghosted"].error_by_rank is not None
    assert later["ghosted 3-4"].error_by_rank is None, "its states have passed the repair before: not at hand"
