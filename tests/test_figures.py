"""Figures as JSON: what plotly.js 3.3.1 gets to see, how large it is, and that it says what the numbers say."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from fake_run import make_run, similarity

from analysis import palette
from analysis.figures import spectra
from analysis.figures.boundary import boundary_bars
from analysis.figures.canvas import averaged, short
from analysis.figures.downstream import downstream_lines
from analysis.figures.operator import operator_maps, portrait
from analysis.figures.similarity import angular, influence_curve, norm_curve, similarity_map, two_cosines
from ghosted import operators
from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.removed import RemovedBlocks
from ghosted.results import MethodResult, Residual

REMOVED = RemovedBlocks.parse("14-18")
CSS = (Path(__file__).parents[1] / "assets" / "app.css").read_text("utf-8")


@pytest.fixture(scope="module")
def run():
    return drain(make_run(pace=0, steps=1)(Experiment(remove="14-18", prompt="x", max_new_tokens=2)))


@pytest.fixture(scope="module")
def figures(run):
    picture, patch = (portrait(run.decompositions[name]) for name in ("ghosted", "linearpatch"))
    drawn = [similarity_map(run.similarity, REMOVED), influence_curve(run.similarity, REMOVED),
             norm_curve(run.similarity, REMOVED), two_cosines(run.similarity, 5),
             boundary_bars(run.methods), downstream_lines(run.methods), *operator_maps(picture).values()]
    drawn += [draw(picture, patch) for draw in (spectra.eigenvalue_plane, spectra.symmetric_line,
                                                spectra.rotation_rates, spectra.singular_values)]
    return [json.loads(figure.to_json()) for figure in drawn]


def test_only_trace_types_that_the_bundled_plotly_knows(figures):
    assert {trace["type"] for figure in figures for trace in figure["data"]} == {"heatmap", "scatter", "bar"}


def test_transparent_untitled_and_of_explicit_height(figures):
    for figure in figures:
        layout = figure["layout"]
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
        assert "title" not in layout
        assert layout["height"] > 200


def test_averaging_keeps_the_mean_and_handles_a_ragged_edge():
    matrix = np.arange(300.0 * 300).reshape(300, 300)
    small = averaged(matrix, 128)
    assert small.shape == (100, 100)
    assert small[0, 0] == pytest.approx(matrix[:3, :3].mean())
    ragged = averaged(matrix[:299, :299], 128)
    assert ragged[-1, -1] == pytest.approx(matrix[297:299, 297:299].mean())


def test_bars_show_calibration_held_out_and_the_median(run):
    figure = boundary_bars(run.methods)
    by_name = {trace.name: trace for trace in figure.data}
    ghosted = list(by_name["held-out"].y).index("ghosted")
    left = run.method("ghosted").residual
    assert by_name["held-out"].x[ghosted] == left.held_out
    assert by_name["calibration"].x[ghosted] == left.calibration
    assert by_name["median token"].x[ghosted] == left.median
    assert by_name["held-out"].marker.color[ghosted] == palette.look("ghosted").colour


def test_bars_say_where_there_is_nothing_to_draw():
    figure = boundary_bars([MethodResult("none", Residual(None, None, None)),
                            MethodResult("replaceme", not_defined="It needs a block before the gap.")])
    assert [note.text for note in figure.layout.annotations] == ["nothing to repair", "not defined here"]
    assert [note.text for note in boundary_bars([MethodResult("none")]).layout.annotations] == ["nothing to repair"]


def test_the_second_line_of_the_curve_is_the_cosine_criterion():
    found = similarity()
    runs = influence_curve(found, REMOVED).data[1]
    assert len(runs.x) == 30 - 5 + 1
    assert runs.y[14] == pytest.approx(1 - found.cosine[14, 19], rel=1e-3)


def test_the_map_is_coloured_by_angle_and_tells_the_cosine():
    found = similarity()
    heat = similarity_map(found, REMOVED).data[0]
    assert heat.customdata[14][19] == pytest.approx(found.cosine[14, 19], abs=1e-4)
    assert heat.z[14][19] == pytest.approx(2 / np.pi * np.arcsin(found.cosine[14, 19]), abs=1e-4)
    assert angular(np.array([-1.0, 0.0, 1.0])).tolist() == [-1, 0, 1]


def test_removing_nothing_draws_too():
    assert not similarity_map(similarity(), RemovedBlocks()).layout.shapes
    assert len(influence_curve(similarity(), RemovedBlocks()).data) == 1


def test_short_keeps_four_digits():
    assert short([0.0, 123456.0, -0.00123456]) == [0.0, 123500.0, -0.001235]


def test_the_diverging_scale_is_centred_and_the_style_sheet_repeats_the_palette():
    at = [position for position, _ in palette.DIVERGING]
    assert at == [pytest.approx(1 - p) for p in reversed(at)]
    for method, look in palette.LOOKS.items():
        if method != "none":
            assert re.search(rf"\.gl-m-{method} {{ --gl-method: {look.colour}; }}", CSS), method
        if method not in ("none", "original"):
            assert f'#gl-methods label:has([name="{method}"]) {{ --gl-method: {look.colour}; }}' in CSS, method


def test_every_method_has_a_look_of_its_own():
    assert set(palette.LOOKS) == {"original", *operators.methods()}


def contrast(one: str, two: str) -> float:
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_colour_stands_out_on_both_pages():
    colours = [look.colour for name, look in palette.LOOKS.items() if name != "none"]
    colours += [look.colour for look in palette.SPARE] + [palette.TEAL, palette.ORANGE]
    for colour in colours:
        for page in ("#ffffff", "#1b1b20"):
            assert contrast(colour, page) >= 2.9, (colour, page)


def test_no_two_methods_differ_by_colour_alone():
    looks = list(palette.LOOKS.values())
    assert len({(look.dash, look.symbol) for look in looks}) >= len(looks) - 1
    assert not {(look.dash, look.symbol) for look in looks} & {(look.dash, look.symbol) for look in palette.SPARE}
    assert palette.look("ghosted").dash == "solid"
    assert palette.look("made-up") == palette.look("made-up")
