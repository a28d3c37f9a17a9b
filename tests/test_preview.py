"""Ranges changed with states at hand: the same numbers as a run, nothing touched, no model pass."""

import dataclasses
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import BLOCKS, PLANTED, TINY, WIDTH, tokenizer

from ghosted import operators
from ghosted.calibration import calibrate, kept
from ghosted.calibration.kept import KeptStates, Recent
from ghosted.calibration.store import StateStore
from ghosted.errors import Cancelled, InputError, TextError
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.fitting import fit_gaps
from ghosted.models import LoadedModel
from ghosted.preview import LATER, WAITS, Preview, is_closed_form, neighbours, quick_methods
from ghosted.products import bfloat16_products
from ghosted.progress import CancelFlag, drain
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.run import run
from ghosted.scores.residual import boundary_residuals
from ghosted.texts import pack
from ghosted.turn import Turn
from ghosted.workspace import Workspace

CLOSED = tuple(name for name in operators.methods() if is_closed_form(name))
parse = RemovedBlocks.parse


def windows(tokens, start=0):
    ids = torch.randint(0, 250, (8192,), generator=torch.Generator().manual_seed(5)).tolist()
    # The last window is a shorter one.
    return pack(ids, start=start, tokens=tokens, window=64, bos_id=None, text="random", digest="d")


def calibrated(model=None, **settings):
    loaded = LoadedModel.of(model or TINY("llama"), tokenizer())
    return drain(calibrate(loaded, windows(3000), windows(1500, 4096), **settings))


def exact(calibration, gap, methods, settings):
    """Residuals and operators by the way every run takes, on a calibration of their own."""
    removed, fitted = RemovedBlocks((gap,)), {}
    needs = operators.needs(methods)
    statistics = drain(calibration.statistics(gap, needs))
    for name in methods:
        fitted[name] = drain(fit_gaps(calibration, removed, name, settings))[0]
    return fitted, drain(boundary_residuals(calibration, gap, fitted, statistics))


def numbers(residual):
    return [residual.calibration, residual.held_out, residual.median, *residual.quantiles]


@pytest.mark.parametrize("remove", ["2-3", "0-2", "5", "1-5", "0-4"])
@pytest.mark.parametrize("ridge", [1e-6, "auto"])
def test_residuals_are_those_of_a_run(remove, ridge):
    removed = parse(remove)
    asked = quick_methods(CLOSED) if removed.gaps[0].start == 0 else CLOSED
    fitted, found = exact(calibrated(), removed.gaps[0], asked, operators.Settings(ridge))
    shown = Preview(calibrated(), Experiment(ridge=ridge)).rest(removed, asked)
    assert shown.removed == removed and shown.experiment.remove == remove and not shown.warnings
    for name in asked:
        result = shown.method(name)
        assert numbers(result.residual) == pytest.approx(numbers(found[name]), abs=1e-6), name
        assert result.gaps == {remove: result.residual} and result.not_defined is None
        assert (result.rank, result.ridge, result.note) == (
            fitted[name].rank, fitted[name].ridge, fitted[name].note)  # fmt: skip


def test_default_methods_agree_with_a_whole_run(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Sentence {i} of a text that goes on about {i * i % 97} things. " for i in range(900)))
    e = Experiment(text=str(path), tokens=1024, window=64, windows=3, remove="2-3", fit="independent")
    workspace = Workspace(LoadedModel.of(TINY("llama"), tokenizer()))
    assert workspace.at_hand(e) is None and workspace.preview(e) is None
    parts = ("similarity", "boundary", "decomposition")
    drain(run(e, workspace, parts=parts))
    for remove in ("1-3", "2", "1,3-4"):
        shown = workspace.preview(e).rest(parse(remove), DEFAULT_METHODS)
        whole = drain(run(dataclasses.replace(e, remove=remove), workspace, parts=parts))
        for name in DEFAULT_METHODS:
            mine, true = shown.method(name), whole.method(name)
            for gap in true.gaps:
                assert numbers(mine.gaps[gap]) == pytest.approx(numbers(true.gaps[gap]), abs=1e-6)
            assert mine.added_parameters == true.added_parameters
        assert list(shown.decompositions) == list(whole.decompositions)
        for name, true in whole.decompositions.items():
            mine = shown.decompositions[name]
            assert mine.share_antisymmetric == pytest.approx(true.share_antisymmetric, abs=1e-6)
            np.testing.assert_allclose(mine.singular_values, true.singular_values, rtol=1e-3, atol=1e-6)
    assert "through the repaired model" in shown.warnings[0] and shown.method("ghosted").residual is None
    assert shown.similarity is whole.similarity
    # The same states serve whatever does not change them, and nothing else.
    assert workspace.at_hand(dataclasses.replace(e, remove="4", ridge="auto", windows=5, seed=3)) is not None
    for change in ({"tokens": 512}, {"window": 32}, {"text": "other"}, {"dtype": "bfloat16"}, {"batch": 1}):
        assert workspace.at_hand(dataclasses.replace(e, **change)) is None


def test_it_does_not_wait_for_who_computes_and_changes_nothing_of_theirs(monkeypatch):
    calibration = calibrated(gaps=(range(2, 4),), needs=operators.needs(DEFAULT_METHODS))
    gaps = calibration.gaps
    before = {name: {k: t.clone() for k, t in s.sums.items()} for name, s in gaps.items()}
    lock = threading.Lock()
    shown = Preview(calibration, Experiment(), KeptStates(calibration, lock))
    monkeypatch.setattr("ghosted.calibration.hidden_forward", None)  # a pass of the whole model
    with lock:
        shown.rest(parse("2-3"), DEFAULT_METHODS)
        shown.rest(parse("2-4"), DEFAULT_METHODS)
        shown.prefetch(parse("2-4"), DEFAULT_METHODS)
    assert calibration.gaps is gaps and list(gaps) == ["2-3"]
    for name, sums in before.items():
        assert gaps[name].sums.keys() == sums.keys() and gaps[name].tokens == 3000
        assert all(torch.equal(gaps[name].sums[k], t) for k, t in sums.items())


def test_quick_says_what_follows_and_what_waits():
    shown = Preview(calibrated(), Experiment(distill=5))
    methods = ("none", "replaceme", "replaceme-cosine", "ghosted", "best")
    quick = shown.quick(parse("2-3"), methods)
    assert [m.method for m in quick.methods] == list(methods)
    assert [m.note for m in quick.methods] == [None, LATER, WAITS, None, WAITS]
    assert [m.residual is None for m in quick.methods] == [False, True, True, False, True]
    assert list(quick.decompositions) == ["ghosted"]
    assert quick.decompositions["ghosted"].eigenvalues.shape == (0,)
    assert any("distillation" in sentence for sentence in quick.warnings)
    rest = shown.rest(parse("2-3"), methods)
    assert [m.note for m in rest.methods] == [None, None, WAITS, None, WAITS]
    assert rest.decompositions["ghosted"].eigenvalues.shape == (WIDTH,)
    assert rest.decompositions["ghosted"].share_antisymmetric == quick.decompositions["ghosted"].share_antisymmetric


def test_a_branch_before_block_0_is_not_defined():
    shown = Preview(calibrated(), Experiment()).rest(parse("0-1"), ("ghosted", "replaceme"))
    assert "block" in shown.method("replaceme").not_defined and shown.method("replaceme").residual is None
    assert shown.method("ghosted").residual.held_out is not None


def test_nothing_to_repair_is_null():
    shown = Preview(calibrated(PLANTED()), Experiment()).rest(parse("14-15"), CLOSED)
    for name in CLOSED:
        assert numbers(shown.method(name).residual) == [None, None, None], name


def test_nothing_removed_and_all_removed():
    shown = Preview(calibrated(), Experiment())
    assert [m.residual for m in shown.quick(parse(""), ("none", "ghosted")).methods] == [None, None]
    with pytest.raises(InputError):
        shown.quick(parse(f"0-{BLOCKS - 1}"), ("none",))


def test_a_part_of_the_states_is_said():
    calibration = calibrated()
    calibration.stores["calibration"] = calibration.stores["calibration"].first(10)
    calibration.stores["held_out"] = StateStore(0)
    shown = Preview(calibration, Experiment()).quick(parse("2-3"), ("ghosted",))
    assert any("first 640 of 3,000 tokens" in sentence for sentence in shown.warnings)
    assert any("held-out error waits" in sentence for sentence in shown.warnings)
    residual = shown.method("ghosted").residual
    assert residual.held_out is None and residual.median is None and 0 < residual.calibration < 1
    calibration.stores["calibration"] = StateStore(0)
    with pytest.raises(TextError):
        Preview(calibration, Experiment()).quick(parse("2-3"), ("ghosted",))


def test_cancel_works_between_methods(monkeypatch):
    flag, fits = CancelFlag(), []
    method = operators.method("diagonal")

    def fit(statistics, settings):
        fits.append("diagonal")
        flag.set()
        return operators.method("none").fit(statistics, settings)

    monkeypatch.setattr(method, "fit", fit)
    shown = Preview(calibrated(), Experiment())
    with pytest.raises(Cancelled):
        shown.quick(parse("2-3"), ("diagonal", "ghosted"), flag)
    assert fits == ["diagonal"]
    monkeypatch.undo()
    # Stopped work holds no lock, and leaves nothing half done.
    assert shown.quick(parse("2-3"), ("ghosted",)).method("ghosted").residual.held_out is not None


def test_who_waits_for_its_turn_can_be_stopped():
    turn, flag = Turn(), CancelFlag()
    shown = Preview(calibrated(), Experiment(), turn=turn)
    flag.set()
    with turn.urgent(), pytest.raises(Cancelled):
        shown.quick(parse("2-3"), ("ghosted",), flag)


def test_an_end_that_moves_reads_only_what_is_new(monkeypatch):
    calibration = calibrated()
    states = KeptStates(calibration)
    solved = []
    monkeypatch.setattr("ghosted.calibration.statistics.Spectrum",
                        lambda G: solved.append(1) or __import__("ghosted.solve").solve.Spectrum(G))  # fmt: skip
    shown = Preview(calibration, Experiment(), states)
    first = shown.quick(parse("2-3"), ("ghosted", "symmetric"))
    assert len(solved) == 1
    shown.quick(parse("2-4"), ("ghosted", "symmetric"))
    assert len(solved) == 1
    monkeypatch.setattr(KeptStates, "_chunks", None)
    assert shown.quick(parse("2-3"), ("symmetric", "ghosted")).method("ghosted").residual == (
        first.method("ghosted").residual)  # fmt: skip


def test_after_warming_up_no_start_is_read_again(monkeypatch):
    calibration = calibrated()
    states = KeptStates(calibration)
    shown = Preview(calibration, Experiment(), states)
    cold = Preview(calibration, Experiment()).quick(parse("2-3"), ("linearpatch", "ghosted"))
    shown.warm(DEFAULT_METHODS)
    read = []
    add = KeptStates._add

    def added(sums, kinds, *rest):
        read.append(set(sums))
        return add(sums, kinds, *rest)

    monkeypatch.setattr(KeptStates, "_add", staticmethod(added))
    monkeypatch.setattr(KeptStates, "_add_magnitudes", None)
    warm = shown.quick(parse("2-3"), ("linearpatch", "ghosted"))
    assert read and all("state.B" in names and "state.G" not in names for names in read)
    for name in ("linearpatch", "ghosted"):
        assert numbers(warm.method(name).residual) == pytest.approx(numbers(cold.method(name).residual), abs=1e-9)
    with pytest.raises(Cancelled):
        flag = CancelFlag()
        flag.set()
        Preview(calibration, Experiment()).warm(DEFAULT_METHODS, flag)


def test_neighbours_are_prefetched(monkeypatch):
    shown = Preview(calibrated(), Experiment())
    shown.prefetch(parse("4-5"), DEFAULT_METHODS)
    monkeypatch.setattr(KeptStates, "_chunks", None)
    around = [gap_name(gap) for gap in neighbours(parse("4-5"), BLOCKS)]
    assert around == ["3-4", "4", "3-5", "5"]
    for remove in around:
        assert shown.quick(parse(remove), DEFAULT_METHODS).method("ghosted").residual.held_out is not None
    assert not list(neighbours(parse("1,3"), BLOCKS))


def test_what_is_kept_stays_within_its_bound():
    recent = Recent(10)
    for name in "abc":
        recent.put(name, name.upper(), 4)
    assert [recent.get(name) for name in "abc"] == [None, "B", "C"]
    recent.get("b")
    recent.put("d", "D", 4)
    assert [recent.get(name) for name in "bcd"] == ["B", None, "D"]
    recent.put("e", "E", 99)
    assert [recent.get(name) for name in "bde"] == [None, None, "E"]


def test_bfloat16_products_stay_close_and_need_the_lock(monkeypatch):
    class Half(StateStore):
        def windows(self, *states):
            for window in self._windows:
                yield tuple(window[i : i + 1].bfloat16() for i in states)

    calibration = calibrated()
    for name, store in calibration.stores.items():
        half = Half(0)
        half._windows, calibration.stores[name] = store._windows, half
    entered = []

    def counted():
        entered.append(1)
        return bfloat16_products()

    monkeypatch.setattr(kept, "are_faster", lambda dtype: True)
    monkeypatch.setattr(kept, "bfloat16_products", counted)
    lock = threading.Lock()
    quick = SimpleNamespace(methods=quick_methods(CLOSED))
    with lock:
        exactly = Preview(calibration, Experiment(), KeptStates(calibration, lock)).quick(parse("2-3"), quick.methods)
    assert not entered
    nearly = Preview(calibration, Experiment(), KeptStates(calibration, lock)).quick(parse("2-3"), quick.methods)
    assert entered and not lock.locked() and torch.get_float32_matmul_precision() == "highest"
    for name in quick.methods:
        assert numbers(nearly.method(name).residual) == pytest.approx(numbers(exactly.method(name).residual), rel=1e-3)
