"""What cannot be explored is refused in one sentence, before its weights are fetched (CASES 12, 24)."""

import json
import shutil
import time

import hub as hub_stand_in
import pytest
import tiny
from tiny import TINY

from ghosted import machine, models
from ghosted.errors import GhostedError, ModelError, ResourceError
from ghosted.models import facts as facts_of
from ghosted.progress import drain


def one_sentence(error):
    text = str(error.value)
    assert isinstance(error.value, GhostedError) and "\n" not in text and text.endswith((".", "?")) and len(text) < 300
    return text


def folder_of(tmp_path, **config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def config_json(model_type, **changes):
    from transformers import AutoConfig

    return AutoConfig.for_model(model_type, **changes).to_dict() | {"model_type": model_type}


@pytest.fixture
def float32(monkeypatch):
    monkeypatch.setattr(machine, "fastest_dtype", lambda: "float32")


KINDS = {
    "t5": "encoder-decoder", "bart": "encoder-decoder", "bert": "is an encoder", "roberta": "is an encoder",
    "mamba": "state-space", "mamba2": "state-space", "rwkv": "state-space", "jamba": "state-space",
    "vit": "not a language model", "clip": "not a language model", "gemma3": "more than text",
}  # fmt: skip


@pytest.mark.parametrize("model_type", KINDS)
def test_other_kinds_of_model_are_refused(tmp_path, model_type):
    folder = folder_of(tmp_path, **config_json(model_type))
    with pytest.raises(ModelError, match=KINDS[model_type]) as error:
        models.describe(folder)
    assert model_type in one_sentence(error)
    with pytest.raises(ModelError, match=KINDS[model_type]):
        drain(models.load(folder))


BROKEN = {
    "unknown": ({"model_type": "hypernet9"}, "unknown architecture"),
    "own code": ({"model_type": "hypernet9", "auto_map": {"AutoModel": "x.Y"}}, "never run"),
    "none": ({}, "unknown architecture"),
    "layers": (config_json("llama") | {"num_hidden_layers": 10**9}, "num_hidden_layers|does not describe"),
    "zero": (config_json("llama") | {"num_hidden_layers": 0}, "num_hidden_layers|does not describe"),
    "width": (config_json("llama") | {"hidden_size": "wide"}, "does not describe|hidden_size"),
    "odd heads": (config_json("llama") | {"hidden_size": 7, "head_dim": -3}, "does not describe"),
    "quantised": (config_json("llama") | {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_configs_that_make_no_sense_are_refused(tmp_path, case):
    config, says = BROKEN[case]
    with pytest.raises(ModelError, match=says) as error:
        models.describe(folder_of(tmp_path, **config))
    one_sentence(error)


def test_folders_without_a_model_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        models.describe(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        models.describe(str(tmp_path))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError, match="cannot be read"):
        models.describe(str(tmp_path))


def test_a_model_that_does_not_fit_is_refused_before_its_weights(tmp_path, float32):
    big = config_json("llama", hidden_size=16384, intermediate_size=53248, num_hidden_layers=126,
                      num_attention_heads=128, num_key_value_heads=8, vocab_size=128256)
    folder = folder_of(tmp_path, **big)
    facts = models.describe(folder, refuse_too_large=False)
    assert facts.blocks == 126 and 400e9 < facts.parameters < 410e9
    for attempt in (lambda: models.describe(folder), lambda: drain(models.load(folder))):
        with pytest.raises(ResourceError, match="billion parameters and needs about") as error:
            attempt()
        one_sentence(error)


def test_memory_is_weights_and_some(float32, monkeypatch):
    facts = facts_of.ModelFacts("m", "m", "hub", "llama", 1, 1, 1, parameters=10**9)
    assert facts.weights_bytes("bfloat16") == 2 * 10**9 and facts.weights_bytes() == 4 * 10**9
    assert facts.memory("bfloat16") == int(2.4e9) + 500_000_000
    monkeypatch.setattr(machine, "available_memory", lambda device=None: facts.memory("bfloat16"))
    facts.check_memory("bfloat16")
    with pytest.raises(ResourceError):
        facts.check_memory("float32")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt2", "openai-community/gpt2"),
        ("smollm2-135", "did you mean smollm2-135m"),
        ("nonsense", "catalogue"),
        ("", "No model is named"),
        ("a\nb", "No model is named"),
        ("./missing", "no model folder"),
        ("missing/folder/here", "no model folder"),
        ("missing.gguf", "There is no file"),
        ("../up", "no model folder"),
        ("owner/..", "catalogue"),
        ("owner/na me", "catalogue"),
    ],
)
def test_names_that_lead_nowhere_are_told_without_a_fetch(name, says, monkeypatch):
    import huggingface_hub

    def never(*args, **settings):
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", never)
    with pytest.raises(ModelError, match=says) as error:
        models.describe(name)
    one_sentence(error)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"not a \.gguf"):
        models.describe(str(tmp_path / "x.bin"))
    with pytest.raises(ModelError, match="not a revision"):
        models.describe("owner/name", revision="../../x")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tiny Llama as its authors would publish it, with files beside it that must not be fetched."""
    folder = tmp_path_factory.mktemp("saved")
    TINY("llama").save_pretrained(folder)
    tiny.tokenizer(bos=True).save_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling.py").write_text("raise SystemExit")
    (folder / "README.md").write_text("words")
    return folder


@pytest.fixture
def hub(tmp_path, monkeypatch, float32):
    from huggingface_hub import constants

    cache = str(tmp_path / "hub")
    with hub_stand_in.serving() as (stand_in, address):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        for name, value in (("HF_ENDPOINT", address), ("HF_HUB_CACHE", cache), ("HF_HUB_OFFLINE", "0"),
                            ("HF_HUB_DISABLE_XET", "1"), ("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1")):
            monkeypatch.setenv(name, value)
        yield stand_in


def test_a_hub_model_is_described_then_fetched(hub, saved):
    hub.folders["someone/tiny"] = saved
    facts = models.describe("someone/tiny")
    assert (facts.kind, facts.blocks, facts.width, facts.cached) == ("hub", 6, 32, False)
    assert facts.parameters == sum(p.numel() for p in TINY("llama").parameters())
    assert facts.revision == hub_stand_in.COMMIT
    weights = (saved / "model.safetensors").stat().st_size
    assert weights < facts.download_bytes < weights + 200_000
    assert not any("safetensors" in path for path in hub.asked)  # described before any weights

    loaded = drain(models.load("someone/tiny"))
    assert loaded.bos_id == tiny.BOS and loaded.dtype == "float32"
    for name, parameter in loaded.model.named_parameters():
        assert parameter.equal(TINY("llama").get_parameter(name)), name
    fetched = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert fetched >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not fetched & {"pytorch_model.bin", "modeling.py", "README.md"}
    assert models.describe("someone/tiny").cached


def test_what_the_hub_says_becomes_one_sentence(hub, saved, tmp_path):
    hub.folders |= {"someone/tiny": saved, "someone/gated": saved}
    hub.gated.add("someone/gated")
    for name, revision, says in (
        ("someone/missing", None, "There is no someone/missing"),
        ("someone/gated", None, "is gated"),
        ("someone/tiny", "v9", "no such revision"),
    ):
        with pytest.raises(ModelError, match=says) as error:
            models.describe(name, revision)
        one_sentence(error)

    pickled = tmp_path / "pickled"
    shutil.copytree(saved, pickled)
    (pickled / "model.safetensors").unlink()
    hub.folders["someone/pickled"] = pickled
    with pytest.raises(ModelError, match=r"no \.safetensors weights"):
        models.describe("someone/pickled")
    (pickled / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no config\.json"):
        models.describe("someone/pickled")
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    folder_of(encoder, **config_json("bert"))
    hub.folders["someone/encoder"] = encoder
    with pytest.raises(ModelError, match="is an encoder"):
        models.describe("someone/encoder")


def test_a_tokenizer_comes_without_weights(hub, saved):
    hub.folders["someone/tiny"] = saved
    tokenizer = models.load_tokenizer("someone/tiny")
    assert tokenizer("ab")["input_ids"] == [tiny.BOS, 97, 98]
    assert not any("safetensors" in path for path in hub.asked)


def test_a_fetched_model_needs_no_network(hub, saved, monkeypatch):
    hub.folders["someone/tiny"] = saved
    drain(models.load("someone/tiny"))
    from huggingface_hub import HfApi

    def blocked(self, *args, **settings):
        raise ConnectionError("blocked")

    monkeypatch.setattr(HfApi, "model_info", blocked)
    assert models.describe("someone/tiny").cached
    assert drain(models.load("someone/tiny")).blocks == 6


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_blocked_network_is_told_within_ten_seconds(hub, monkeypatch, how):
    if how == "refused":
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    else:
        hub.hang = True
    start = time.monotonic()
    with pytest.raises(ResourceError, match=r"choose smollm2-135m, a local folder or a \.gguf") as error:
        models.describe("someone/tiny")
    assert time.monotonic() - start < 10
    one_sentence(error)


def test_a_public_page_does_not_use_its_owners_token(monkeypatch):
    from ghosted.models import hub as hub_module

    monkeypatch.delenv("SPACE_ID", raising=False)
    monkeypatch.delenv("GHOSTED_DEMO", raising=False)
    assert hub_module.token() is None
    monkeypatch.setenv("SPACE_ID", "someone/space")
    assert hub_module.token() is False
