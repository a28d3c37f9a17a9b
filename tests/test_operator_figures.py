"""The operator's portrait and the pictures made of it, and those of similarity: size, truth, and what is marked."""

import dataclasses
import json

import numpy as np
import pytest
from fake_run import decomposition, similarity

from analysis.arrays import MOST, pack, unpack
from analysis.figures import spectra
from analysis.figures.operator import (
    CROP,
    PARTS,
    SIDE,
    Portrait,
    Region,
    operator_maps,
    pick,
    pictures,
    portrait,
    ranks,
    region,
)
from analysis.figures.similarity import norm_curve, similarity_map, two_cosines
from analysis.matrices import Matrices
from ghosted.errors import InputError
from ghosted.removed import RemovedBlocks
from ghosted.results import Decomposition

SPECTRA = (spectra.eigenvalue_plane, spectra.symmetric_line, spectra.rotation_rates, spectra.singular_values)
REMOVED = RemovedBlocks.parse("14-18")


def synthetic(width: int) -> Decomposition:
    """Spectra of the right length without computing them."""
    rng = np.random.default_rng(0)
    upper = rng.normal(size=width // 2) + 1j * rng.random(width // 2)
    return Decomposition(
        "ghosted", "1-2", rng.normal(size=(width, width)).astype(np.float32), 0.5, 0.5,
        np.concatenate([upper, upper.conj()]), np.sort(rng.normal(size=width))[::-1],
        np.sort(rng.random(width // 2))[::-1], np.sort(rng.random(width))[::-1],
        {"scalar": 0.1, "diagonal": 0.2, "rotated": 0.15, "symmetric": 0.6}, "Hadamard", "float32",
        np.linspace(1, 0.5, width + 1),
    )


@pytest.fixture(scope="module")
def found():
    return decomposition("ghosted", "14-18")


@pytest.mark.parametrize("width", [2048, 4096])
def test_every_figure_is_small_whatever_the_width(width):
    store = Matrices(most=0)
    picture = portrait(synthetic(width), store)
    patch = dataclasses.replace(picture, method="linearpatch", rotations=np.zeros(0), pairs=0)
    figures = [*operator_maps(picture).values(), *(draw(picture, patch) for draw in SPECTRA),
               similarity_map(similarity(80), RemovedBlocks()), norm_curve(similarity(80, 4096), REMOVED)]
    sizes = [len(figure.to_json()) for figure in figures]
    assert max(sizes) < 400_000, sizes
    assert max(picture.reduced.shape) <= SIDE
    assert len(json.dumps(picture.to_json())) < 60_000
    assert (store.bytes, picture.matrix) == (0, "")


def test_a_saved_portrait_is_small_and_draws_the_same_pictures():
    picture = portrait(synthetic(576))
    saved = json.dumps(picture.to_json())
    assert len(saved) < 60_000
    back = Portrait.from_json(json.loads(saved))
    assert (back.matrix, back.contained, back.pairs, back.precision) == ("", picture.contained, 288, "float32")
    np.testing.assert_allclose(back.reduced, picture.reduced, atol=1e-3 * np.abs(picture.reduced).max())
    np.testing.assert_allclose(back.eigenvalues, picture.eigenvalues, rtol=1e-6)
    for name in ("symmetric", "rotations", "singular", "errors"):
        np.testing.assert_allclose(getattr(back, name), getattr(picture, name), rtol=1e-6)
    for draw in SPECTRA:
        before, after = (json.loads(draw(each).to_json()) for each in (picture, back))
        assert before["layout"].get("annotations") == after["layout"].get("annotations")
        assert [len(trace["x"]) for trace in before["data"]] == [len(trace["x"]) for trace in after["data"]]


@pytest.mark.parametrize("spoil", [
    lambda data: data.pop("reduced"), lambda data: data.update(width=10), lambda data: data.update(width=0),
    lambda data: data.update(scale=float("nan")), lambda data: data.update(width=10**12),
    lambda data: data.update(contained=[1]), lambda data: data["singular"].update(data="%%"),
    lambda data: data.update(eigenvalues=pack([1.0, 2.0, 3.0])), lambda data: data.update(reduced="W"),
])
def test_a_broken_portrait_is_refused_in_one_sentence(found, spoil):
    data = portrait(found).to_json()
    spoil(data)
    with pytest.raises(InputError, match="file"):
        Portrait.from_json(data)


def test_arrays_keep_their_numbers_and_lies_about_the_shape_are_refused():
    values = np.array([[1.5, -2.25, 0.0], [3e-5, 1e4, np.inf]])
    np.testing.assert_allclose(unpack(pack(values)), values, rtol=1e-6)
    assert unpack(pack(np.zeros(0))).shape == (0,)
    for lie in ({"shape": [-1, -6]}, {"shape": [MOST + 1]}, {"shape": [1e300]}, {"kind": "object"}, {"data": None}):
        with pytest.raises(InputError):
            unpack(pack(values) | lie)


def test_the_maps_share_one_scale_centred_at_zero_and_add_up(found):
    maps = {part: figure.data[0] for part, figure in operator_maps(portrait(found)).items()}
    assert tuple(maps) == PARTS
    assert len({(m.zmin, m.zmax) for m in maps.values()}) == 1
    assert maps["M"].zmin == -maps["M"].zmax < 0
    W, M, S, A = (np.asarray(maps[part].z) for part in PARTS)
    np.testing.assert_allclose(W, found.W, atol=1e-6)
    np.testing.assert_allclose(W - M, np.eye(len(M)), atol=1e-6)
    np.testing.assert_allclose(M, S + A, atol=1e-6)
    np.testing.assert_allclose(A, -A.T, atol=1e-6)


@pytest.mark.parametrize("width", [100, 577])
def test_the_reduced_map_of_w_has_the_means_of_w(width):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(width, width)).astype(np.float32)
    picture = portrait(dataclasses.replace(synthetic(width), W=W))
    heat = operator_maps(picture)["W"].data[0]
    step = picture.step
    z = np.asarray(heat.z)
    assert z[3, 5] == pytest.approx(W[3 * step : 4 * step, 5 * step : 6 * step].mean(), abs=1e-5)
    assert z[-1, -1] == pytest.approx(W[(len(z) - 1) * step :, (len(z) - 1) * step :].mean(), abs=1e-5)
    assert (heat.x0, heat.dx) == ((step - 1) / 2, step)


def test_a_part_shows_the_entries_themselves_with_their_channels():
    M = np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32)
    where = region(150, 20, 30, 69, 300)
    assert where == Region(range(20, 151), range(30, 70)), "in any order, inclusive"
    parts = pictures(M, Region(range(20, 120), range(30, 70)))
    np.testing.assert_array_equal(parts["M"], M[20:120, 30:70])
    np.testing.assert_allclose(parts["A"], ((M - M.T) / 2)[20:120, 30:70], atol=1e-6)
    np.testing.assert_allclose(parts["S"], ((M + M.T) / 2)[20:120, 30:70], atol=1e-6)
    np.testing.assert_allclose(parts["W"], (M + np.eye(300))[20:120, 30:70], atol=1e-6)
    averaged = pictures(M, where)["M"]
    assert averaged.shape == (66, 40), "131 rows are two to a pixel, 40 columns one"
    assert averaged[0, 0] == pytest.approx(M[20:22, 30].mean(), abs=1e-6)
    assert max(pictures(M, Region(range(300), range(299)))["S"].shape) <= CROP
    picture = portrait(dataclasses.replace(synthetic(300), W=M + np.eye(300, dtype=np.float32)))
    heat = operator_maps(picture, Region(range(20, 120), range(30, 70)), M)["M"].data[0]
    assert (heat.y0, heat.x0, heat.dy, heat.dx) == (20, 30, 1, 1)


def test_a_box_beyond_the_edge_is_pulled_in_and_all_of_it_is_the_whole():
    assert region(-7.4, 31.6, 60, 900, 64) == Region(range(0, 33), range(60, 64))
    assert region(0, 63, -5, 70, 64) is None
    for missing in (None, float("nan"), float("inf")):
        with pytest.raises(InputError, match="from 0 to 63"):
            region(0, 3, missing, 4, 64)


def test_the_store_drops_what_was_not_looked_at_for_longest():
    store, one = Matrices(most=1000), np.ones((10, 10))
    first, second = store.put(one), store.put(2 * one)
    assert store.get(first)[0, 0] == 1
    third = store.put(3 * one)
    assert store.bytes == 800
    assert store.get(second) is None
    assert (store.get(first)[0, 0], store.get(third)[0, 0]) == (1, 3)
    assert store.put(np.ones((20, 20))) == "", "too large for the store: nothing makes room for it"
    assert store.bytes == 800
    assert store.get("") is None


def test_a_run_of_several_gaps_has_every_operator_by_method_and_gap():
    kept = {"ghosted": portrait(decomposition("ghosted", "10")),
            "ghosted 14-16": portrait(decomposition("ghosted", "14-16")),
            "linearpatch": portrait(decomposition("linearpatch", "10"))}
    assert pick(kept, "ghosted", "10") is kept["ghosted"]
    assert pick(kept, "ghosted", "14-16") is kept["ghosted 14-16"]
    assert pick(kept, "linearpatch", "14-16") is None


def test_ranks_are_spread_from_first_to_last():
    assert ranks(5).tolist() == [0, 1, 2, 3, 4]
    assert (len(ranks(4096)), ranks(4096)[0], ranks(4096)[-1]) == (192, 0, 4095)
    assert ranks(0).size == 0


def test_linearpatch_stands_on_the_same_axes_and_never_turns(found):
    picture, patch = portrait(found), portrait(decomposition("linearpatch", "14-18"))
    plane = {trace.name: trace for trace in spectra.eigenvalue_plane(picture, patch).data}
    assert set(plane["LinearPatch"].y) == {0.0}
    assert len(plane["ghosted"].x) == 64, "both halves of the plane"
    assert max(plane["ghosted"].y) == pytest.approx(-min(plane["ghosted"].y))
    S, outline = spectra.symmetric_line(picture, patch).data
    assert (sum(S.y), sum(outline.y)) == (pytest.approx(100, abs=0.1), pytest.approx(100, abs=0.1))
    assert [trace.name for trace in spectra.rotation_rates(picture, patch).data] == ["A", "LinearPatch: none"]
    alone = spectra.rotation_rates(patch)
    assert not alone.data
    assert "no rotation" in alone.layout.annotations[0].text


def test_far_outliers_do_not_squeeze_the_spectra_and_are_counted(found):
    picture = portrait(found)
    assert spectra.span(picture.symmetric)[0] < picture.symmetric.min()
    far = dataclasses.replace(picture, symmetric=np.append(900.0, picture.symmetric))
    assert spectra.span(far.symmetric)[1] < 10
    figure = spectra.symmetric_line(far)
    assert [note.text for note in figure.layout.annotations] == ["1 beyond the picture"]
    assert not spectra.symmetric_line(picture).layout.annotations
    assert spectra.span([1.0, 1.0]) == [0.9, 1.1]


def test_the_curve_of_ranks_stands_below_the_singular_values_where_it_is_known(found):
    picture = portrait(found)
    singular, errors = spectra.singular_values(picture).data
    assert singular.x[0] == 1
    assert (errors.yaxis, errors.x[0], errors.y[0], errors.x[-1]) == ("y2", 0, 1, 64)
    assert errors.y[-1] == pytest.approx(found.error_by_rank[-1], rel=1e-3)
    assert len(spectra.singular_values(portrait(decomposition("linearpatch", "14-18"))).data) == 1


def test_sinks_are_marked_where_a_norm_is_ten_times_its_states_median():
    found = similarity()
    traces = {trace.name: trace for trace in norm_curve(found, REMOVED).data}
    assert list(traces)[:2] == ["state 14, before the gap", "state 19, after it"]
    assert list(traces["sink: at least 10 × its state\'s median"].x) == [0]
    mask = found.sinks()
    assert mask[12:, 0].all()
    assert not mask[:12].any()
    assert not mask[:, 1:].any()
    calm = dataclasses.replace(found, norms=np.ones_like(found.norms))
    assert not any("sink" in trace.name for trace in norm_curve(calm, RemovedBlocks()).data)
    assert not dataclasses.replace(found, norms=np.zeros_like(found.norms)).sinks().any()


def test_each_of_two_cosines_marks_the_run_it_would_choose():
    found = similarity()
    figure = two_cosines(found, 6)
    starts = np.arange(30 - 6 + 1)
    for line, mark, values in ((figure.data[0], figure.data[1], found.cosine),
                               (figure.data[2], figure.data[3], found.flattened)):
        over = [values[start, start + 6] for start in starts]
        np.testing.assert_allclose(line.y, over, atol=1e-5)
        assert mark.x[0] == int(np.argmax(over))
        assert line.name.endswith(f" picks {mark.x[0]}–{mark.x[0] + 5}")
    assert figure.data[1].x != figure.data[3].x, "case 17: the sink owns the flattened one"
