"""The three forms of the range follow each other, and no late answer puts back what was typed before."""

import json

import gradio as gr
import pytest
from fake_run import facts, make_run, similarity
from test_page import forms, live, request

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
    # What a criterion has written: an echo of the map.
    refused.append(form.from_text("14 - 18", value, request("echo")))
    assert not [each for each in refused if criterion in each]


def test_an_answer_that_a_later_one_has_overtaken_is_not_sent(page, monkeypatch):
    form, follow, value = forms(page), layer_map.from_text, layer_map.map_value(30, RemovedBlocks.parse("14-18"))
    later = []

    def slow(panel, text, now, settled):
        if text == "1":  # while this one is worked on, the next letters come
            later.append(form.from_text("12-16", now, request("fast")))
        return follow(panel, text, now, settled)

    monkeypatch.setattr(layer_map, "from_text", slow)
    assert form.from_text("1", value, request("fast")) == gr.skip()
    assert json.loads(later[0][live(page).layout.layer_map.map])["gaps"] == [[12, 16]]


def test_letters_count_in_the_order_in_which_they_were_typed_and_the_last_one_reaches_the_map(page):
    form, where = forms(page), live(page).layout.layer_map.map
    shown = layer_map.map_value(30, RemovedBlocks.parse("14-18"))

    def typed(text, at):
        return form.from_text(text, json.dumps(json.loads(shown) | {"typed": at}), request("order"))

    assert json.loads(typed("5-7", 10)[where])["gaps"] == [[5, 7]]
    assert typed("14-1", 11)[live(page).layout.layer_map.problem]
    back = typed("14-18", 12)  # the browser's map showed 14-18 when it was typed, and 5-7 was on its way
    assert json.loads(back[where])["gaps"] == [[14, 18]] and "typed" not in json.loads(back[where])
    assert typed("14-1", 11) == gr.skip()
