"""The model that leaves the page: what is said beforehand, the job, its file, and the way back in."""

import asyncio
import gc
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace

import fake_run
import gradio as gr
import pytest
from exports import FEATURE, repaired
from tiny import BLOCKS, TINY, WIDTH, tokenizer

from analysis import library, taking
from analysis.code import export_command
from analysis.export import settings_file
from analysis.limits import SHARED
from analysis.page import build_page
from analysis.panels import take as part
from analysis.record import Record
from analysis.taking import Wanted, exportable, outlook, wanted
from ghosted import formats, models, operators
from ghosted.errors import Cancelled, InputError, NotDefined, ResourceError
from ghosted.experiment import Experiment
from ghosted.formats._expected import expected
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, Progress, drain
from ghosted.removed import RemovedBlocks
from ghosted.results import MethodResult, Run
from ghosted.workspace import Workspace


@pytest.fixture(autouse=True)
def no_new_process(monkeypatch):
    for name in ("adapter", "checkpoint", "merged"):
        monkeypatch.setattr(formats.formats()[name], "LIMIT", None)


@pytest.fixture
def workspace():
    return Workspace(LoadedModel.of(TINY("llama"), tokenizer(), name="tiny"), keeps_states=True)


@pytest.fixture
def experiment(text):
    return Experiment(remove="2-3", methods=("ghosted",), text=text, tokens=1024, window=64, windows=2)


def expect(name, method, removed="1,3-4", rank=None):
    experiment = Experiment(methods=(method,), rank=rank)
    return expected(TINY(name), RemovedBlocks.parse(removed, BLOCKS), experiment, "cpu")


@pytest.mark.parametrize("form", ["adapter", "checkpoint", "merged", "mergekit"])
@pytest.mark.parametrize("method", ["none", "scalar", "low-rank", *FEATURE])
def test_what_is_foreseen_before_the_fit_is_what_the_fitted_model_says(method, form):
    made = repaired("llama", method)
    try:
        found = formats.foresee(form, made)
    except (InputError, NotDefined) as refusal:
        with pytest.raises(type(refusal), match=re.escape(str(refusal))):
            formats.foresee(form, expect("llama", method))
    else:
        assert formats.foresee(form, expect("llama", method)) == found


def test_the_numbers_of_every_method_are_those_of_its_fits(workspace, experiment):
    import dataclasses

    from ghosted.run import Pipeline

    every = tuple(operators.methods())
    pipeline = Pipeline(dataclasses.replace(experiment, methods=every), workspace, None)
    drain(pipeline.fit(()))
    hidden = TINY("llama").config.intermediate_size
    for name in every:
        (fit,) = pipeline.fitted[name]
        stored = sum(tensor.numel() for tensor in fit.tensors().values())
        dense = 0 if fit.M is None else fit.M.numel()
        assert operators.numbers(name, WIDTH, hidden) == (stored, dense), name


def test_sizes_are_those_of_the_files(tmp_path):
    for form, method in (("adapter", "ghosted"), ("checkpoint", "ghosted"), ("merged", "replaceme")):
        foreseen = formats.foresee(form, expect("llama", method)).bytes
        done = drain(formats.export(repaired("llama", method), form, tmp_path / form))
        weights = sum(size for name, size in done.files.items() if name.endswith(".safetensors"))
        assert 0 <= weights - foreseen < 8_192  # the header, and the record in an adapter's


def test_families_that_do_not_merge_are_refused_before_the_fit():
    with pytest.raises(NotDefined, match="normalises"):
        formats.foresee("merged", expect("gemma2", "replaceme"))
    with pytest.raises(NotDefined, match="block 0"):
        formats.foresee("merged", expect("llama", "replaceme", "0-1"))


def test_a_skeleton_foresees_what_the_model_in_memory_does(tmp_path, workspace):
    TINY("llama").save_pretrained(tmp_path / "base")
    chosen = Experiment(model=str(tmp_path / "base"), remove="2-3", methods=("ghosted",), dtype="float32")
    for form in ("adapter", "checkpoint"):
        found = formats.look_ahead(chosen, form)
        assert found == formats.look_ahead(chosen, form, workspace) and found.bytes > 4 * WIDTH**2 - 1
    assert models.skeleton(str(tmp_path / "base")).device.type == "meta"
    assert formats.look_ahead(Experiment(criterion="cosine", count=2, methods=("ghosted",)), "adapter") is None


def test_memory_that_is_not_there_is_said_before_anything_is_computed(monkeypatch, workspace, experiment, tmp_path):
    from ghosted.formats import _round_trip
    from ghosted.models import device_map

    monkeypatch.undo()  # the check is what needs the memory
    made = repaired("llama")
    needed = _round_trip.memory(made, "checkpoint")
    weights = sum(p.numel() * 4 for p in TINY("llama").parameters())
    assert _round_trip.memory(made, "adapter") == pytest.approx(1.2 * (weights + 8 * WIDTH**2) + 5e8, abs=2)
    assert needed < _round_trip.memory(made, "adapter")
    monkeypatch.setattr(device_map, "capacity", lambda device=None: needed)
    formats.foresee("checkpoint", made)
    monkeypatch.setattr(device_map, "capacity", lambda device=None: needed - 1)
    for work in (lambda: drain(formats.export(made, "checkpoint", tmp_path / "out")),
                 lambda: outlook(Wanted(experiment, "checkpoint"), workspace),
                 lambda: drain(taking.take(Wanted(experiment, "checkpoint"), workspace, tmp_path / "cache"))):
        with pytest.raises(ResourceError, match=r"read again in a new process .* needs about 0\.5\d* GB"):
            work()
    assert not (tmp_path / "out").exists() and workspace._calibration is None
    formats.foresee("mergekit", expect("llama", "none"))  # nothing is read again


def test_the_outlook_says_size_code_and_refusal(workspace, experiment, tmp_path):
    said = outlook(Wanted(experiment, "adapter"), workspace)
    assert "4.10 kB" in said and "holds no code" in said and "ghosted.load" in said
    assert "trust_remote_code=True" in outlook(Wanted(experiment, "checkpoint"), workspace)
    with pytest.raises(InputError, match="ghosted cannot"):
        outlook(Wanted(experiment, "merged"), workspace)
    with pytest.raises(InputError, match=r"4\.10 kB and at most 4\.00 kB .* python -m ghosted export"):
        outlook(Wanted(experiment, "adapter"), workspace, limit=4_000)
    with pytest.raises(InputError, match="open to others"):
        drain(taking.take(Wanted(experiment, "adapter"), workspace, tmp_path / "cache", limit=4_000))
    assert list((tmp_path / "cache").iterdir()) == []
    missing = Experiment(model="nobody/nothing-at-all", remove="2-3", methods=("ghosted",))
    assert outlook(Wanted(missing, "adapter")) == taking.NOT_HERE


def test_an_adapter_from_the_page_opens_again_through_import(workspace, experiment, tmp_path):
    taken = drain(taking.take(Wanted(experiment, "adapter"), workspace, tmp_path))
    assert taken.path.name == "ghosted-tiny-2-3-ghosted-adapter.zip"
    found = settings_file.read(str(taken.path))
    assert (found.experiment.remove, found.experiment.methods) == ("2-3", ("none", "ghosted"))
    assert "recorded held-out error" in found.said and "perplexity" in found.said
    with zipfile.ZipFile(taken.path) as archive:
        folder = taken.path.stem
        assert {f"{folder}/{name}" for name in ("README.md", "check.json", "ghost.json", "ghost.safetensors")} == set(
            archive.namelist())
        archive.extractall(tmp_path / "again")
    assert formats.unseal(tmp_path / "again" / folder)["format"] == "adapter"


def test_the_calibration_of_the_run_serves_again(workspace, experiment, tmp_path):
    import dataclasses

    from ghosted.run import run

    shown = drain(run(dataclasses.replace(experiment, methods=("none", "ghosted", "symmetric")), workspace,
                      parts=("boundary", "scores")))
    stages = []
    asked = wanted(shown, "ghosted", "checkpoint")
    taken = drain(taking.take(asked, workspace, tmp_path), lambda event: stages.append(getattr(event, "stage", "")))
    assert "calibrating" not in stages and {"writing the model", "packing"} <= set(stages)
    assert taken.wanted == asked and taken.bytes > 10_000


def test_the_file_goes_when_nobody_holds_it_and_a_stop_leaves_nothing(workspace, experiment, tmp_path):
    taken = drain(taking.take(Wanted(experiment, "adapter"), workspace, tmp_path / "cache"))
    path = taken.path
    assert path.is_file()
    del taken
    gc.collect()
    assert list((tmp_path / "cache").iterdir()) == []
    cancel = CancelFlag()
    with pytest.raises(Cancelled):
        drain(taking.take(Wanted(experiment, "checkpoint"), workspace, tmp_path / "cache", cancel=cancel),
              lambda event: cancel.set() if getattr(event, "stage", "") == "packing" else None)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_space_that_lends_its_gpu_names_the_command(monkeypatch, experiment):
    monkeypatch.setattr(library.zero_gpu, "is_here", lambda: True)
    for work in (lambda: library.outlook(Wanted(experiment, "adapter")),
                 lambda: drain(library.take(Wanted(experiment, "adapter")))):
        with pytest.raises(ResourceError, match="python -m ghosted export does"):
            work()


def test_what_is_wanted_has_named_blocks_and_no_prompt():
    chosen = Experiment(criterion="best", count=5, prompt="The river", temperature=1.0, methods=("none", "ghosted"))
    run = Run(chosen, removed=RemovedBlocks.parse("14-18"), methods=[MethodResult("none"), MethodResult("ghosted"),
              MethodResult("replaceme", not_defined="Because.")])  # fmt: skip
    assert exportable(run) == ["none", "ghosted"]
    asked = wanted(run, "ghosted", "adapter")
    assert (asked.experiment.criterion, asked.experiment.remove, asked.method) == ("manual", "14-18", "ghosted")
    assert asked == wanted(run, "ghosted", "adapter") and asked.experiment.prompt == ""
    with pytest.raises(InputError, match="no such method"):
        wanted(run, "replaceme", "adapter")
    command = export_command(asked.experiment, "adapter")
    assert command == "python -m ghosted export --remove 14-18 --methods ghosted --format adapter --out my-adapter"


@pytest.fixture(scope="module")
def page():
    return build_page(fake_run.make_run(pace=0.001, steps=2), fake_run.facts, take=fake_run.take,
                      outlook=fake_run.outlook, first=lambda: None, limits=SHARED)  # fmt: skip


def handlers(page):
    return next(fn.fn for fn in page.fns.values() if isinstance(getattr(fn.fn, "__self__", None), part.Taking)).__self__


def request(visitor):
    return SimpleNamespace(session_hash=visitor)


def shown_run(taking, visitor, methods=("none", "replaceme", "ghosted")):
    experiment = Experiment(remove="14-18", methods=methods, max_new_tokens=2, prompt="x")
    record = Record.of(drain(fake_run.make_run(pace=0, steps=1)(experiment)))
    taking.live.sessions.of(visitor).shown = record
    return record


def test_the_methods_of_the_shown_run_are_offered_and_a_pick_stays(page):
    taking = handlers(page)
    record = shown_run(taking, "a")
    offered = part.show(taking.panel, record)
    assert [name for _, name in offered[taking.panel.method].choices] == ["none", "replaceme", "ghosted"]
    assert offered[taking.panel.method].value == "ghosted" and offered[taking.panel.go].interactive
    taking.plan(request("a"), "replaceme", "merged")
    picked = taking.live.sessions.of("a").takes
    assert part.show(taking.panel, record, picked)[taking.panel.method].value == "replaceme"
    assert part.show(taking.panel, shown_run(taking, "a", ("ghosted",)), picked)[taking.panel.method].value == "ghosted"


def test_it_is_said_beforehand_with_the_command_beside_it(page):
    taking = handlers(page)
    assert "Press Run" in taking.plan(request("nobody"), None, "adapter")[taking.panel.line]
    record = shown_run(taking, "b")
    said = taking.fresh(request("b"), "adapter")
    assert f"adapter of ghosted, blocks 14-18, {taking_limit()} bytes" in said[taking.panel.line]
    assert "--format adapter --out my-adapter" in said[taking.panel.command]
    refused = taking.plan(request("b"), "ghosted", "merged")
    assert "&lt;b&gt;some" in refused[taking.panel.line] and refused[taking.panel.more].open is True
    assert taking.start(request("b"), "ghosted", "merged").keys() == {taking.panel.line}
    record.source = "precomputed"
    assert f"{taking_limit()} bytes" in taking.fresh(request("b"), "adapter")[taking.panel.line]  # it was asked for
    taking.live.sessions.of("b").takes = ""
    assert part.READY in taking.fresh(request("b"), "adapter")[taking.panel.line]


def taking_limit():
    return taking.LARGEST


def follow(taking, visitor):
    async def collect():
        return [update async for update in taking.follow(request(visitor))]

    latest = {}
    for update in asyncio.run(collect()):
        latest |= {component: value for component, value in update.items() if value != gr.skip()}
    return latest


def test_the_file_is_offered_and_goes_with_the_visitor(page):
    taking = handlers(page)
    shown_run(taking, "c")
    started = taking.start(request("c"), "replaceme", "merged")
    assert started[taking.panel.go].interactive is False and started[taking.panel.file].visible is False
    shown = follow(taking, "c")
    file = shown.pop(taking.panel.file)
    path = file.value["path"] if isinstance(file.value, dict) else file.value
    assert file.visible and file.label.startswith("Download ReplaceMe, merged (")
    assert "logits differ by 0, perplexity by 0 %" in shown[taking.panel.line] and shown[taking.panel.go].interactive
    with zipfile.ZipFile(path) as archive:
        assert archive.read(archive.namelist()[0]) == b"14-18 replaceme merged"
    del file
    taking.live.leave(request("c"))
    gc.collect()
    assert not Path(path).exists()


def test_stop_works_and_a_second_press_is_answered(page, monkeypatch):
    taking = handlers(page)
    shown_run(taking, "d")

    def slow(asked, cancel=None, limit=None):
        while True:
            cancel.check()
            yield Progress("writing the model", 1, 9)

    monkeypatch.setattr(taking.live.runner, "_run", lambda asked, cancel: slow(asked, cancel))
    assert taking.panel.go in taking.start(request("d"), "ghosted", "adapter")
    assert taking.plan(request("d"), "none", "adapter") == gr.skip()
    assert "already running" in taking.start(request("d"), "none", "adapter")[taking.panel.line]
    assert "Stopping" in taking.end(request("d"))
    shown = follow(taking, "d")
    assert "gl-stopped" in shown[taking.panel.line] and shown[taking.panel.go].interactive
