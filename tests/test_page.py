"""The page without a browser: it is built without warnings, has no public endpoints, and its handlers translate."""

import asyncio
import json
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
from fake_run import facts, make_run, outlook, similarity, take

from analysis import names, numbers, settings, tables
from analysis.limits import SHARED
from analysis.page import DRAWN, build_page, look_and_feel
from analysis.panels import PANELS, layer_map, parts, status
from analysis.settings import DEFAULT, FIELDS, experiment_from, values_of
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.progress import Note, Progress, drain
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, MethodResult, Protocol, Residual, Run

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def page():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return build_page(make_run(pace=0.001, steps=2), facts, take=take, outlook=outlook)


def live(page):
    return next(fn.fn for fn in page.fns.values() if fn.name == "start").__self__


def values(**changes):
    chosen = values_of(DEFAULT) | changes
    return [chosen[name] for name in FIELDS]


def forms(page):
    return next(fn.fn for fn in page.fns.values() if fn.name == "describe").__self__


def opening(page):
    return next(fn.fn for fn in page.fns.values() if fn.name == "near").__self__


def request(visitor="v"):
    return SimpleNamespace(session_hash=visitor)


def whole_run(page, visitor="v", **changes):
    """What a run leaves on the page: the updates of all its handlers, the latest of each component."""

    async def watch():
        handlers = live(page)
        shown = [handlers.start(request(visitor), *values(**changes))]
        shown += [update async for update in handlers.follow(request(visitor))]
        for draw in (*map(handlers.drawing, DRAWN), handlers.finish):
            update = await draw(request(visitor))
            shown += [] if update == gr.skip() else [update]
        return shown

    latest, updates = {}, asyncio.run(watch())
    if live(page).record(request(visitor)) is not None:  # what a browser asks for once the panels are near
        near = SimpleNamespace(panels=list(PANELS))
        updates.append(opening(page).near(near, request(visitor)))
    for update in updates:
        latest |= {} if update == gr.skip() else {part: value for part, value in update.items() if value != gr.skip()}
    return latest


def test_a_refused_run_leaves_the_page_alone(page):
    assert whole_run(page, "nobody", methods=[]).keys() == {live(page).layout.status.line}


def test_exactly_the_declared_endpoints_are_public(page):
    declared = {"/choose", "/compare", "/generate", "/similarity", "/decompose", "/export"}
    assert page.get_api_info()["named_endpoints"].keys() == declared
    assert page.get_api_info()["unnamed_endpoints"] == {}
    public = [fn.api_name for fn in page.fns.values() if fn.api_visibility != "private"]
    assert {f"/{name}" for name in public} == declared and len(public) == len(declared)


def test_analytics_are_off_and_fonts_are_the_systems(page):
    assert page.analytics_enabled is False
    options = look_and_feel()
    assert options["run_history"] is False and options["enable_monitoring"] is False
    assert not [font for font in options["theme"]._font_css] and not options["theme"]._stylesheets
    assert "http" not in (ROOT / "assets" / "app.css").read_text("utf-8")


def test_a_run_through_the_handler_fills_every_panel(page):
    shown = whole_run(page, max_new_tokens=4)
    panels = live(page).layout
    assert "Done" in shown[panels.status.line] and "self-check passed" in shown[panels.status.line]
    for picture in (panels.boundary.bars, *panels.similarity.pictures.values(),
                    *panels.decomposition.maps.values(), *panels.decomposition.spectra.values()):
        assert json.loads(shown[picture].plot)["data"]
    assert "0.620" in shown[panels.boundary.formula]
    assert shown[panels.generations.columns].count("<article") == 1 + len(DEFAULT.methods) == 6
    assert "8,176 tokens scored, no BOS" in shown[panels.scores.numbers]
    assert "&lt;b&gt;bold" in shown[panels.status.notices]
    assert shown[panels.controls.run].interactive is True and shown[panels.controls.stop].interactive is False


def test_another_operator_is_drawn_from_what_the_session_kept(page):
    assert whole_run(page, "w", max_new_tokens=2, methods=["ghosted", "ghosted-weighted"])
    panels = live(page).layout.decomposition
    other = next(fn.fn for fn in page.fns.values() if fn.name == "other")
    drawn = other(request("w"), "ghosted-weighted", "10", 0, 63, 0, 63)
    assert "ghosted, weighted" in drawn[panels.formula]
    live(page).leave(request("w"))
    assert other(request("w"), "ghosted-weighted", "10", 0, 63, 0, 63) == gr.skip()


def near(page, visitor):
    return opening(page).near(SimpleNamespace(panels=["decomposition"]), request(visitor))


def test_late_pictures_are_of_the_operator_that_was_picked_and_leave_the_picker_alone(page):
    assert whole_run(page, "late", max_new_tokens=2, methods=["ghosted", "ghosted-weighted"])
    panels = live(page).layout.decomposition
    other = next(fn.fn for fn in page.fns.values() if fn.name == "other")
    hero = near(page, "late")
    weighted = other(request("late"), "ghosted-weighted", "10", 0, 63, 0, 63)
    late = near(page, "late")
    assert all(isinstance(component, gr.Plot) for component in late)
    for name, plot in {**panels.maps, **panels.spectra}.items():
        assert late[plot].plot == weighted[plot].plot, name
    assert any(late[plot].plot != hero[plot].plot for plot in panels.maps.values())
    assert whole_run(page, "late", max_new_tokens=2, methods=["ghosted", "ghosted-weighted"])
    again = near(page, "late")
    assert all(again[plot].plot == hero[plot].plot for plot in panels.maps.values()), "a new run begins anew"


def test_pictures_that_a_pick_has_overtaken_are_not_sent(page, monkeypatch):
    assert whole_run(page, "fast", max_new_tokens=2, methods=["ghosted", "ghosted-weighted"])
    other = next(fn.fn for fn in page.fns.values() if fn.name == "other")
    show = live(page).show

    def slow(*asked, **options):
        other(request("fast"), "ghosted-weighted", "10", 0, 63, 0, 63)
        return show(*asked, **options)

    monkeypatch.setattr(live(page), "show", slow)
    assert near(page, "fast") == gr.skip()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"criterion": "manual", "remove": "16-12"}, "The range 16-12 runs backwards; write 12-16."),
        ({"criterion": "manual", "remove": "40-50"}, "Block 50 does not exist: this model has blocks 0 to 29."),
        ({"criterion": "manual", "remove": "0-29"}, "All 30 blocks would be removed; keep at least one."),
        ({"criterion": "manual", "remove": "a-b"}, "Cannot read 'a-b'"),
        ({"tokens": -5}, "tokens must be a whole number from 2"),
        ({"tokens": 10.5}, "tokens must be a whole number, not 10.5."),
        ({"tokens": None}, "tokens is empty"),
        ({"temperature": None}, "temperature is empty"),
        ({"methods": []}, "No method is chosen"),
        ({"model": ""}, "No model is chosen"),
        ({"criterion": "cosine", "count": 0}, "needs a count"),
    ],
)
def test_bad_input_is_one_sentence_and_the_page_stays_usable(page, changes, sentence):
    shown = whole_run(page, "bad", **changes)
    line = shown[live(page).layout.status.line]
    assert sentence.replace("'", "&#x27;") in line and "gl-failed" in line and "Traceback" not in line
    button = shown.get(live(page).layout.controls.run)
    assert button is None or button.interactive is True


def test_a_picture_that_cannot_be_drawn_leaves_the_buttons_right(monkeypatch, caplog):
    page = build_page(make_run(pace=0, steps=1), facts)
    monkeypatch.setattr("analysis.panels.boundary.boundary_bars", lambda methods: 1 / 0)
    shown = whole_run(page)
    assert shown[live(page).layout.controls.run].interactive is True
    assert "The panel boundary could not be drawn" in shown[live(page).layout.status.notices]
    assert json.loads(shown[live(page).layout.similarity.pictures["similarity"]].plot)["data"]


def test_a_criterion_writes_its_choice_into_the_map(page):
    shown = whole_run(page, "c", criterion="cosine", count=5, remove="1-2")
    panel = live(page).layout.layer_map
    assert shown[panel.remove] == "12-16" and shown[panel.first] == 12 and shown[panel.problem] == ""
    last = json.loads(shown[panel.map])
    assert last["data"]["left"], "the errors of all ranges come last, and leave the blocks alone"


def test_a_choice_is_told_with_its_runner_up_and_a_near_tie(page):
    panels = live(page).layout
    near = whole_run(page, "c", max_new_tokens=1)
    assert "removes blocks 10, 14–16, 22 (5 of 30), chosen by best (ours), a near tie." in near[panels.status.line]
    assert (
        "best (ours) removes blocks 10, 14–16, 22 (5 of 30), score 3.21 (lower is better); runner-up: 14–18, 3.21 "
        "(near tie)." in near[panels.status.notices]
    )
    clear = whole_run(page, "c", max_new_tokens=1, criterion="cosine")
    assert "runner-up: 10–14, 0.871." in clear[panels.status.notices] and "higher" in clear[panels.status.notices]
    alone = Choice("perplexity", "3", 1.0, False, None, False, ())
    assert tables.chosen(alone, 30).endswith("removes block 3 (1 of 30), score 1.00; there is no runner-up.")
    by_hand = whole_run(page, "c", max_new_tokens=1, criterion="manual", remove="14-18")
    assert "chosen by" not in by_hand[panels.status.line] and "runner-up" not in by_hand[panels.status.notices]


def test_what_a_choice_costs_stays_beside_its_progress_until_it_is_made():
    handlers = live(build_page(make_run(pace=0.03, steps=40), facts))

    async def lines():
        handlers.start(request("n"), *values(max_new_tokens=2))
        return [next(iter(update.values())) async for update in handlers.follow(request("n"))]

    said = [line for line in asyncio.run(lines()) if isinstance(line, str) and "gl-status" in line]
    scoring = [line for line in said if "Scoring ranges: " in line]
    assert scoring and all("450,560 more tokens" in line and " of 40, about " in line for line in scoring)
    assert not [line for line in said if "450,560" in line and re.search("Solving|Writing|Done", line)]
    assert "gl-done" in said[-1]


def test_a_note_is_a_status_line_of_its_own():
    assert "Best: &lt;i&gt;" in status.event_line(Note("best: <i>")) and "gl-busy" in status.event_line(Note("x"))
    assert "<i>" not in status.event_line(Progress("scoring", 1, 2), "<i>")


def test_removing_nothing_by_hand_runs_and_says_so(page):
    panels = live(page).layout
    shown = whole_run(page, "0", criterion="manual", remove="", max_new_tokens=1)
    assert "Done" in shown[panels.status.line] and "removes nothing (0 of 30)" in shown[panels.status.line]
    assert shown[panels.layer_map.remove] == "" and shown[panels.layer_map.first] is None
    assert "nothing to repair" in shown[panels.boundary.bars].plot
    assert "Nothing is removed" in shown[panels.decomposition.formula]


def test_a_repair_that_is_not_linear_in_the_state_is_not_offered_as_an_operator(page):
    panel = live(page).layout.decomposition
    both = whole_run(page, "d", max_new_tokens=1, methods=["none", "ghosted", "best"])
    assert [name for _, name in both[panel.method].choices] == ["ghosted"] and "For ghosted," in both[panel.formula]
    all_of_them = whole_run(page, "d", max_new_tokens=1)
    assert all_of_them[panel.method].value == "ghosted" and len(all_of_them[panel.method].choices) == 2
    alone = whole_run(page, "d", max_new_tokens=1, methods=["none", "best"])
    assert "best: no $W^*$, $S$ or $A$, as the repair is not linear in $x$ alone" in alone[panel.formula]
    assert alone[panel.maps["W"]] is None, "the last run's picture must not stand beside another run's numbers"
    several = whole_run(page, "d", max_new_tokens=1, methods=["replaceme", "normalised", "best"])
    assert "ReplaceMe; ghosted, normalised; best: no" in several[panel.formula]
    plain = whole_run(page, "d", max_new_tokens=1, methods=["none"])
    assert "No repair was fitted" in plain[panel.formula]


def test_the_map_carries_the_cosine_to_four_digits():
    import base64

    found = similarity()
    sent = json.loads(layer_map.map_value(30, RemovedBlocks(), found))
    read = np.frombuffer(base64.b64decode(sent["data"]["cosine"]), "<i2").reshape(31, 31) / 10_000
    assert np.abs(read - found.cosine).max() <= 5.1e-5


def test_another_model_resizes_the_map_and_drops_a_range_that_does_not_fit(page):
    panels = live(page).layout
    small = forms(page).describe("small", 16384, "14-18")
    assert json.loads(small[panels.layer_map.map]) == {"blocks": 12, "gaps": [], "active": 0, "data": None}
    facts_line = small[panels.controls.facts]
    assert "135 M parameters; a run needs about 823 MB of the" in facts_line and "nothing to fetch" in facts_line
    assert "one pass over 16,384 tokens takes about 8 s" in facts_line
    kept = forms(page).describe("small", 16384, "2-3")
    assert json.loads(kept[panels.layer_map.map])["gaps"] == [[2, 3]]
    missing = forms(page).describe("missing", 16384, "")
    assert list(missing) == [panels.controls.facts] and "There is no model" in missing[panels.controls.facts]


def test_paths_are_refused_where_others_can_reach_the_page(tmp_path):
    page = build_page(make_run(pace=0, steps=1), facts, limits=SHARED)
    secret = tmp_path / "secret.txt"
    secret.write_text("words " * 10)
    for changes in ({"text": str(secret)}, {"model": str(tmp_path)}, {"model": "../weights.gguf"}):
        last = whole_run(page, **changes)
        assert "of the server cannot be read" in last[live(page).layout.status.line]
    chosen = forms(page).upload(str(secret), request())
    assert chosen.value == str(secret) and ("secret.txt", str(secret)) in chosen.choices
    last = whole_run(page, text=str(secret), max_new_tokens=1)
    assert "Done" in last[live(page).layout.status.line]
    other = whole_run(page, "other", text=str(secret))
    assert "upload the text" in other[live(page).layout.status.line]


def test_everything_from_outside_is_escaped():
    run = Run(Experiment(), blocks=4, warnings=["<i>w</i>"], methods=[MethodResult("none", not_defined="<u>no</u>")],
              protocols={"t": Protocol("<b>t</b>", "", 1, 1, 1, 1, True, "float32", False)})
    shown = tables.notices(run) + tables.numbers_table(run) + tables.protocol_lines(run)
    assert not [tag for tag in ("<i>w", "<u>", "<b>t") if tag in shown]


def test_verdicts_name_what_is_worse_than_no_repair():
    run = Run(Experiment(), methods=[MethodResult("none", Residual(1.0, 1.0, 1.0)),
                                     MethodResult("linearpatch", Residual(2.9, 3.08, 0.91)),
                                     MethodResult("replaceme", Residual(0.6, 0.7, 0.7))])
    (said,) = tables.verdicts(run)
    assert "LinearPatch (3.08, median token 0.910)" in said and "ReplaceMe" not in said


def test_self_check_is_shown_only_once_known():
    run = Run(Experiment())
    assert tables.self_check(run) == ""
    run.self_check = False
    assert "failed" in tables.self_check(run)


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.62345, "0.623"), (55.64, "55.6"), (1230.4, "1,230"), (32758, "32,800"), (0.0, "0"), (1, "1.00"),
     (9.999, "10.0"),
     (0.000012345, "1.23e-05"), (-0.5, "-0.500"), (float("nan"), "–"), (None, "–"), (0.00123, "0.00123")],
)
def test_three_significant_digits(value, said):
    assert numbers.three(value) == said


def test_the_experiment_is_what_the_controls_say():
    by_hand = values(criterion="manual", remove=" 12 – 16 ", tokens=8192.0)
    chosen = experiment_from(dict(zip(FIELDS, by_hand, strict=True)))
    assert chosen.remove == "12-16" and chosen.tokens == 8192 and isinstance(chosen.tokens, int)
    by_cosine = experiment_from(dict(zip(FIELDS, values(criterion="cosine", remove="nonsense"), strict=True)))
    assert by_cosine.remove == "" and by_cosine.count == 5
    with pytest.raises(InputError, match="whole number"):
        experiment_from(dict(zip(FIELDS, values(window="x"), strict=True)))


def test_defaults_are_the_ones_promised():
    assert (DEFAULT.model, DEFAULT.criterion, DEFAULT.count) == ("smollm2-135m", "best", 5)
    assert "best" in DEFAULT.methods and DEFAULT.remove == ""
    assert (DEFAULT.text, DEFAULT.tokens) == ("python-docs", 16384)
    assert DEFAULT.methods == ("none", "linearpatch", "replaceme", "ghosted", "best")
    assert settings.PROMPT and names.method_label("original") == "original"


def test_figures_reach_the_page_without_plotlys_mode_bar():
    from analysis.figures.similarity import similarity_map

    data = parts.drawn(similarity_map(similarity(), RemovedBlocks()))
    assert json.loads(data.plot)["config"]["displayModeBar"] is False and data.type == "plotly"


def test_the_fake_run_keeps_the_contract_of_the_real_one():
    run = drain(make_run(pace=0, steps=1)(Experiment(remove="3", prompt="x", max_new_tokens=2)))
    assert [c.method for c in run.columns] == ["original", *run.experiment.methods] and run.similarity.blocks == 30


def test_every_variable_of_the_style_sheets_is_defined_somewhere():
    sheets = "\n".join(sheet.read_text("utf-8") for sheet in (ROOT / "assets").glob("*.css"))
    set_elsewhere = {"--gl-share", "--gl-tokens"}  # by the page itself, as inline styles
    used = set(re.findall(r"var\((--gl-[\w-]+)\)", sheets))
    assert used <= set(re.findall(r"(--gl-[\w-]+)\s*:", sheets)) | set_elsewhere
