"""What the layer map gets and what its forms say: pure functions, no browser."""

import base64
import json
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
from fake_run import ranges, similarity

from analysis.map_value import at_hand, found_value, made, map_data, map_value, removed_of, strip
from analysis.panels import layer_map
from analysis.scripts import ASSETS
from ghosted import criteria, registry
from ghosted.criteria import Evidence
from ghosted.experiment import Experiment
from ghosted.removed import RemovedBlocks
from ghosted.results import Candidate, Choice, Run


@pytest.fixture(scope="module")
def panel():
    with gr.Blocks():
        return layer_map.build()


def value(text, **more):
    return map_value(30, RemovedBlocks.parse(text), **more)


def test_every_choice_at_hand_is_the_criterions_own():
    found = similarity()
    choices = at_hand(found)
    assert list(choices) == ["cosine", "angular", "block-influence"]
    for name, sent in choices.items():
        for count in (1, 5, 29):
            choice = criteria.criterion(name).choose(Evidence(found), count)
            assert str(removed_of(sent["gaps"][count - 1])) == choice.remove
        assert len(sent["gaps"]) == 29 and sent["higher"] is (name == "cosine")
    assert [len(scores) for scores in choices["cosine"]["scores"]] == [31 - n for n in range(1, 30)]
    np.testing.assert_allclose(choices["cosine"]["scores"][4], np.diagonal(found.cosine, 5), rtol=1e-4)
    np.testing.assert_allclose(choices["block-influence"]["scores"], found.block_influence, rtol=1e-4)
    assert [choices[name]["per"] for name in choices] == ["start", "start", "block"]


def test_a_new_criterion_gets_its_button_and_its_choice_by_itself(monkeypatch):
    def choose(evidence, count):
        if count > 3:
            raise criteria.InputError("too many")
        return criteria.best_run("first", count, -np.arange(31.0 - count), np.zeros((1, 31 - count)),
                                 higher_is_better=True)

    first = SimpleNamespace(NAME="first", LABEL="the first {blocks} <b>", ORDER=5, choose=choose)
    slow = SimpleNamespace(NAME="slow", LABEL="slow one", ORDER=6, choose=choose, cost=None)
    known = registry.members("ghosted.criteria") | {"first": first, "slow": slow}
    for module in ("ghosted.registry", "ghosted.criteria", "analysis.names"):
        monkeypatch.setattr(f"{module}.members", lambda package: known)
    assert at_hand(similarity())["first"]["gaps"][:4] == [[[0, 0]], [[0, 1]], [[0, 2]], None]
    with gr.Blocks():
        template = layer_map.layer_map(value("")).html_template
    assert "the first &#123;blocks&#125; &lt;b&gt;</button>" in template and "data-outline='3'" in template
    assert template.index("the first") < template.index("<details>") < template.index("slow one")
    assert "data-criterion='manual'" not in template


def test_the_errors_of_all_ranges_arrive_to_three_digits_and_in_order():
    drawn = ranges()
    mixed = np.random.default_rng(1).permutation(len(drawn.starts))
    shuffled = type(drawn)(*(getattr(drawn, n)[mixed] for n in ("starts", "ends", "cosine", "before", "after", "left")),
                           1, 1, 0.0)
    sent = map_data(similarity(), shuffled)
    for name in ("before", "after", "left"):
        read = np.frombuffer(base64.b64decode(sent[name]), "<f2").astype(float)
        np.testing.assert_allclose(read, getattr(drawn, name), rtol=6e-4)
    assert "before" not in map_data(similarity()) and map_data(None) is None


def test_the_value_of_the_default_model_is_small():
    text = map_value(30, RemovedBlocks.parse("14-18"), similarity(), ranges=ranges())
    assert len(text) < 40_000
    assert len(map_value(80, RemovedBlocks(), similarity(80), ranges=ranges(80))) < 260_000


def test_strips_are_by_start_by_block_or_by_set():
    runs = strip(Choice("r", "4-5", 1.0, False, None, False, (Candidate("4-5", 1.0), Candidate("1-2", 2.5))), 2)
    assert runs == {"gaps": [[4, 5]], "higher": False, "per": "start", "scores": [None, 2.5, None, None, 1.0]}
    single = strip(Choice("b", "1,3", 0.3, False, None, False, (Candidate("1", 0.1), Candidate("3", float("nan")))), 2)
    assert single["per"] == "block" and single["scores"] == [None, 0.1, None, None]
    chosen = (Candidate("14-18", 3.5), Candidate("10,14-16,22", 3.25))
    sets = made(Choice("best", "10,14-16,22", 3.25, False, None, True, chosen))
    assert (sets["criterion"], sets["count"], sets["per"]) == ("best", 5, "set")
    assert [each["score"] for each in sets["sets"]] == [3.25, 3.5]
    assert sets["sets"][0]["gaps"] == sets["gaps"] == [[10, 10], [14, 16], [22, 22]]
    kept = made(Choice("best", "10,22", 3.25, False, None, True, ()))
    assert kept["sets"] == [{"gaps": [[10, 10], [22, 22]], "score": 3.25}]


def test_a_run_tells_its_blocks_and_later_its_errors_alone():
    run = Run(Experiment(criterion="cosine", count=5), blocks=30, removed=RemovedBlocks.parse("12-16"),
              similarity=similarity())
    first = json.loads(found_value(run))
    assert first["found"] and first["gaps"] == [[12, 16]] and (first["criterion"], first["count"]) == ("cosine", 5)
    run.ranges = ranges()
    later = json.loads(found_value(run, choice=False))
    assert set(later) == {"blocks", "data"} and later["data"]["left"]


def test_the_numbers_are_those_of_the_active_gap(panel):
    now = json.loads(value("3-4,10-14")) | {"active": 1, "serial": 7, "criterion": "cosine"}
    del now["data"]
    forms = layer_map.from_map(panel, json.dumps(now))
    assert (forms[panel.first], forms[panel.last], forms[panel.remove]) == (10, 14, "3-4,10-14")
    assert layer_map.criterion_of(json.dumps(now)) == "cosine"
    assert layer_map.criterion_of(json.dumps(now | {"criterion": "<i>"})) == "manual"
    assert layer_map.criterion_of('{"gaps": []}') == "manual"
    moved = layer_map.from_numbers(panel, 12, 20, json.dumps(now))
    sent = json.loads(moved[panel.map])
    assert sent["gaps"] == [[3, 4], [12, 20]] and sent["active"] == 1 and moved[panel.remove] == "3-4,12-20"
    assert sent["serial"] == 7 and sent["criterion"] == "manual" and "data" not in sent
    joined = json.loads(layer_map.from_numbers(panel, 5, 20, json.dumps(now))[panel.map])
    assert joined["gaps"] == [[3, 20]] and joined["active"] == 0
    assert "runs backwards" in layer_map.from_numbers(panel, 12, 2, json.dumps(now))[panel.problem]
    everything = layer_map.from_numbers(panel, 0, 29, json.dumps(now))[panel.problem]
    assert "keep at least one" in everything


def test_all_scripts_are_joined_and_hold_nothing_that_a_template_would_run():
    with gr.Blocks():
        component = layer_map.layer_map(value(""))
    for name in layer_map.SCRIPTS:
        assert (ASSETS / "layer_map" / f"{name}.js").read_text("utf-8") in component.js_on_load
    assert {each.stem for each in (ASSETS / "layer_map").glob("*.js")} == set(layer_map.SCRIPTS)
    assert "{{" not in component.html_template and "${" not in component.html_template
