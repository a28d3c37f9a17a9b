"""The recoverability map as a part of a run: there where it is asked for, never drawn twice, never in the way."""

import numpy as np
import pytest
from tiny import TINY, tokenizer

from ghosted import drawn_map as module
from ghosted.errors import Cancelled, ResourceError
from ghosted.experiment import Experiment
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, Progress, drain
from ghosted.results import Update
from ghosted.run import run
from ghosted.workspace import Workspace


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def drawings(monkeypatch):
    """How often the map was really drawn."""
    times, draw = [], module.recoverability_map

    def counted(*args, **more):
        times.append(more)
        return draw(*args, **more)

    monkeypatch.setattr(module, "recoverability_map", counted)
    return times


def experiment(path, **changes):
    settings = {"text": path, "tokens": 1024, "window": 64, "windows": 3, "remove": "2-3", "methods": ("none",)}
    return Experiment(**settings | changes)


def workspace():
    return Workspace(LoadedModel.of(TINY("llama"), tokenizer()))


def test_it_comes_last_and_only_where_it_is_asked_for(text, drawings):
    space, events = workspace(), []
    plain = drain(run(experiment(text), space, parts=("boundary", "scores")))
    assert plain.ranges is None and not drawings
    found = drain(run(experiment(text), space, parts=("scores", "map")), events.append)
    assert [e.part for e in events if isinstance(e, Update)] == ["similarity", "scores", "map"]
    assert len(found.ranges.starts) == 21 and np.isfinite(found.ranges.left).all() and "map" in found.seconds
    again = drain(run(experiment(text, remove="1-3"), space, parts=("map",)))
    assert again.ranges is found.ranges and len(drawings) == 1


def test_a_run_whose_criterion_drew_it_has_it_from_the_first_picture_on(text, drawings):
    at_first = []

    def look(event):
        if isinstance(event, Update) and event.part == "similarity":
            at_first.append(event.run.ranges)

    chosen = experiment(text, remove="", criterion="recoverability", count=2)
    found = drain(run(chosen, workspace(), parts=("map",)), look)
    assert at_first == [found.ranges] and found.ranges is not None and len(drawings) == 1


def test_another_process_finds_it_on_disk(text, drawings):
    first = drain(run(experiment(text), workspace(), parts=("map",))).ranges
    later = drain(run(experiment(text), workspace(), parts=("map",))).ranges
    assert len(drawings) == 1 and later is not first
    assert vars(later).keys() == vars(first).keys()
    for name, value in vars(first).items():
        np.testing.assert_array_equal(getattr(later, name), value)
    assert isinstance(later.tokens, int) and isinstance(later.seconds, float)
    drain(run(experiment(text, tokens=960), workspace(), parts=("map",)))
    assert len(drawings) == 2


def test_a_map_that_does_not_fit_is_a_warning_beside_everything_else(text, monkeypatch):
    monkeypatch.setattr("ghosted.recoverability.memory_bytes", lambda *_: 10**18)
    found = drain(run(experiment(text), workspace(), parts=("scores", "map")))
    assert found.ranges is None and found.dense_perplexity
    assert any("The recoverability map of this model needs about 1e+09 GB" in each for each in found.warnings)
    with pytest.raises(ResourceError):
        drain(run(experiment(text, remove="", criterion="recoverability", count=2), workspace(), parts=("map",)))


def test_stop_reaches_it(text):
    flag = CancelFlag()

    def stop(event):
        if isinstance(event, Progress) and event.stage == "solving all ranges":
            flag.set()

    with pytest.raises(Cancelled):
        drain(run(experiment(text), workspace(), flag, parts=("map",)), stop)
