"""The plan of a run: from a config alone, and growing as the work does."""

import dataclasses
import json

import pytest

from ghosted import plan as plans
from ghosted.__main__ import main
from ghosted.errors import InputError
from ghosted.experiment import Experiment

COSTS = {"float32_per_s": 1e11, "bfloat16_per_s": 2e11, "solve_s": 0.5, "decompose_s": 2.0}


@pytest.fixture(autouse=True)
def costs(monkeypatch):
    monkeypatch.setattr(plans, "_costs", lambda: COSTS)


def planned(model="llama-3-8b", **settings):
    return plans.plan(plans.facts_of(model), Experiment(model=model, dtype="bfloat16", **settings))


def test_the_8b_model_is_counted_exactly_from_its_shape():
    found = planned(tokens=262_144, window=2048)
    assert found.parameters == 8_030_261_248 and found.bytes["weights"] == 2 * found.parameters
    assert found.bytes["total"] == sum(v for k, v in found.bytes.items() if k != "total")
    forward = 2 * (found.parameters - 128_256 * 4096) * 262_144 / (0.6 * 2e11)
    assert found.seconds["forward"] == pytest.approx(forward)
    assert found.seconds["decomposition"] == pytest.approx(2.0 * 64)


def test_time_grows_with_the_tokens_and_memory_does_not():
    short, long = planned(tokens=65_536), planned(tokens=655_360)
    assert long.seconds["forward"] == pytest.approx(10 * short.seconds["forward"])
    assert long.seconds["solve"] == short.seconds["solve"]
    assert long.bytes == short.bytes


def test_the_70b_model_needs_more_than_any_one_device():
    assert planned("llama-3-70b").bytes["weights"] > 140e9


def test_more_blocks_than_there_are_is_refused():
    with pytest.raises(InputError, match="remove from 0 to 31, not 32"):
        plans.plan(plans.facts_of("llama-3-8b"), Experiment(count=32))


def test_the_command_prints_both(capsys):
    command = ["plan", "--model", "llama-3-8b", "--count", "8", "--tokens", "262144", "--window", "2048"]
    assert main([*command, "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload.keys() == {field.name for field in dataclasses.fields(plans.Plan)}
    assert main(command) == 0
    assert "24 of 32 blocks stay, C = 4,096" in capsys.readouterr().out


def test_costs_are_measured_once_and_are_positive(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path))
    monkeypatch.setattr(plans, "ORDER", 64)
    plans._costs.cache_clear()
    plans._measure_costs.cache_clear()
    found = plans._costs()
    assert found.keys() == COSTS.keys() and all(value > 0 for value in found.values())
    plans._costs.cache_clear()
    assert plans._costs() == found
    plans._costs.cache_clear()
    plans._measure_costs.cache_clear()
