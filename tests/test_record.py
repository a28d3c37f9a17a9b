"""A record keeps all of a run but its large matrices, becomes JSON and comes back; anything else is refused."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from fake_run import make_run

from analysis import precomputed
from analysis.panels.runs import asked, runs_table
from analysis.record import Record
from analysis.session import Session
from analysis.settings import DEFAULT, experiment_from, values_of
from analysis.stale import RESULTS, pending_panels, stale_panels
from ghosted.decomposition import decompose
from ghosted.errors import InputError
from ghosted.plain import from_plain, to_plain
from ghosted.progress import drain
from ghosted.results import Downstream, Residual, Run


@pytest.fixture(scope="module")
def record():
    return Record.of(drain(make_run(pace=0, steps=1)(dataclasses.replace(DEFAULT, max_new_tokens=5))))


def same(left, right):
    """Whether two values are equal, arrays in single precision."""
    if isinstance(left, np.ndarray):
        return left.shape == right.shape and np.allclose(left, right, rtol=1e-6, equal_nan=True)
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def test_a_record_comes_back_whole(record):
    back = Record.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False)))
    assert same(back.run, record.run) and back.run.experiment == record.run.experiment
    assert back.portraits.keys() == record.portraits.keys() >= {"linearpatch", "ghosted", "ghosted 14-16"}
    assert (back.source, back.when) == ("live", record.when)


def test_a_record_holds_no_matrix_of_full_size(record):
    assert record.run.decompositions == {} and record.run.similarity.histogram.size == 0
    assert len(json.dumps(record.to_json())) < 400_000


def test_numbers_that_are_not_finite_become_null_and_come_back_as_no_number():
    data = to_plain(Downstream(3, float("inf"), float("nan")))
    assert data == {"state": 3, "error": None, "cosine": None}
    assert np.isnan(from_plain(Downstream, data).error)


def test_optional_values_tuples_and_unknown_fields():
    assert from_plain(Residual, {"calibration": None, "held_out": 0.5, "median": 1, "quantiles": [0.1, 0.2], "new": 1}
                      ) == Residual(None, 0.5, 1.0, (0.1, 0.2))


@pytest.mark.parametrize("damage", [
    {"held_out": "0.5"}, {"held_out": True}, {"quantiles": 3}, {"quantiles": ["a"]}, [], "text", None,
])
def test_values_of_another_type_are_refused_in_one_sentence(damage):
    whole = {"calibration": 0.1, "held_out": 0.5, "median": 1.0}
    with pytest.raises(InputError, match="not written by the Ghosted Layers Explorer"):
        from_plain(Residual, whole | damage if isinstance(damage, dict) else damage)


@pytest.mark.parametrize("array", [
    {"shape": [3], "type": "<f4", "data": "AAAA"}, {"shape": [-1], "type": "<f4", "data": ""},
    {"shape": [10**9], "type": "<f4", "data": ""}, {"shape": [1], "type": "|O", "data": "AAAA"},
    {"shape": [1], "type": "<f4", "data": "!"}, {"shape": 1, "type": "<f4", "data": ""}, [1.0], {"shape": [1]},
])
def test_a_damaged_array_is_refused(array):
    with pytest.raises(InputError, match="damaged"):
        from_plain(np.ndarray, array)


@pytest.mark.parametrize(("change", "said"), [
    ({"format": "other"}, "no run of"), ({"version": 99}, "another version"), ({"portraits": []}, "damaged"),
    ({"source": "elsewhere"}, "damaged"), ({"run": {"experiment": {"tokens": -4}}}, "tokens"),
    ({"run": None}, "damaged"),
])
def test_a_foreign_file_is_refused(record, change, said):
    with pytest.raises(InputError, match=said):
        Record.from_json(record.to_json() | change)


def test_the_precomputed_record_can_be_read_and_is_the_pages_default():
    found = precomputed.record()
    assert found is not None and found.source == "precomputed"
    assert dataclasses.replace(found.run.experiment, text=DEFAULT.text) == DEFAULT
    assert precomputed.FILE.stat().st_size < 400_000


def test_settings_become_controls_and_come_back():
    others = dataclasses.replace(
        DEFAULT, criterion="manual", count=0, remove="3,12-17", ridge="auto", rank=4, evaluate=("ptb", "c4"),
        held_out="c4", calibration_window=128, batch=2, seed=7, chat=True, revision="main", temperature=0.5,
    )
    for experiment in (DEFAULT, others, dataclasses.replace(others, ridge=1e-3)):
        assert experiment_from(values_of(experiment)) == experiment


@pytest.mark.parametrize(("change", "panels"), [
    ({}, set()), ({"model": "other/model"}, {"all"}), ({"text": "c4"}, {"all"}), ({"dtype": "float32"}, {"all"}),
    ({"criterion": "cosine"}, set(RESULTS)), ({"criterion": "manual", "count": 0, "remove": "3"}, set(RESULTS)),
    ({"criterion": "manual", "remove": "10,14-16,22"}, set()),
    ({"prompt": "x"}, {"generations"}), ({"windows": 2}, {"scores", "downstream"}), ({"methods": ("none",)}, set()),
    ({"methods": ("none", "symmetric")}, set(RESULTS)),
])
def test_panels_are_stale_for_what_was_changed(record, change, panels):
    assert set(stale_panels(record, dataclasses.replace(record.run.experiment, **change))) == panels


def test_the_precomputed_record_is_not_stale_for_the_default_settings(record):
    shown = dataclasses.replace(record, source="precomputed",
                                run=dataclasses.replace(record.run, experiment=dataclasses.replace(DEFAULT, text="x")))
    assert stale_panels(shown, DEFAULT) == {} and "all" in stale_panels(shown, dataclasses.replace(DEFAULT, text="ptb"))
    assert stale_panels(None, DEFAULT) == {}


def test_what_a_going_run_has_not_reached_is_pending(record):
    assert pending_panels((), None) == {}
    before = pending_panels((), record)
    assert {"boundary", "scores", "generations"} <= set(before) and "runs" not in before
    assert "boundary" not in pending_panels(("similarity", "boundary"), record)
    assert pending_panels(("similarity", "boundary", "decomposition", "scores", "map", "columns"), record) == {}


def test_the_table_of_runs_compares_with_the_pinned_one_and_escapes(record):
    session = Session()
    assert "Press Run" in runs_table(session)
    session.keep(record)
    nasty = dataclasses.replace(record.run, experiment=dataclasses.replace(DEFAULT, model="<img src=x>/y"))
    session.keep(Record(nasty, source="imported"))
    session.runs[2].run.methods = [dataclasses.replace(m, damage={"python-docs": 0.5}) for m in record.run.methods]
    session.pinned = 1
    html = runs_table(session)
    assert "<img" not in html and "&lt;img" in html and "imported" in html
    assert html.index("Open run 2") < html.index("Open run 1") and "pinned" in html and "+0.276" in html
    session.pinned = 2
    assert "−0.276" in runs_table(session)


@pytest.mark.parametrize(("text", "expected"), [('["pin", 3]', ("pin", 3)), ("x", ("", 0)), (None, ("", 0)),
                                                ('["open"]', ("", 0)), ("3", ("", 0))])
def test_what_a_button_asks_for_is_read_or_ignored(text, expected):
    assert asked(text) == expected


def test_a_run_without_numbers_is_listed_with_dashes():
    session = Session()
    session.keep(Record(Run(DEFAULT)))
    assert runs_table(session).count("–") >= 3


def test_a_previews_first_answer_has_shares_and_no_spectra_yet():
    M = 0.1 * torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = Run(DEFAULT, decompositions={"ghosted": decompose(M, "ghosted", range(2, 4), spectra=False)})
    picture = Record.of(found, "preview").portraits["ghosted"]
    assert 0 < picture.share < picture.share_M < 1 and len(picture.singular) == len(picture.eigenvalues) == 0
