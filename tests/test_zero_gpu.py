"""On a Space that lends GPUs a run goes through another process and comes back the same; elsewhere nothing changes."""

import dataclasses
import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fake_run import make_run

from analysis import zero_gpu
from analysis.runner import Runner
from ghosted.errors import Cancelled, ModelError, ResourceError
from ghosted.experiment import Experiment
from ghosted.models import ModelFacts
from ghosted.plan import gpu_seconds
from ghosted.progress import CancelFlag, Note, Progress
from ghosted.results import Update

EXPERIMENT = Experiment(remove="14-18", prompt="Once", max_new_tokens=4, methods=("none", "ghosted"))
FACTS = ModelFacts("any", "Any", "hub", "llama", 30, 576, 49_152, 134_515_008)


def facts(name):
    return FACTS


@pytest.fixture
def lends(monkeypatch):
    """A Space that lends GPUs, with the stand-in for its package."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "stand_in")
    monkeypatch.delitem(sys.modules, "spaces", raising=False)
    import spaces

    monkeypatch.setattr(zero_gpu, "spaces", spaces)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    spaces.ASKED.clear()
    yield spaces
    sys.modules.pop("spaces", None)


def finished(steps):
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as stop:
            return seen, stop.value


def test_a_run_through_another_process_is_the_same_run(lends):
    run = make_run(pace=0, steps=2)
    there, found = finished(zero_gpu.lent(run, facts)(EXPERIMENT))
    here, expected = finished(run(EXPERIMENT))
    kinds = [(type(e), getattr(e, "part", None)) for e in there]
    assert kinds == [(type(e), getattr(e, "part", None)) for e in here]
    assert {Progress, Update} <= {kind for kind, _ in kinds}
    assert found.experiment == EXPERIMENT and found.removed == expected.removed
    assert [c.text for c in found.columns] == [c.text for c in expected.columns] and found.columns[0].text
    assert found.method("ghosted").residual.held_out == pytest.approx(expected.method("ghosted").residual.held_out)
    for key, each in expected.decompositions.items():
        assert np.array_equal(found.decompositions[key].W, each.W.astype(np.float32))
    assert [min(max(int(gpu_seconds(facts("any"), EXPERIMENT)), 30), 120)] == lends.ASKED


def test_what_ends_a_run_there_ends_it_here_with_the_same_sentence(lends):
    def run(experiment, cancel=None, parts=()):
        yield Note("A sentence.")
        raise ModelError("It cannot be read.")

    steps = zero_gpu.lent(run, facts)(EXPERIMENT)
    assert next(steps) == Note("A sentence.")
    with pytest.raises(ModelError, match="It cannot be read"):
        next(steps)


def test_a_stop_here_stops_the_process_there(lends):
    flag = CancelFlag()
    steps = zero_gpu.lent(make_run(pace=0.05, steps=50), facts)(EXPERIMENT, cancel=flag)
    next(steps)
    flag.set()
    with pytest.raises(Cancelled):
        next(steps)
    assert not multiprocessing.active_children()


def test_a_gpu_that_is_taken_away_is_said(lends):
    def run(experiment, cancel=None, parts=()):
        yield Note("A sentence.")
        os._exit(1)

    with pytest.raises(ResourceError, match="lent for too short a time"):
        finished(zero_gpu.lent(run, facts)(EXPERIMENT))


def test_elsewhere_the_run_stays_here(monkeypatch):
    run = make_run()
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    assert zero_gpu.lent(run, facts) is run
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setattr(zero_gpu, "spaces", None)
    assert zero_gpu.lent(run, facts) is run


def test_a_larger_model_asks_for_more_seconds():
    small = facts("any")
    large = dataclasses.replace(small, parameters=10 * small.parameters)
    assert gpu_seconds(large, EXPERIMENT) > gpu_seconds(small, EXPERIMENT) > 0


def test_the_pages_worker_runs_it_from_its_own_thread(lends):
    runner = Runner(zero_gpu.lent(make_run(pace=0, steps=2), facts))
    job = runner.submit("visitor", EXPERIMENT)
    deadline = time.monotonic() + 30
    while job.ended is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert job.ended.how == "finished" and job.ended.run.columns[0].text
    assert {"similarity", "boundary", "columns"} <= set(job.parts)
