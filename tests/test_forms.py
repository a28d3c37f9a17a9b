"""The three forms of the range follow each other, and no late answer puts back what was typed before."""

import json

import gradio as gr
import pytest
from fake_run import facts, make_run, similarity
from test_page import forms, live, opening, request, values

from analysis.page import build_page
from analysis.panels import layer_map
from ghosted.removed import RemovedBlocks

WHO = request()


@pytest.fixture(scope="module")
def page():
    return build_page(make_run(pace=0, steps=1), facts)


def test_the_forms_of_the_range_follow_each_other(page):
    panel, value = live(page).layout.layer_map, layer_map.map_value(30, RemovedBlocks.parse("14-18"), similarity())
    picked = forms(page).from_map(layer_map.map_value(30, RemovedBlocks.parse("3-7")))
    assert picked[live(page).layout.controls.criterion] == "manual"
    assert (picked[panel.first], picked[panel.last], picked[panel.remove]) == (3, 7, "3-7")
    typed = forms(page).from_numbers(5, 9, value)
    assert typed[panel.remove] == "5-9" and json.loads(typed[panel.map])["gaps"] == [[5, 9]]
    assert json.loads(typed[panel.map])["data"] == json.loads(value)["data"]
    written = forms(page).from_text("3, 12–17", value, WHO)
    assert json.loads(written[panel.map])["gaps"] == [[3, 3], [12, 17]] and written[panel.problem] == ""
    assert "runs backwards" in forms(page).from_numbers(9, 5, value)[panel.problem]
    assert panel.map not in forms(page).from_text("40", value, WHO)


def test_blocks_count_as_chosen_by_hand_once_a_range_can_be_read(page):
    handlers, form, value = live(page), forms(page), layer_map.map_value(30, RemovedBlocks.parse("14-18"))
    criterion = handlers.layout.controls.criterion
    read = [form.from_map(value), form.from_numbers(5, 9, value), form.from_text("3, 12-17", value, WHO),
            form.from_text("", value, WHO)]
    assert [read_[criterion] for read_ in read] == ["manual"] * 4
    refused = [form.from_numbers(9, 5, value), form.from_numbers(None, 5, value),
               form.from_text("40", value, WHO), form.from_text("a", value, WHO), form.from_text(None, value, WHO)]
    refused.append(form.from_text("14 - 18", value, WHO))  # what a criterion has written: an echo of the map
    assert not [each for each in refused if criterion in each]


def test_an_answer_that_a_later_one_has_overtaken_is_not_sent(page, monkeypatch):
    form, follow, value = forms(page), layer_map.from_text, layer_map.map_value(30, RemovedBlocks.parse("14-18"))
    later = []

    def slow(panel, text, now):
        if text == "1":  # while this one is worked on, the next letters come
            later.append(form.from_text("12-16", now, request("fast")))
        return follow(panel, text, now)

    monkeypatch.setattr(layer_map, "from_text", slow)
    assert form.from_text("1", value, request("fast")) == gr.skip()
    assert json.loads(later[0][live(page).layout.layer_map.map])["gaps"] == [[12, 16]]
    settled, experiment = opening(page), live(page).experiment

    def late(visitor, given):
        if "1" in given:
            settled.changed(request("fast"), *values(remove="12-16", criterion="manual"))
        return experiment(visitor, given)

    monkeypatch.setattr(live(page), "experiment", late)
    assert settled.changed(request("fast"), *values(remove="1", criterion="manual")) == gr.skip()
    assert live(page).sessions.of("fast").chosen == "12-16"
