"""The side-by-side texts: numbers beside them, tints, and what a card is told; nothing from a model is ever markup."""

import json
import re
from html import unescape

import pytest
from fake_run import NASTY, make_run

from analysis import columns
from analysis.panels import prompt
from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.results import Column

LIKELY = [("b", 0.5), (" c", 0.25), ("", 0.1), ("\n", 0.05), ("</s>", 0.01)]


def pair(**changes):
    original = Column("original", "ab", [1, 2], ["a", "b"], None, [0.0, 0.0], True, surprisal=[0.0, 1.0],
                      top=[LIKELY, LIKELY], agrees=[True, True], seconds=0.5, parameters=135_000_000)
    fields = {"surprisal": [0.0, 2.5], "top": [LIKELY, LIKELY[::-1]], "top_original": [LIKELY, LIKELY[::-1]],
              "agrees": [True, False], "seconds": 0.25, "parameters": 117_000_000}
    return original, Column("ghosted", "ax", [1, 3], ["a", "x"], 1, [0.01, 5.0], True, **fields | changes)


def told(html):
    """What each column's cards are told, as the browser reads it."""
    return [json.loads(unescape(raw)) for raw in re.findall(r"data-details='([^']*)'", html)]


def test_nothing_from_a_model_is_markup():
    nasty = [*NASTY, "'>", '"', "\u2028", "&quot;"]
    top = [[(piece, 0.1) for piece in nasty[:5]]] * len(nasty)
    column = Column("ghosted", "".join(nasty), [1] * len(nasty), list(nasty), 1, [3.0] * len(nasty), True,
                    error="</p><script>alert(3)</script>", top=top, top_original=top, surprisal=[1.0] * len(nasty))
    html = columns.text_columns([Column("original"), column])
    assert "<img" not in html and "<script" not in html and "</script" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html and "${alert(2)}" in html
    assert told(html)[1]["top"][0][::2] == nasty[:5]
    assert "".join(unescape(p) for p in re.findall(r"tabindex='(?:0|-1)'>([^<]*)<", html)) == "".join(nasty)


def test_the_first_difference_is_marked_and_both_tints_are_there():
    html = columns.text_columns(pair())
    assert "<span class='gl-t gl-k6 gl-s5 gl-first' tabindex='-1'>x</span>" in html
    assert "<span class='gl-t gl-s4' tabindex='-1'>b</span>" in html, "the original is tinted by surprisal only"
    assert "differs at token 1" in html and "gl-cursor" not in html
    assert [columns.tint(nats) for nats in (0.0, 0.05, 1.0, 9.0)] == [0, 1, 4, 6]
    assert columns.legend().count("gl-t") == len(columns.STEPS) == 6


def test_split_letters_without_pieces_and_growing_columns():
    split = columns.text_columns([Column("none", "é", [1, 2], ["\ufffd", "\ufffd"], None, [9.0, 9.0], True)])
    assert "\ufffd" not in split and "é" in split
    running = columns.text_columns([Column("none", "a", [1], ["a"], None, [], False)], expected=64)
    assert "gl-cursor" in running and "--gl-tokens:64" in running and "same so far" in running
    failed = columns.text_columns([Column("none", "a", [1], ["a"], finished=True, error="It failed.")])
    assert "gl-cursor" not in failed and "It failed." in failed and "identical" not in failed


def test_the_numbers_beside_a_column():
    original, ghosted = pair()
    assert columns.facts(original) == {"tokens/s": "2.00", "parameters": "135 M", "tokens": "2",
                                       "surprisal": "0.500 nats"}
    assert columns.facts(ghosted) == {"tokens/s": "4.00", "parameters": "117 M", "agreement": "50.0 %",
                                      "KL": "2.50 nats"}
    empty = columns.facts(Column("ghosted"))
    assert empty == dict.fromkeys(("tokens/s", "parameters", "agreement", "KL"), "–"), "nothing moves later"


def test_the_example_has_todays_numbers_once_they_are_known():
    said = columns.example(pair())
    assert said == ("Token 1 of ghosted, where it parts from the original, had the probability 0.0821: a surprisal of "
                    "−ln 0.0821 = 2.50 nats; its predictions are 5.00 nats (KL) from the original's.")
    assert columns.example(pair(surprisal=[])) == ""
    original, _ = pair()
    assert columns.example([original]) == "" and columns.example([]) == ""


def test_cards_are_told_what_differs_from_the_originals_own():
    own, ghosted = told(columns.text_columns(pair()))
    assert own["surprisal"] == [0.0, 1.0] and "kl" not in own and own["first"] is None
    assert ghosted["kl"] == [0.01, 5.0] and ghosted["first"] == 1
    assert ghosted["original"][0] == 0, "the same prediction at the same place is not sent twice"
    assert ghosted["original"][1] == [part for pair in LIKELY[::-1] for part in pair]
    strange = told(columns.text_columns(pair(surprisal=[float("inf"), 1])))
    assert strange[1]["surprisal"] == [None, 1.0]


@pytest.mark.parametrize(("finished", "kept"), [(False, columns.DETAILED_WHILE_WRITING), (True, columns.DETAILED)])
def test_what_is_sent_is_bounded(finished, kept):
    n = 1500
    column = Column("original", "a" * n, [1] * n, ["a"] * n, None, [0.0] * n, finished, surprisal=[0.1] * n,
                    top=[LIKELY] * n)
    (said,) = told(columns.text_columns([column]))
    assert said["from"] == n - kept and len(said["top"]) == len(said["surprisal"]) == kept


def test_columns_that_came_from_a_file_look_the_same():
    live = pair()
    saved = [Column(**json.loads(json.dumps(vars(column)))) for column in live]
    assert columns.text_columns(saved) == columns.text_columns(live)


def test_the_default_run_is_small():
    experiment = Experiment(remove="14-18", methods=("none", "linearpatch", "replaceme", "ghosted", "best"), prompt="x")
    run = drain(make_run(pace=0, steps=1)(experiment))
    assert len(columns.text_columns(run.columns, 64).encode()) < 120_000
    assert len(json.dumps([vars(column) for column in run.columns])) < 120_000


def test_prompts_are_of_several_kinds_and_each_has_a_name():
    presets = prompt.presets()
    assert len(presets) >= 8
    assert len({each.label for each in presets}) == len({each.text for each in presets}) == len(presets)
    assert {each.chat for each in presets} == {True, False}
    kinds = {each.label.partition(":")[0] for each in presets}
    assert {"Fact", "Story", "Instruction", "Code", "Dialogue", "List", "Several languages"} <= kinds
