"""A model that accelerate spreads over memory and disk calibrates, solves, prunes and writes as in one piece."""

import json

import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from tiny import FAMILIES, build, config_of, logits_of, prompt_ids, tokenizer

from ghosted import models, operators
from ghosted.calibration import calibrate
from ghosted.errors import InputError, ResourceError
from ghosted.generation import generate
from ghosted.merge import merged_view
from ghosted.models import LoadedModel, device_map
from ghosted.models.placement import execution_device, is_placed
from ghosted.progress import drain
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.states import hidden_forward, recording
from ghosted.texts import pack

NEEDS = frozenset({"state", "feed_forward", "ratios"})
REMOVED = RemovedBlocks.parse("2-3")


def windows(tokens, seed=1):
    ids = torch.randint(0, 250, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    return pack(ids, start=0, tokens=tokens, window=40, bos_id=None, text="random", digest=str(seed))


def spread(how, folder, family="llama", **changes):
    model = build(config_of(family, **changes))
    if how == "memory":
        return cpu_offload(model, execution_device=torch.device("cpu"))
    if how == "disk":
        return disk_offload(model, str(folder), execution_device=torch.device("cpu"))
    parts = {name: "disk" if any(f".{i}" in f".{name}" for i in (1, 4)) else "cpu" for name in placed(model)}
    return dispatch_model(model, parts, main_device="cpu", offload_dir=str(folder), force_hooks=True)


def placed(model):
    """The parts of a llama that a device map names."""
    names = [f"model.layers.{i}" for i in range(6)]
    return [*names, *(n for n, _ in model.named_children() if n != "model"),
            *(f"model.{n}" for n, _ in model.model.named_children() if n != "layers")]  # fmt: skip


@pytest.fixture(params=("memory", "disk", "both"))
def model(request, tmp_path):
    return spread(request.param, tmp_path)


def fitted(model):
    loaded = LoadedModel.of(model, tokenizer())
    found = drain(calibrate(loaded, windows(600), windows(80, 2), REMOVED.gaps, NEEDS, store_bytes=2**24))
    settings, names = operators.Settings(), ("ghosted", "replaceme")
    fits = {name: operators.method(name).fit(found.gaps["2-3"], settings) for name in names}
    return loaded, found, fits


def test_a_spread_model_gives_the_same_operator_the_same_logits_and_the_same_text(model):
    whole, spread_ = fitted(build(config_of("llama"))), fitted(model)
    assert is_placed(model) and not is_placed(whole[0].model)
    assert spread_[0].device == "cpu" and spread_[0].fingerprint == whole[0].fingerprint
    ids = prompt_ids(30)
    for name in ("ghosted", "replaceme"):
        assert torch.equal(spread_[2][name].M, whole[2][name].M), name
        repairs = [Repair(REMOVED.gaps[0], whole[2][name].feature, whole[2][name].M.float())]
        views = [pruned_view(loaded.model, REMOVED, repairs) for loaded in (whole[0], spread_[0])]
        assert torch.equal(logits_of(views[1], ids), logits_of(views[0], ids)), name
        texts = [drain(generate({"original": each[0].model, name: view}, tokenizer(), "Once", max_new_tokens=8))
                 for each, view in zip((whole, spread_), views, strict=True)]  # fmt: skip
        assert [c.text for c in texts[0].columns] == [c.text for c in texts[1].columns]
        assert not any(c.error for c in texts[1].columns)


def test_kept_states_of_a_spread_model_serve_other_gaps(model):
    _, found, _ = fitted(model)
    gap = range(1, 3)
    stored = drain(found.statistics(gap, NEEDS))
    fresh = drain(fitted(build(config_of("llama")))[1].statistics(gap, NEEDS))
    assert all(torch.equal(stored.sums[name], fresh.sums[name]) for name in fresh.sums)


def test_views_of_a_spread_model_hold_no_weights_of_their_own(tmp_path):
    model = spread("memory", tmp_path)
    view = pruned_view(model, REMOVED)
    with recording(view) as recorder:
        hidden_forward(view, prompt_ids(10))
    assert len(recorder.states) == 5
    assert all(p.is_meta for p in view.model.layers.parameters())
    maps = [m.model.layers[0].mlp.down_proj._hf_hook.weights_map for m in (model, view)]
    assert maps[0] is maps[1]


def test_a_repair_merges_into_weights_that_are_not_resident(model):
    (_, _, fits), ids = fitted(build(config_of("llama"))), prompt_ids(30)
    repairs = [Repair(REMOVED.gaps[0], "feed_forward", fits["replaceme"].M.float())]
    before = logits_of(model, ids)
    merged = merged_view(model, REMOVED, repairs)
    expected = merged_view(build(config_of("llama")), REMOVED, repairs)
    assert torch.equal(logits_of(merged, ids), logits_of(expected, ids))
    assert torch.equal(logits_of(model, ids), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_spread(family, tmp_path):
    whole, apart = build(config_of(family)), spread("memory", tmp_path, family)
    ids = prompt_ids(12)
    M = torch.randn(32, 32, generator=torch.Generator().manual_seed(0)) * 0.1
    repairs = [Repair(REMOVED.gaps[0], "state", M)]
    first, second = (logits_of(pruned_view(m, REMOVED, repairs), ids) for m in (whole, apart))
    assert torch.equal(first, second)
    assert execution_device(apart) == torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    build(config_of("llama")).save_pretrained(tmp_path / "tiny")
    tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_a_device_map_in_a_file_spreads_what_is_read(folder, tmp_path, monkeypatch):
    whole = drain(models.load(str(folder), dtype="float32"))
    parts = {name: "disk" if name.endswith((".1", ".4")) else "cpu" for name in placed(whole.model)}
    (tmp_path / "map.json").write_text(json.dumps(parts))
    monkeypatch.setenv("GHOSTED_DEVICE_MAP", str(tmp_path / "map.json"))
    apart = drain(models.load(str(folder), dtype="float32"))
    assert is_placed(apart.model) and next(apart.model.model.layers[1].parameters()).is_meta
    assert apart.fingerprint == whole.fingerprint
    assert torch.equal(logits_of(apart.model, prompt_ids(20)), logits_of(whole.model, prompt_ids(20)))


def test_what_fits_one_device_is_not_spread_and_what_fits_none_is_refused(folder, monkeypatch):
    facts = models.describe(str(folder))
    monkeypatch.setattr("ghosted.machine.available_memory", lambda device=None: 1000)
    with pytest.raises(ResourceError, match="choose a smaller model"):
        facts.check_memory()
    monkeypatch.setenv("GHOSTED_DEVICE_MAP", "disk")
    facts.check_memory()
    assert device_map.choose(10**9)["device_map"] == "auto"
    assert device_map.choose(10) == {}
    monkeypatch.setenv("GHOSTED_DEVICE_MAP", "nothing.json")
    with pytest.raises(InputError, match="must be auto, none, disk"):
        device_map.choose(10)
