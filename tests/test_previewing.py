"""Another range between two runs: numbers from states at hand, marks on what waits, the run when it is back."""

import asyncio
import dataclasses
import json
from types import SimpleNamespace

import gradio as gr
import pytest
from fake_run import LEFT, decomposition, facts, make_run, method_result
from test_page import live, values, whole_run

from analysis.page import build_page
from analysis.panels import layer_map
from ghosted.errors import Cancelled
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import Run


class States:
    """A stand-in for ghosted.preview.Preview that counts what it is asked."""

    def __init__(self, experiment, asked):
        self.experiment, self.asked = experiment, asked

    def quick(self, removed, methods, cancel=None):
        return self._run("quick", removed, methods, cancel)

    def rest(self, removed, methods, cancel=None):
        return self._run("rest", removed, methods, cancel)

    def warm(self, methods, cancel=None):
        self.asked.append("warm")

    def prefetch(self, removed, methods, cancel=None):
        self.asked.append("prefetch")
        if cancel.is_set:
            raise Cancelled("Stopped.")

    def _run(self, step, removed, methods, cancel):
        self.asked.append(step)
        gap = removed.gaps[0]
        run = Run(dataclasses.replace(self.experiment), "model", 30, 64, "float32", removed)
        run.methods = [method_result(name, gap) for name in methods if name in LEFT]
        run.decompositions = {"ghosted": decomposition("ghosted", gap_name(gap))}
        return run


@pytest.fixture(scope="module")
def asked():
    return []


@pytest.fixture(scope="module")
def page(asked):
    return build_page(make_run(pace=0, steps=1), facts, first=lambda: None,
                      preview=lambda experiment: States(experiment, asked))


def handlers(page):
    return next(fn.fn for fn in page.fns.values() if fn.name == "quick").__self__


def visitor(name):
    return SimpleNamespace(session_hash=name)


BY_HAND = {"criterion": "manual", "count": 5, "methods": ["none", "ghosted", "linearpatch"], "max_new_tokens": 2}


def marks(update, page):
    return json.loads(update[live(page).layout.bus])


def test_numbers_come_first_then_the_pictures_and_what_waits_is_marked(page, asked):
    whole_run(page, "a", remove="12-16", **BY_HAND)
    asked.clear()
    boundary, now = live(page).layout.boundary, values(remove="13-17", **BY_HAND)
    quick = asyncio.run(handlers(page).quick(visitor("a"), *now))
    assert "data-removed='13-17'" in quick[boundary.numbers] and boundary.bars not in quick
    assert "ghosted <b>0.620</b>, A " in quick[boundary.numbers]
    assert marks(quick, page)["preview"] == ["boundary"] and "decomposition" in marks(quick, page)["stale"]
    bars = asyncio.run(handlers(page).bars(visitor("a")))
    assert json.loads(bars[boundary.bars].plot)["data"]
    rest = asyncio.run(handlers(page).rest(visitor("a"), *now))
    assert live(page).layout.decomposition.formula in rest and "blocks 13-17" in str(rest.values())
    assert set(marks(rest, page)["preview"]) == {"boundary", "decomposition"}
    assert set(marks(rest, page)["stale"]) == {"generations", "scores", "downstream", "tokens"}
    assert asked == ["quick", "rest"]


def test_the_rest_of_an_earlier_range_that_comes_late_is_not_answered(page, asked):
    whole_run(page, "late", remove="12-16", **BY_HAND)
    asked.clear()
    earlier, now = (values(remove=blocks, **BY_HAND) for blocks in ("13-17", "13-18"))
    for given in (earlier, now):
        asyncio.run(handlers(page).quick(visitor("late"), *given))
    assert asyncio.run(handlers(page).rest(visitor("late"), *earlier)) == gr.skip()
    assert asked == ["quick", "quick"] and live(page).sessions.of("late").preview.run.experiment.remove == "13-18"
    assert asyncio.run(handlers(page).rest(visitor("late"), *now)) != gr.skip()


def test_what_is_shown_already_is_not_computed_again_and_the_run_comes_back(page, asked):
    whole_run(page, "b", remove="12-16", **BY_HAND)
    asked.clear()
    for _ in range(2):
        asyncio.run(handlers(page).quick(visitor("b"), *values(remove="3-4", **BY_HAND)))
    assert asked == ["quick"]
    back = asyncio.run(handlers(page).quick(visitor("b"), *values(remove="12-16", **BY_HAND)))
    assert "data-removed='12-16'" in back[live(page).layout.boundary.numbers] and asked == ["quick"]
    assert (marks(back, page)["stale"], marks(back, page)["preview"]) == ({}, [])


def test_a_pick_on_the_map_is_answered_before_the_forms_have_followed(page, asked):
    whole_run(page, "c", remove="12-16", **BY_HAND)
    asked.clear()
    picked = layer_map.map_value(30, RemovedBlocks.parse("20-22"))
    old = values(remove="12-16", **BY_HAND | {"criterion": "cosine"})
    update = asyncio.run(handlers(page).from_map(visitor("c"), picked, *old))
    assert "data-removed='20-22'" in update[live(page).layout.boundary.numbers] and asked == ["quick"]


@pytest.mark.parametrize("change", [
    {"criterion": "cosine", "count": 5}, {"remove": ""}, {"remove": "12-"}, {"remove": "40-44"}, {"tokens": None},
])
def test_nothing_is_previewed_where_there_is_no_range_that_can_be_read(page, asked, change):
    asked.clear()
    said = asyncio.run(handlers(page).quick(visitor("d"), *values(**BY_HAND | {"remove": "3"} | change)))
    assert said == gr.skip() or change == {"remove": "40-44"}
    assert asked == [] or change == {"remove": "40-44"}


def test_a_newer_range_or_a_run_stops_what_is_computed_ahead(page, asked):
    whole_run(page, "e", remove="12-16", **BY_HAND)
    asked.clear()
    asyncio.run(handlers(page).prepare(visitor("e")))
    assert asked == ["prefetch", "warm"]
    before = live(page).sessions.of("e").preview_of
    asyncio.run(handlers(page).quick(visitor("e"), *values(remove="1-2", **BY_HAND)))
    now = live(page).sessions.of("e").preview_of
    assert before.is_set and not now.is_set
    whole_run(page, "e", remove="12-16", **BY_HAND)
    assert now.is_set


def test_a_range_is_answered_once_for_all_who_ask(monkeypatch):
    from analysis.answered import Answered

    class Text:
        """What a calibration is here."""

    counted, text = [], Text()

    def source(experiment):
        states = States(experiment, counted)
        states.calibration = text
        return states

    page = build_page(make_run(pace=0, steps=1), facts, first=lambda: None, preview=source)
    for name in "abc":
        assert asyncio.run(handlers(page).quick(visitor(name), *values(remove="3-5", **BY_HAND))) != gr.skip()
    assert counted == ["quick"]
    kept = Answered(most=1)
    record = live(page).sessions.of("a").preview
    assert kept.put(text, "x", record).portraits["ghosted"].share == record.portraits["ghosted"].share
    assert kept.get(text, "x") is not None and kept.get(Text(), "x") is None and kept.get(None, "x") is None
    kept.put(text, "y", record)
    assert kept.get(text, "x") is None and kept.get(text, "y") is not None
