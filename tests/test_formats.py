"""CASES 8 and 10: an exported model reads back as the model it was made from, in every family, or is refused."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from exports import repaired, windows
from safetensors import SafetensorError
from safetensors.torch import save_file
from tiny import BLOCKS, FAMILIES, TINY, WIDTH, build, config_of, logits_of, prompt_ids

import ghosted
from ghosted import formats
from ghosted.adapter import Adapter
from ghosted.errors import InputError, ModelError, NotDefined, ResourceError
from ghosted.formats import _place, mergekit
from ghosted.merge import merged_view
from ghosted.progress import CancelFlag, drain
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks

REPO = Path(__file__).parent.parent
POST_NORM = ("gemma2", "gemma3_text", "olmo2")
IDS = prompt_ids(20, rows=2)


def written(model, form, folder):
    """The files of one format, without the check in a new process."""
    folder.mkdir(parents=True)
    module, ghost = formats.formats()[form], model.ghost(form)
    module.refuse(model)
    module.write(model, ghost, folder)
    (folder / "ghost.json").write_text(ghost.to_text())
    return folder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A checkpoint with two gaps of each family, and the logits of the page's own repaired model."""
    root = tmp_path_factory.mktemp("checkpoints")
    for name in FAMILIES:
        model = repaired(name)
        written(model, "checkpoint", root / name)
        save_file({"logits": logits_of(model.view(), IDS)}, root / f"{name}.logits")
    return root


JOB = """
    import json, sys, torch
    from pathlib import Path
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    ids = torch.randint(0, 256, (2, 20), generator=torch.Generator().manual_seed(3))
    for folder in sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir()):
        model, info = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
        with torch.inference_mode():
            found = model(input_ids=ids, use_cache=False).logits
            made = [model.generate(ids[:1], max_new_tokens=8, do_sample=False, use_cache=c, pad_token_id=0).tolist()
                    for c in (True, False)]
        same = (found - load_file(f"{folder}.logits")["logits"]).abs().max().item()
        print(json.dumps([folder.name, same, sum(map(len, info.values())), made[0] == made[1],
                          model.config.text_config.num_hidden_layers, "ghosted" in sys.modules]))
"""


def test_plain_transformers_loads_and_generates_in_every_family(checkpoints, tmp_path):
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(JOB), str(checkpoints)], capture_output=True,
                          text=True, env=environment, timeout=120, cwd=tmp_path)  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines == [[name, 0.0, 0, True, BLOCKS - 3, False] for name in sorted(FAMILIES)], done.stderr[-2000:]


@pytest.mark.parametrize("name", FAMILIES)
def test_our_own_loader_reads_a_checkpoint_without_its_code_and_saves_it_again(name, checkpoints, tmp_path):
    folder = checkpoints / name
    code = (folder / "modelling_ghosted.py").read_text()
    try:
        (folder / "modelling_ghosted.py").write_text("raise SystemExit('the code of a folder was run')")
        model = ghosted.load(folder)
    finally:
        (folder / "modelling_ghosted.py").write_text(code)
    expected = logits_of(repaired(name).view(), IDS)
    assert torch.equal(logits_of(model, IDS), expected)
    model.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "modelling_ghosted.py").read_text() == code
    (tmp_path / "again" / "ghost.json").write_text((folder / "ghost.json").read_text())
    assert torch.equal(logits_of(ghosted.load(tmp_path / "again"), IDS), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_adapter_turns_its_base_into_the_repaired_model(name, tmp_path):
    model, base = repaired(name), TINY(name)
    before = logits_of(base, IDS)
    folder = written(model, "adapter", tmp_path / "adapter")
    found = ghosted.apply(base, folder)
    assert torch.equal(logits_of(found, IDS), logits_of(model.view(), IDS))
    assert torch.equal(logits_of(base, IDS), before)
    shared = {p.data_ptr() for p in base.parameters()}
    assert sum(p.numel() for p in found.parameters() if p.data_ptr() not in shared) == 2 * WIDTH**2
    stored = (folder / "ghost.safetensors").stat().st_size
    assert 0 <= stored - 2 * 4 * WIDTH**2 < 4_096


@pytest.mark.parametrize("method", ["none", "scalar", "low-rank", "normalised", "replaceme", "best"])
def test_every_kind_of_repair_survives_both_formats(method, tmp_path):
    model = repaired("mistral", method)
    expected = logits_of(model.view(), IDS)
    adapter = ghosted.apply(TINY("mistral"), written(model, "adapter", tmp_path / "adapter"))
    assert torch.equal(logits_of(adapter, IDS), expected)
    assert torch.equal(logits_of(ghosted.load(written(model, "checkpoint", tmp_path / "checkpoint")), IDS), expected)
    assert (tmp_path / "checkpoint" / "modelling_ghosted.py").exists() is (method != "none")


@pytest.mark.parametrize("remove", ["0-1", "4-5", "0,2,5"])
def test_gaps_at_the_ends(remove, tmp_path):
    model = repaired("falcon", remove=remove)
    loaded = ghosted.load(written(model, "checkpoint", tmp_path / "checkpoint"))
    assert torch.equal(logits_of(loaded, IDS), logits_of(model.view(), IDS))


def test_the_operator_stays_float32_in_a_bfloat16_checkpoint(tmp_path):
    folder = written(repaired("llama"), "checkpoint", tmp_path / "checkpoint")
    model = ghosted.load(folder, dtype="bfloat16")
    assert {p.dtype for p in model.repairs.parameters()} == {torch.float32}
    assert {p.dtype for p in model.model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("name", FAMILIES)
def test_merged_where_it_is_exact_and_refused_with_its_reason_elsewhere(name, tmp_path):
    model = repaired(name, "replaceme")
    if name in POST_NORM:
        with pytest.raises(NotDefined, match="normalises"):
            written(model, "merged", tmp_path / "merged")
        return
    folder = written(model, "merged", tmp_path / "merged")
    found = logits_of(ghosted.load(folder), IDS)
    assert torch.equal(found, logits_of(merged_view(TINY(name), model.removed, model.repairs), IDS))
    assert (found - logits_of(model.view(), IDS)).abs().max() < 1e-4
    assert not list(folder.glob("*.py")) and "auto_map" not in (folder / "config.json").read_text()


def test_what_cannot_be_merged_or_cut_by_a_recipe_is_refused_before_any_work(tmp_path):
    for form, method in (("merged", "ghosted"), ("merged", "best"), ("mergekit", "replaceme")):
        with pytest.raises(InputError, match=f"{method} cannot"):
            formats.check_request(form, method, tmp_path / "out")
    with pytest.raises(InputError, match="no export format"):
        formats.check_request("gguf", "ghosted", tmp_path / "out")
    scaled = repaired(method="ghosted", model=build(config_of("gpt2-scaled")))
    with pytest.raises(NotDefined, match="number of the block"):
        written(scaled, "checkpoint", tmp_path / "scaled")


@pytest.mark.parametrize("remove", ["", "2-3", "0,2,5"])
def test_a_mergekit_recipe_keeps_the_blocks_that_the_app_keeps(remove, tmp_path):
    model = repaired("llama", "none", remove)
    folder = written(model, "mergekit", tmp_path / "recipe")
    recipe = yaml.safe_load((folder / mergekit.FILE).read_text())
    kept = [block for part in recipe["slices"] for source in part["sources"] for block in range(*source["layer_range"])]
    assert tuple(kept) == model.removed.survivors(BLOCKS)
    assert (recipe["merge_method"], recipe["dtype"]) == ("passthrough", "float32")
    # What mergekit would stack, by hand.
    layers = TINY("llama").model.layers
    built = build(config_of("llama", num_hidden_layers=len(kept)))
    weights = {name: tensor for name, tensor in TINY("llama").state_dict().items() if ".layers." not in name}
    for place, block in enumerate(kept):
        weights |= {f"model.layers.{place}.{name}": tensor for name, tensor in layers[block].state_dict().items()}
    built.load_state_dict(weights)
    assert torch.equal(logits_of(built, IDS), logits_of(pruned_view(TINY("llama"), model.removed), IDS))


def test_an_export_is_checked_in_a_new_process_before_it_is_there(tmp_path):
    done = drain(formats.export(repaired("llama"), "adapter", tmp_path / "out"))
    assert (done.check["logits"], done.check["perplexity"]) == (0.0, 0.0)
    assert set(done.files) == {"README.md", "check.json", "ghost.json", "ghost.safetensors"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert formats.unseal(tmp_path / "out")["logits"] == 0.0
    with pytest.raises(InputError, match="there already"):
        drain(formats.export(repaired("llama"), "adapter", tmp_path / "out"))
    (tmp_path / "out" / "README.md").write_text("changed")
    with pytest.raises(InputError, match=r"changed after its check \(README.md\)"):
        formats.unseal(tmp_path / "out")


def test_a_failed_check_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    from ghosted.formats import adapter

    def wrong(model, ghost, folder):
        spoilt = repaired("llama")
        Adapter(ghost, [{name: 1.01 * tensor for name, tensor in fit.tensors().items()} for fit in spoilt.fits]).write(
            folder)

    monkeypatch.setattr(adapter, "write", wrong)
    with pytest.raises(ModelError, match=r"Nothing was exported: .* its logits differ by"):
        drain(formats.export(repaired("llama"), "adapter", tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("answer", "sentence"), [
    ({"error": "it cannot be read"}, "cannot be read"), ({"keys": ["lm_head.weight"]}, "lm_head.weight"),
    ({"logits": 1e-6}, "logits differ"), ({"perplexity": 1e-9}, "perplexity differs"),
    ({"perplexity": float("nan")}, "perplexity differs"), ({"cache": 1.0}, "without its cache"),
])  # fmt: skip
def test_what_a_check_may_find(answer, sentence):
    from ghosted.formats._round_trip import _judge

    good = {"logits": 0.0, "keys": [], "cache": 0.0, "rounding": 1e-4, "perplexity": 0.0}
    _judge(good, 0.0)
    _judge(good | {"logits": 1e-3, "perplexity": -4e-3}, 0.005)
    with pytest.raises(ModelError, match=sentence):
        _judge(good | answer, 0.0)


def only_files(monkeypatch):
    """Leave the new process out."""
    monkeypatch.setattr(formats.formats()["adapter"], "LIMIT", None)


def test_only_an_export_of_ours_is_overwritten_and_only_when_told_to(tmp_path, monkeypatch):
    only_files(monkeypatch)
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()  # an empty folder may be filled
    drain(formats.export(repaired("llama"), "adapter", mine))
    drain(formats.export(repaired("llama", remove="2-3"), "adapter", mine, overwrite=True))
    assert Adapter.read(mine).ghost.removed == "2-3"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="not an export of this program"):
        drain(formats.export(repaired("llama"), "adapter", other, overwrite=True))
    link = tmp_path / "link"
    link.symlink_to(mine)
    with pytest.raises(InputError, match="not an export"):
        drain(formats.export(repaired("llama"), "adapter", link, overwrite=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "mine", "other"]


@pytest.mark.parametrize("error", [
    OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device (os error 28)"),
])  # fmt: skip
def test_a_full_disk_is_one_sentence_and_leaves_nothing(error, tmp_path, monkeypatch):
    only_files(monkeypatch)

    def full(*_):
        raise error

    monkeypatch.setattr(Adapter, "write", full)
    with pytest.raises(ResourceError, match=r"\(No space left on device\); free some space or name a "):
        drain(formats.export(repaired("llama"), "adapter", tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("free", "said"), [
    (100, r"takes 8\.4 kB of disk and 0\.1 kB are free; free some space or name a folder on another disk"),
    (8_353, r"takes 8\.36 kB of disk and 8\.35 kB are free"),
])  # fmt: skip
def test_too_little_space_is_said_beforehand(free, said, tmp_path, monkeypatch):
    only_files(monkeypatch)
    monkeypatch.setattr(_place.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises(ResourceError, match=said):
        drain(formats.export(repaired("llama"), "adapter", tmp_path / "new" / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said_before_anything_is_computed(tmp_path):
    (tmp_path / "file").write_text("x")
    for out, reason in (
        (tmp_path / "file" / "out", "Not a directory"), (tmp_path / "file" / "a" / "b", "Not a directory"),
        ("/proc/x", "No such file or directory"), (tmp_path / ("x" * 250), "File name too long"),
        ("/sys/x", "Operation not permitted|Permission denied|Read-only file system"),
    ):  # fmt: skip
        with pytest.raises(ResourceError, match=rf"cannot be written \(({reason})\); name another folder\.$"):
            formats.check_request("adapter", "ghosted", out)
    for out in ("", "  ", "a\0b", None, 5):
        with pytest.raises(InputError, match="Name the folder to make"):
            formats.check_request("adapter", "ghosted", out)
    assert formats.check_request("adapter", "ghosted", tmp_path / "new" / "deep" / "out").name == "out"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_stopped_export_leaves_nothing(tmp_path):
    cancel = CancelFlag()
    cancel.set()
    with pytest.raises(ghosted.errors.Cancelled):
        drain(formats.export(repaired("llama"), "adapter", tmp_path / "out", cancel=cancel))
    assert list(tmp_path.iterdir()) == []


KILLED = """
    import sys, time
    sys.path[:0] = sys.argv[2:]
    from exports import repaired
    from ghosted import formats
    from ghosted.progress import drain
    formats.formats()["adapter"].write = lambda *_: time.sleep(60)
    drain(formats.export(repaired("llama"), "adapter", sys.argv[1]))
"""


def test_a_killed_export_leaves_no_folder_and_the_next_one_sweeps(tmp_path, monkeypatch):
    only_files(monkeypatch)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(out), str(REPO / "tests"), str(REPO)]
    )
    try:
        for _ in range(600):
            if list(tmp_path.glob(".out.ghosted-*/export")):
                break
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    assert not out.exists() and list(tmp_path.glob(".out.ghosted-*"))
    drain(formats.export(repaired("llama"), "adapter", out))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_card_says_recipe_numbers_protocol_and_licence(tmp_path):
    from ghosted.formats._card import card

    said = card(repaired("llama").ghost("checkpoint"), lines=140)
    parts = ("removes blocks 1, 3–4 (3 of 6)", "`ghosted`", "0.5", "12.5", "trust_remote_code", "140 lines", "licence")
    for part in parts:
        assert part in said, part
    assert "/" + str(tmp_path).split("/")[1] not in said
    recipe = card(repaired("llama", "none").ghost("mergekit"))
    assert "not on the Hub: put its folder in the place of its name" in recipe and "save_pretrained" in recipe
    plain = card(repaired("llama", "replaceme").ghost("merged"))
    assert "trust_remote_code" not in plain and "merged into its weights" in plain


def test_windows_of_the_check_are_text_that_was_scored():
    model = repaired("llama")
    assert model.slices.calibration.tokens == windows().tokens
    assert RemovedBlocks.parse(model.ghost("adapter").removed) == model.removed


@pytest.mark.parametrize("form", ["checkpoint", "merged"])
def test_a_base_in_several_files_makes_an_export_in_several_files(form, tmp_path, monkeypatch):
    from ghosted.formats import _folder

    TINY("llama").save_pretrained(tmp_path / "base", max_shard_size="60KB")
    largest = max(path.stat().st_size for path in (tmp_path / "base").glob("*.safetensors"))
    assert len(list((tmp_path / "base").glob("*.safetensors"))) > 3
    model = repaired("llama", "replaceme")
    assert _folder.shard_bytes(model.loaded) == _folder.SHARD
    facts = dataclasses.replace(model.loaded.facts, name=str(tmp_path / "base"), kind="folder")
    monkeypatch.setattr(model.loaded, "facts", facts)
    assert _folder.shard_bytes(model.loaded) == largest
    folder = written(model, form, tmp_path / "out")
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files) and len(files) > 1
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert all((folder / name).stat().st_size <= largest + 4_096 for name in files)
    expected = model.view() if form == "checkpoint" else merged_view(TINY("llama"), model.removed, model.repairs)
    assert torch.equal(logits_of(ghosted.load(folder), IDS), logits_of(expected, IDS))
