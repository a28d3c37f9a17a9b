"""Faults on purpose: too little memory, a full disk, damaged files, broken models, a failing Hub: a sentence each."""

import asyncio
import json
import os
import resource
import signal
import time
from dataclasses import replace

import pytest
import tiny
from fake_run import make_run
from hub import serving
from tiny import TINY

from analysis.runner import Runner
from ghosted import cache, machine, models
from ghosted.errors import GhostedError, ModelError, ResourceError
from ghosted.experiment import Experiment
from ghosted.models import LoadedModel
from ghosted.progress import Progress, drain
from ghosted.results.evidence import TaskScore
from ghosted.run import run
from ghosted.scores import tasks
from ghosted.texts import generated
from ghosted.workspace import Workspace

ASKED = Experiment(remove="3-4", methods=("none", "ghosted"), prompt="x", max_new_tokens=3)


def one_sentence(error):
    said = str(error.value)
    assert isinstance(error.value, GhostedError) and "\n" not in said and said.endswith(".") and len(said) < 300
    return said


def out_of_memory(kind):
    import torch

    return {"python": MemoryError(), "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
            "cpu": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried it"),
            "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling it")}[kind]  # fmt: skip


@pytest.mark.parametrize("kind", ["python", "cuda", "cpu", "cublas"])
def test_memory_that_is_not_enough_is_one_sentence_and_the_next_run_works(kind):
    error, faults = out_of_memory(kind), [True]

    def faulty(experiment, cancel=None):
        yield from make_run(pace=0, steps=1, fail=error if faults else None)(experiment, cancel=cancel)

    runner = Runner(faulty, pace=0.01)
    ended = asyncio.run(runner.end(runner.submit("a", ASKED), "a"))
    assert ended.how == "failed" and ended.said == machine.OUT_OF_MEMORY
    faults.clear()
    assert asyncio.run(runner.end(runner.submit("a", replace(ASKED, seed=1)), "a")).how == "finished"


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), RecursionError("deep")])
def test_nothing_that_a_run_does_ends_the_one_worker(error, caplog):
    runner = Runner(make_run(pace=0, steps=1, fail=error), pace=0.01)
    for visitor in "ab":
        ended = asyncio.run(runner.end(runner.submit(visitor, ASKED), visitor))
        assert ended.how == "failed" and type(error).__name__ in ended.said


def test_a_result_that_cannot_be_kept_does_not_end_the_worker_either():
    def fails(job, ended):
        raise MemoryError

    runner = Runner(make_run(pace=0, steps=1), pace=0.01, on_end=fails)
    for visitor in "ab":
        assert asyncio.run(runner.end(runner.submit(visitor, ASKED), visitor)).said == machine.OUT_OF_MEMORY


def test_other_errors_are_not_taken_for_memory():
    others = (RuntimeError("shape"), ValueError("out of memory"), OSError())
    assert not [error for error in others if machine.is_out_of_memory(error)]


# Damaged files of the cache, of every kind


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    machine._measured.cache_clear()
    yield tmp_path / "cache"
    machine._measured.cache_clear()


def made_with(text):
    """Compute something of every kind that is kept; return its numbers."""
    loaded = LoadedModel.of(TINY("llama"), tiny.tokenizer())
    experiment = Experiment(criterion="perplexity", count=2, methods=("none", "ghosted"), text=text, tokens=2048,
                            window=64, windows=2)  # fmt: skip
    found = drain(run(experiment, Workspace(loaded)))
    written = drain(generated.read(model=loaded, seed=1, tokens_needed=16))
    if tasks.kept("key") is None:
        tasks.keep("key", {"ARC-e": TaskScore(0.5, 0.5, 0.1, 10)})
    machine._measured.cache_clear()
    machine._measured()
    return {"remove": found.choice.remove, "error": [m.residual.held_out for m in found.methods],
            "map": found.ranges.after[0].tolist(), "text": written.ids[:16],
            "perplexity": [list(m.perplexity.values()) for m in found.methods],
            "task": vars(tasks.kept("key")["ARC-e"])}  # fmt: skip


def damage(path, how):
    data = path.read_bytes()
    path.write_bytes({"truncated": data[: len(data) // 2], "flipped": data[:-1] + bytes([data[-1] ^ 1])}[how])


@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_a_damaged_file_of_every_kind_is_noticed_removed_and_made_anew(own_cache, text, how, monkeypatch):
    monkeypatch.setattr(generated, "ROWS", 4)
    monkeypatch.setattr(generated, "LENGTH", 8)
    monkeypatch.setattr(machine, "measure_dtypes", lambda: {"fastest": "float32", "float32": 1.0, "bfloat16": 2.0})
    first = made_with(text)
    files = [path for path in own_cache.glob("*/*/*") if path.name != "entry.json" and path.is_file()]
    kinds = {path.parent.parent.name for path in files}
    assert kinds == {"calibrations", "choices", "machine", "maps", "scores", "texts"}
    for path in files:
        damage(path, how)
    again = made_with(text)
    assert str(again) == pytest.approx(str(first)) or again == first
    fresh = cache.Cache(own_cache)
    for path in files:
        assert fresh.get(path.parent.parent.name, path.parent.name) is not None, path


def test_an_entry_that_is_whole_but_means_nothing_is_removed_too(own_cache, text):
    entry = cache.put("scores", "key", lambda folder: (folder / "tasks.json").write_text("[]"))
    assert tasks.kept("key") is None and not entry.exists()
    entry = cache.put("scores", "key", lambda folder: (folder / "other.json").write_text("{}"))
    assert tasks.kept("key") is None and not entry.exists()


@pytest.mark.soak
def test_a_damaged_converted_model_is_converted_again(own_cache, tmp_path):
    import gguf_file

    words = ["<s>", "</s>", "a", "b", "ab", *(f"w{i}" for i in range(tiny.VOCABULARY - 5))]
    gguf_file.llama(tmp_path / "tiny.gguf", TINY("llama"), words)
    loaded = drain(models.load(str(tmp_path / "tiny.gguf"), dtype="float32"))
    (weights,) = own_cache.glob("models/*/model.safetensors")
    damage(weights, "flipped")
    again = drain(models.load(str(tmp_path / "tiny.gguf"), dtype="float32"))
    assert again.fingerprint == loaded.fingerprint


# A full disk


@pytest.fixture
def full_disk():
    """Let no file grow past 8 KiB, as a disk would that is nearly full: every library's own way of writing fails."""
    ignored, before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("writer", ["bytes", "safetensors", "numpy"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(own_cache, full_disk, writer):
    import numpy as np
    import torch
    from safetensors.torch import save_file

    write = {"bytes": lambda folder: (folder / "x").write_bytes(bytes(20_000)),
             "safetensors": lambda folder: save_file({"x": torch.zeros(9000)}, folder / "x.safetensors"),
             "numpy": lambda folder: np.savez(folder / "x.npz", x=np.zeros(9000))}[writer]  # fmt: skip
    with pytest.raises(ResourceError, match=r"cannot be written .* free some space") as error:
        cache.put("things", "a", write)
    one_sentence(error)
    assert not [path for path in own_cache.glob("things/*") if path.is_dir()] and cache.get("things", "a") is None


def test_a_run_needs_no_disk(own_cache, text, full_disk):
    loaded = LoadedModel.of(TINY("llama"), tiny.tokenizer())
    experiment = Experiment(remove="2-3", methods=("none", "ghosted"), text=text, tokens=2048, window=64, windows=2)
    found = drain(run(experiment, Workspace(loaded), parts=("boundary",)))
    assert found.method("ghosted").residual.held_out < 2
    assert not list(own_cache.glob("calibrations/*/entry.json"))


@pytest.fixture
def slow_disk(monkeypatch):
    """A disk that takes a third of a second for whatever it makes sure of."""
    sync = os.fsync

    def late(descriptor):
        waited.append(time.sleep(0.3))
        return sync(descriptor)

    waited = []
    monkeypatch.setattr(os, "fsync", late)
    return waited


def test_a_slow_disk_changes_no_number_and_stop_is_answered_in_time(own_cache, text, slow_disk):
    asked = Experiment(remove="2-3", methods=("none", "ghosted"), text=text, tokens=2048, window=64, windows=2)
    loaded = LoadedModel.of(TINY("llama"), tiny.tokenizer())
    found = [drain(run(asked, Workspace(loaded), parts=("boundary",))) for _ in range(2)]  # written, then read again
    before = len(slow_disk)
    assert before > 3
    errors = [one.method("ghosted").residual.held_out for one in found]
    assert errors[0] == pytest.approx(errors[1], rel=1e-9)

    runner = Runner(lambda experiment, cancel: run(experiment, Workspace(loaded), cancel=cancel), pace=0.02)
    job = runner.submit("a", replace(asked, tokens=1024))
    while not slow_disk[before:]:
        time.sleep(0.01)
    start = time.monotonic()
    runner.stop("a")
    while runner.busy:
        time.sleep(0.01)
    assert asyncio.run(runner.end(job, "a")).how == "stopped" and time.monotonic() - start < 2
    left = [path.name for path in own_cache.rglob("*") if path.is_dir() and path.name.startswith((".", "tmp"))]
    assert left == [], "nothing half-written stays"


# Broken models


def broken(name, value):
    model = tiny.build(tiny.config_of("llama"))
    model.get_parameter(name).view(-1)[0] = value
    return LoadedModel.of(model, tiny.tokenizer())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["model.layers.3.mlp.down_proj.weight", "lm_head.weight"])
def test_weights_that_are_not_numbers_are_one_sentence(text, name, value):
    experiment = Experiment(remove="1", methods=("none", "ghosted"), text=text, tokens=1024, window=64, windows=1,
                            prompt="a", max_new_tokens=2)  # fmt: skip
    try:
        found = drain(run(experiment, Workspace(broken(name, value))))
    except GhostedError as error:
        assert "\n" not in str(error) and ("finite" in str(error) or "not numbers" in str(error))
    else:  # the states are sound where only the head is broken: what it says is not
        said = " ".join(found.warnings + [column.error or "" for column in found.columns])
        assert "no finite perplexity" in said or "not numbers" in said


@pytest.mark.parametrize(("fault", "says"), [
    ("raises", "The tokenizer of this model fails (TypeError: no"), ("foreign", "ids that the model does not know"),
])  # fmt: skip
def test_a_tokenizer_that_fails_is_one_sentence(text, fault, says):
    tokenizer = tiny.tokenizer()
    loaded = LoadedModel.of(TINY("llama"), tokenizer)

    class Broken:
        def __call__(self, text, **settings):
            if fault == "raises":
                raise TypeError("no\nsecond line")
            return {"input_ids": [10**6] * max(1, len(text))}

        def __getattr__(self, name):
            return getattr(tokenizer, name)

    loaded.bos_id  # noqa: B018  # known before
    loaded.tokenizer = Broken()
    with pytest.raises(ModelError) as error:
        drain(run(Experiment(remove="2", text=text, tokens=512, window=64), Workspace(loaded)))
    assert says in one_sentence(error)


# The Hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    from huggingface_hub import constants

    with serving() as (stand_in, address):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE",
                            address + "/{repo_id}/resolve/{revision}/{filename}")
        for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE"):
            monkeypatch.setattr(constants, name, str(tmp_path / "hub") if name == "HF_HUB_CACHE" else False)
        for name, value in (("HF_ENDPOINT", address), ("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1")):
            monkeypatch.setenv(name, value)
        yield stand_in


@pytest.mark.parametrize(("status", "says"), [
    (401, "does not let you read|There is no"), (403, "does not let you read"), (404, "There is no|lacks|cannot be"),
    (429, "too many requests"), (500, "its error 500"), (503, "its error 503"),
])  # fmt: skip
def test_every_answer_of_the_hub_is_one_sentence(hub, tmp_path, status, says):
    hub.folders["someone/tiny"] = tmp_path
    hub.failing["someone/tiny"] = status
    with pytest.raises(GhostedError, match=says) as error:
        models.describe("someone/tiny")
    one_sentence(error)


def test_a_hub_that_fails_in_the_middle_is_one_sentence(hub, tmp_path, monkeypatch):
    TINY("llama").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(machine, "fastest_dtype", lambda: "float32")
    hub.folders["someone/tiny"] = tmp_path
    models.describe("someone/tiny")
    hub.failing["someone/tiny/resolve"] = 403
    steps, seen = models.load("someone/tiny"), []
    with pytest.raises(GhostedError, match=r"stopped before its end|does not let you") as error:
        for event in steps:
            seen.append(event)
    one_sentence(error)
    assert all(isinstance(event, Progress) for event in seen)
    assert json.dumps([event.stage for event in seen])
