"""The panels of the boundary on the page: the ladder, the text strip, the curves, and what is said beside them."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from fake_run import NASTY, method_result, profile

from analysis.figures import profile as figures
from analysis.figures.boundary import BEYOND, LADDER, boundary_bars, laddered
from analysis.figures.canvas import spans_decades
from analysis.figures.downstream import downstream_cosine, downstream_lines
from analysis.names import method_label
from analysis.panels import boundary, components, downstream, tokens
from analysis.record import Record
from analysis.strip import SINK, STEPS, sinks, tint, token_strip
from ghosted import operators
from ghosted.experiment import Experiment
from ghosted.removed import RemovedBlocks
from ghosted.results import BoundaryProfile, Downstream, MethodProfile, MethodResult, Residual, Run, SizePoint

GAP = range(14, 19)
NAMES = ("none", "linearpatch", "replaceme", "ghosted", "best")


def results(*names):
    return [method_result(name, GAP) for name in names or NAMES]


def record(remove="14-18", names=NAMES, source="live", **changes):
    removed = RemovedBlocks.parse(remove, 30)
    gap = removed.gaps[0] if removed.gaps else range(0)
    run = Run(Experiment(remove=remove), blocks=30, width=64, removed=removed, methods=results(*names),
              profile=profile(gap, names) if gap else None, dense_perplexity={"python-docs": 22.7})  # fmt: skip
    return Record(replace(run, **changes), {}, source, "")



def panel_of(module):
    """A panel whose components are plain objects, told apart by identity."""
    names = [name for name, *_ in module.PICTURES]
    if module is tokens:
        return tokens.TokensPanel("strip", "formula", {n: f"plot {n}" for n in names}, {n: f"said {n}" for n in names})
    return downstream.DownstreamPanel({n: f"plot {n}" for n in names}, "formula")


class Tokens(HTMLParser):
    """Reads the strip back: its pieces with their classes, and every tag and attribute in the markup."""

    def __init__(self, markup):
        super().__init__()
        self.pieces, self.inside, self.tags, self.attributes = [], False, [], []
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if ("class", "gl-strip") in attrs:
            self.inside = True
        elif self.inside and tag == "span":
            self.pieces.append([dict(attrs)["class"].split(), ""])

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "p"

    def handle_data(self, data):
        if self.inside:
            self.pieces[-1][1] += data

    @property
    def numbers(self):
        return json.loads(dict(self.attributes)["data-numbers"])


# The ladder


def test_the_ladder_goes_from_the_least_free_repair_to_the_freest_and_then_beyond_the_state():
    names = ["best", "ghosted", "symmetric", "none", "replaceme", "linearpatch", "new", "scalar"]
    ordered, linear = laddered([MethodResult(name) for name in names])
    assert [m.method for m in ordered] == ["none", "scalar", "linearpatch", "symmetric", "ghosted", "replaceme", "best",
                                           "new"]  # fmt: skip
    assert linear == 5
    figure = boundary_bars(results("replaceme", "ghosted", "none"))
    assert list(figure.data[0].y) == ["plain pruning", "ghosted", "ReplaceMe"]
    (line,) = [shape for shape in figure.layout.shapes if shape.y0 == shape.y1]
    assert line.y0 == 1.5 and line.line.dash == "dot"
    assert len(boundary_bars(results("ghosted", "none")).layout.shapes) == 1


def test_the_ladder_knows_every_method_and_its_statistics_say_which_are_linear():
    linear = {"state", "state_weighted", "ratios"}
    assert {*LADDER, *BEYOND} == set(operators.methods())
    for name, module in operators.methods().items():
        assert (name in LADDER) == (linear >= module.NEEDS), name


def test_all_three_numbers_are_readable_beside_each_name():
    figure = boundary_bars(results())
    ticks = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    assert ticks["ghosted"] == "ghosted · C²<br><b>0.620</b> | 0.580 | 0.630"
    assert ticks["plain pruning"] == "plain pruning<br><b>1.00</b> | 1.00 | 1.00"


def test_one_very_wrong_method_does_not_press_the_others_together():
    near = boundary_bars(results("none", "ghosted"))
    assert len(near.data) == 3 and 1 < near.layout.xaxis.range[1] < 1.1
    far = boundary_bars(results("none", "linearpatch", "ghosted"))
    low, edge = far.layout.xaxis.range
    assert low == 0 and 1.2 <= edge < 1.7 and max(far.data[0].x) > 3
    (cut,) = [trace for trace in far.data if trace.name == "beyond the axis"]
    assert list(cut.y) == ["LinearPatch"] and cut.x[0] < edge
    assert list(cut.customdata[0]) == ["3.08", "2.90", "0.910"]


def test_with_several_gaps_the_ladder_says_which_boundary_it_is():
    panel = SimpleNamespace(numbers="numbers", bars="bars", formula="formula")
    assert "last boundary" not in boundary.show(panel, record())["formula"]
    several = boundary.show(panel, record("3,14-18", ("none", "low-rank")))["formula"]
    assert "With 2 gaps: the last boundary" in several


# The text


def test_the_strip_shows_the_text_piece_by_piece_tinted_by_the_chosen_repair():
    found = profile(GAP, NAMES)
    read = Tokens(token_strip(found, "ghosted"))
    assert [text for _, text in read.pieces] == list(found.pieces) and len(read.pieces) == 512
    for at, (classes, piece) in enumerate(read.pieces):
        step = tint(float(f"{found.methods['ghosted'].tokens[at]:.3g}"))
        assert f"gl-e{step}" in classes
        assert ("gl-where-part" in classes) == (piece == "") and ("gl-break" in classes) == (piece == "\n")
        assert ("gl-sink" in classes) == (at == 0)
    assert np.allclose(read.numbers["ratios"][3], found.methods["ghosted"].tokens, rtol=6e-3)
    assert np.allclose(read.numbers["norms"], found.norms, rtol=6e-3) and read.numbers["sinks"] == [0]
    assert read.numbers["window"] == 512 and read.numbers["steps"] == list(STEPS)
    assert len(token_strip(found, "ghosted")) < 90_000


def test_the_strip_of_short_windows_marks_where_each_opens():
    read = Tokens(token_strip(profile(GAP, NAMES, window=64), "none"))
    opens = [at for at, (classes, _) in enumerate(read.pieces) if "gl-opens" in classes]
    assert opens == list(range(64, 512, 64))


def test_text_and_names_in_the_strip_are_inert():
    found = profile(GAP, NAMES, NASTY)
    foreign = replace(found, methods=found.methods | {"<img src=x onerror=alert(9)>": found.methods["none"]})
    for shown in (found, foreign):
        markup = token_strip(shown, "ghosted")
        read = Tokens(markup)
        assert [text for _, text in read.pieces] == list(found.pieces)
        assert not {"img", "script"} & set(read.tags)
        assert not [name for name, _ in read.attributes if name.startswith("on")]
        assert "<img" not in markup and "</script" not in markup
    assert html.escape(NASTY[0]) in token_strip(found, "ghosted")


def test_the_tint_grows_with_the_error_and_one_is_a_step_of_its_own():
    assert [tint(x) for x in (0.0, 0.39, 0.4, 0.84, 0.999, 1.0, 1.99, 50.0)] == [0, 0, 1, 3, 4, 5, 5, 6]
    assert tint(float("nan")) == 0 and 1.0 in STEPS


def test_the_picker_starts_with_the_shown_repair_and_offers_all():
    markup = token_strip(profile(GAP, NAMES), "best")
    assert re.findall(r"value='(\d)'( checked)?>", markup) == [*((str(at), "") for at in range(4)), ("4", " checked")]
    for name in NAMES:
        assert f"</i>{html.escape(method_label(name))}</label>" in markup


# The curves


def test_the_curves_carry_the_numbers_of_every_method():
    found = profile(GAP, NAMES)
    for figure in (figures.position_lines(found), figures.channel_lines(found)):
        assert [trace.name for trace in figure.data] == [method_label(name) for name in NAMES]
        assert all(len(trace.x) == len(trace.y) == len(trace.customdata) <= 96 for trace in figure.data)
        assert len({(trace.line.color, trace.line.dash) for trace in figure.data}) == len(NAMES)
    positions = figures.position_lines(found)
    assert positions.data[3].x[0] == 0 and positions.data[3].customdata[0] == "position 0"
    assert positions.data[3].y[1] == pytest.approx(found.methods["ghosted"].positions[1], rel=1e-3)
    assert positions.layout.yaxis.type == "log"  # the sink leaves 90 times the error
    calm = figures.position_lines(replace(found, methods={"ghosted": found.methods["ghosted"]}))
    assert calm.layout.yaxis.type is None


def test_channels_are_ordered_by_how_much_they_change_and_grouped_by_their_joint_error():
    rng = np.random.default_rng(1)
    change, relative = rng.random(500).astype(np.float32), rng.random(500).astype(np.float32)
    order, starts = figures.channel_groups(change)
    assert (np.diff(change[order]) <= 0).all() and starts[0] == 0 and len(starts) <= figures.MOST_GROUPS
    assert (np.diff(starts) > 0).all() and (starts[:5] == np.arange(5)).all()
    stops = [*starts[1:], 500]
    for value, low, high in zip(figures.grouped(relative, change), starts, stops, strict=True):
        of = order[low:high]
        expected = np.sqrt(((relative[of] * change[of]) ** 2).sum() / (change[of] ** 2).sum())
        assert value == pytest.approx(expected, rel=1e-5)
    assert np.isnan(figures.grouped(np.full(4, np.nan, np.float32), np.zeros(4, np.float32))).all()
    assert len(figures.channel_groups(np.ones(3))[1]) == 3


@pytest.mark.parametrize("width", [1, 2, 64, 576, 2048, 8192])
def test_channel_groups_cover_every_channel_once(width):
    _, starts = figures.channel_groups(np.arange(width, 0, -1.0))
    assert starts[0] == 0 and (np.diff(starts) > 0).all() and starts[-1] < width and len(starts) <= 96


def test_the_calibration_curve_has_the_fit_on_all_windows_last():
    figure = figures.size_lines(profile(GAP, NAMES))
    held_out, median = figure.data
    assert list(held_out.x) == [1024, 2048, 4096, 8192, 16_384] and held_out.y[-1] == pytest.approx(0.65)
    assert median.line.dash == "dot" and median.name == "ghosted, median token"
    assert list(figure.layout.xaxis.ticktext) == ["1k", "2k", "4k", "8k", "16k"]
    odd = replace(profile(GAP, NAMES), sizes={"ghosted": (SizePoint(100, 1.0, 1.0), SizePoint(200, 0.9, 0.9))})
    assert list(figures.size_lines(odd).layout.xaxis.ticktext) == ["100", "200"]


def test_every_curve_is_small_and_plain_at_width_2048():
    found = profile(GAP, tuple(operators.methods()), width=2048)
    drawn = [figures.position_lines(found), figures.channel_lines(found), figures.size_lines(found),
             downstream_lines(results(*operators.methods())), downstream_cosine(results(*operators.methods())),
             boundary_bars(results(*operators.methods()))]  # fmt: skip
    for figure in drawn:
        data = json.loads(figure.to_json())
        assert len(figure.to_json()) < 400_000 and data["layout"]["height"] >= 280
        assert {trace["type"] for trace in data["data"]} <= {"scatter", "bar"}
        assert data["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)" and "title" not in data["layout"]


def test_a_logarithmic_axis_only_where_it_is_needed():
    assert spans_decades([0.01, 1.0]) and not spans_decades([0.1, 1.0])
    assert not spans_decades([0.0, 1.0]) and not spans_decades([]) and not spans_decades([float("nan"), 1.0])
    ruined = [MethodResult("none", downstream=[Downstream(19, 0.01, 0.9), Downstream(20, 2.0, 0.1)])]
    assert downstream_lines(ruined).layout.yaxis.type == "log"
    assert downstream_lines(results()).layout.yaxis.type is None


# What is said


def test_the_panel_puts_todays_numbers_into_its_formulas():
    shown = tokens.show(panel_of(tokens), record())
    assert "gl-strip" in shown["strip"]
    assert all(json.loads(shown[f"plot {name}"].plot)["data"] for name, *_ in tokens.PICTURES)
    assert "For ghosted the median of these 512 tokens" in shown["formula"] and "gaps" not in shown["formula"]
    assert "of the one sink among them" in shown["formula"] and "$92.4$ (LinearPatch)" in shown["formula"]
    assert "over 16 windows" in shown["said positions"] and "$0.400$ at the first" in shown["said positions"]
    assert "which the removed blocks change most" in shown["said channels"]
    assert "from 1,024 tokens" in shown["said sizes"] and "$256$ tokens per channel" in shown["said sizes"]


def test_the_panel_says_which_gap_it_is_about():
    said = tokens.show(panel_of(tokens), record("3-5,14-18"))["formula"]
    assert "blocks 3–5, the first of 2 gaps" in said and "the last boundary" in said


def test_without_ghosted_the_last_repair_tints_and_a_sentence_stands_for_the_curve():
    shown = tokens.show(panel_of(tokens), record(names=("none", "linearpatch")))
    assert "value='1' checked" in shown["strip"] and shown["plot sizes"] is None
    assert "Choose the method ghosted" in shown["said sizes"] and "For LinearPatch" in shown["formula"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"remove": ""}, "Nothing is removed"),
        ({"profile": None}, "Press Run: held-out text"),
        ({"profile": None, "source": "preview"}, "this preview has not read"),
    ],
)
def test_without_a_profile_the_panel_says_why(changes, sentence):
    shown = tokens.show(panel_of(tokens), record(**changes))
    assert sentence in shown["strip"] and "gl-where" not in shown["strip"]
    assert {shown[f"plot {name}"] for name, *_ in tokens.PICTURES} == {None}
    assert set(shown) == set(components(panel_of(tokens)))


def test_where_nothing_is_to_be_repaired_the_panel_still_draws():
    nothing = np.full(3, np.nan, np.float32)
    found = BoundaryProfile("14-18", 3, 1, ("a", "b", "c"), np.ones(3, np.float32), np.zeros(3, np.float32),
                            np.arange(3), {"none": MethodProfile(nothing, nothing, nothing)}, {}, "None.")
    shown = tokens.show(panel_of(tokens), record(profile=found))
    assert "change no channel" in shown["said channels"] and "–" in shown["formula"] and "NaN" not in shown["strip"]
    assert set(shown) == set(components(panel_of(tokens))) and not sinks(found).any() and SINK == 10


def test_further_down_a_small_error_with_a_worse_model_is_said():
    shown = downstream.show(panel_of(downstream), record())
    assert [len(json.loads(shown[f"plot {n}"].plot)["data"]) for n, *_ in downstream.PICTURES] == [5, 5]
    assert "for ghosted. A small error is not all: ghosted (error at the boundary $0.620$" in shown["formula"]
    assert "perplexity $28.4$)" in shown["formula"]
    agreed = downstream.numbers(record(names=("none", "ghosted")).run)
    assert agreed.endswith("for ghosted.") and "state 30, which enters the final norm" in agreed


def test_further_down_nothing_measured_is_the_empty_state():
    empty = [MethodResult("none", Residual(1.0, 1.0, 1.0))]
    shown = downstream.show(panel_of(downstream), record(methods=empty))
    assert shown["plot error"] is None and shown["plot cosine"] is None and "state" in shown["formula"]
