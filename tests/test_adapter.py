"""A damaged, foreign or malicious adapter is refused with one sentence, before anything is built from it."""

import json
import struct
from functools import partial

import pytest
import torch
from exports import repaired
from safetensors.torch import save_file
from test_formats import written
from tiny import TINY, WIDTH, build, config_of, tokenizer

import ghosted
from ghosted import formats
from ghosted.adapter import WEIGHTS, Adapter
from ghosted.errors import GhostedError, InputError, ModelError
from ghosted.ghost import Ghost, weights_fingerprint

M = "gap.2-3.M"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return written(repaired("llama", remove="2-3"), "adapter", tmp_path_factory.mktemp("whole") / "adapter")


def said(whole, **changes):
    """The record with some of it changed; ``base__width=…`` reaches inside."""
    data = json.loads((whole / "ghost.json").read_text())
    for name, value in changes.items():
        inner, _, key = name.rpartition("__")
        (data[inner] if inner else data)[key] = value
    return data


def spoilt(whole, folder, tensors=None, record=None):
    """A folder whose two files agree, with other tensors or another record."""
    folder.mkdir()
    text = json.dumps(record or said(whole))
    save_file(tensors or {M: torch.zeros(WIDTH, WIDTH)}, folder / WEIGHTS, metadata={"ghost": text})
    (folder / "ghost.json").write_text(text)
    return folder


def refused(path, sentence, error=InputError):
    with pytest.raises(error, match=sentence) as caught:
        ghosted.apply(TINY("llama"), path)
    message = str(caught.value)
    return "\n" not in message and len(message) < 300 and message.endswith(".")


def test_the_whole_one_is_read_and_needs_no_second_file(whole):
    alone = Adapter.read(whole / WEIGHTS)
    assert alone.ghost == Adapter.read(whole).ghost
    assert torch.equal(alone.fits[0].operator(), repaired("llama", remove="2-3").fits[0].operator())


ZERO = torch.zeros(WIDTH, WIDTH)
TENSORS = {
    "wrong shape": ({M: torch.zeros(WIDTH, WIDTH + 1)}, "instead of 32 × 32"),
    "one dimension": ({M: torch.zeros(WIDTH * WIDTH)}, "instead of 32 × 32"),
    "not a number": ({M: ZERO.clone().fill_(float("nan"))}, "not finite"),
    "infinite": ({M: ZERO.clone().fill_(float("inf"))}, "not finite"),
    "half": ({M: ZERO.half()}, "operators are F32"),
    "more than the repair": ({M: ZERO, "extra": ZERO.clone()}, "not part of its repair: 'extra'"),
    "a path in a name": ({M: ZERO, "../../etc/passwd": ZERO.clone()}, "not part of its repair"),
    "another gap": ({"gap.0.M": ZERO}, "lacks 'gap.2-3.M'"),
    "two forms of one repair": ({M: ZERO, "gap.2-3.scale": torch.zeros(1)}, "not part of its repair"),
    "a rank that does not fit": (
        {"gap.2-3.left": torch.zeros(WIDTH, 3), "gap.2-3.right": torch.zeros(4, WIDTH)}, "instead of"),
}  # fmt: skip


@pytest.mark.parametrize("case", TENSORS)
def test_wrong_tensors(case, whole, tmp_path):
    tensors, sentence = TENSORS[case]
    assert refused(spoilt(whole, tmp_path / "bad", tensors), sentence)


RECORDS = {
    "another version": ({"version": 2}, "version '2'"), "no version": ({"version": None}, "version"),
    "another program's": ({"format": "pt"}, "not exported by"), "a merged model": ({"kind": "merged"}, "no adapter"),
    "blocks that do not exist": ({"removed": "2-9"}, "does not exist"),
    "no grammar": ({"removed": "../x"}, "Cannot read"),
    "a gap without its repair": ({"removed": "1-3"}, "but repairs"),
    "no such feature": ({"repairs": [{"gap": "2-3", "feature": "exec"}]}, "does not know"),
    "a type that is wrong": ({"base__width": "32"}, "not written by"),
    "an impossible width": ({"base__width": 10**9}, "describes no model"),
    "a dtype that there is not": ({"base__dtype": "float8"}, "dtype 'float8', .* export it again"),
    "a method that there is not": ({"method": "magic"}, "method 'magic', .* export it again"),
    "an experiment of other blocks": ({"experiment": {"remove": "3-4"}}, "and its experiment removes 3-4"),
    "an experiment of no blocks": ({"experiment": {"remove": [2, 3]}}, "contradicts itself"),
    "rows for another model": ({"repairs": [{"gap": "2-3", "feature": "state", "width": 64}]}, "has 64 rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", RECORDS)
def test_wrong_records(case, whole, tmp_path):
    changes, sentence = RECORDS[case]
    assert refused(spoilt(whole, tmp_path / "bad", record=said(whole, **changes)), sentence)


def raw(folder, header, rest=b""):
    folder.mkdir()
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(data)) + data + rest)
    return folder / WEIGHTS


def test_damaged_files(whole, tmp_path):
    data = (whole / WEIGHTS).read_bytes()
    for number, (content, sentence) in enumerate([
        (data[:-40], "should hold"), (data + b"more", "should hold"), (data[:5], "ends before"),
        (b"", "ends before"), (struct.pack("<Q", 2**60) + b"x" * 100, "ends before"),
        (b"\x80\x04" + data[2:], "ends before|is no JSON"), (data[:8] + b"\0" + data[9:], "no JSON"),
    ]):  # fmt: skip
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(content)
        assert refused(path, sentence)
    assert refused(tmp_path / "missing.safetensors", "no readable missing")
    assert refused(raw(tmp_path / "deep", b"[" * 100_000), "no JSON")
    assert refused(raw(tmp_path / "list", []), "no list of tensors")
    assert refused(raw(tmp_path / "bare", {"__metadata__": {"format": "pt"}}), "does not say what it repairs")


def test_a_huge_header_is_not_read(whole, tmp_path):
    path = tmp_path / "huge.safetensors"
    with open(path, "wb") as stream:  # sparse: claims a header of a gigabyte, and has one
        stream.write(struct.pack("<Q", 2**30) + b"{")
        stream.truncate(2**30 + 8)
    assert refused(path, "has a header of 1074 MB")
    folder = spoilt(whole, tmp_path / "json")
    with open(folder / "ghost.json", "wb") as stream:
        stream.truncate(9_000_000)
    assert refused(folder, "larger than 8 MB")


def test_shapes_that_lie_about_the_bytes(whole, tmp_path):
    for number, about in enumerate([
        {"dtype": "F32", "shape": [WIDTH, WIDTH], "data_offsets": [0, 10**9]},
        {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4096]},
        {"dtype": "F32", "shape": [-1, WIDTH], "data_offsets": [0, 4096]}, {"dtype": "F32"}, "nothing",
    ]):  # fmt: skip
        header = {"__metadata__": {"ghost": (whole / "ghost.json").read_text()}, M: about}
        assert refused(raw(tmp_path / str(number), header, b"\0" * 4 * WIDTH**2), "damaged")


def test_two_files_that_do_not_belong_together(whole, tmp_path):
    folder = spoilt(whole, tmp_path / "mixed")
    (folder / "ghost.json").write_text(json.dumps(said(whole, method="symmetric")))
    assert refused(folder, "do not belong together")


def test_a_small_file_cannot_ask_for_a_large_operator(whole, tmp_path):
    about = {"gap": "2-3", "feature": "state", "structure": "scalar", "width": 262_144}
    record = said(whole, repairs=[about], base__width=262_144)
    folder = spoilt(whole, tmp_path / "large", {"gap.2-3.scale": torch.ones(1)}, record)
    assert Adapter.read(folder).ghost.base.width == 262_144  # nothing of that size was built
    assert refused(folder, "width 262144", ModelError)


def test_another_base_is_refused(whole):
    for other, sentence in (
        (TINY("mistral"), "not a mistral"), (build(config_of("llama", num_hidden_layers=8)), "of 8 blocks"),
        (build(config_of("llama"), seed=5), "other weights"),
    ):
        with pytest.raises(ModelError, match=sentence):
            ghosted.apply(other, whole)


def test_a_base_is_recognised_in_either_dtype():
    model = build(config_of("llama")).bfloat16()
    found = weights_fingerprint(model)
    assert weights_fingerprint(model.float()) == found != weights_fingerprint(build(config_of("llama"), seed=5))


@pytest.mark.parametrize("name", ["/etc", "../../secret", "a/b/c", "https://x.example/y", "~/models", ""])
def test_an_adapter_cannot_make_a_path_be_read_as_its_base(name, whole, tmp_path):
    for kind in ("folder", "hub", "offline"):
        folder = tmp_path / kind
        spoilt(whole, folder, record=said(whole, base__name=name, base__kind=kind))
        with pytest.raises(GhostedError) as caught:
            ghosted.load(folder)
        assert len(str(caught.value)) < 300


def test_the_base_of_its_author_is_asked_for(whole, tmp_path):
    with pytest.raises(ModelError, match="only its author has"):
        ghosted.load(whole)
    TINY("llama").save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    found = ghosted.load(whole / WEIGHTS, base=str(tmp_path / "base"), dtype="float32")
    assert found.config.repairs[0]["gap"] == "2-3"


def test_a_damaged_checkpoint_is_refused_and_its_code_never_run(tmp_path):
    folder = written(repaired("llama", remove="2-3"), "checkpoint", tmp_path / "checkpoint")
    config = json.loads((folder / "config.json").read_text())
    (folder / "evil.py").write_text("raise SystemExit('run')")
    for change in ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}, {"repairs": []},
                   {"repairs": [{"gap": "2-3", "feature": "state", "rows": 2**40, "block": 1}]},
                   {"text_config": {"model_type": "evil"}}, {"blocks_path": "../x"}):  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises((InputError, ModelError)) as caught:
            ghosted.load(folder)
        assert "\n" not in str(caught.value)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="needs no base"):
        ghosted.load(folder, base="smollm2-135m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights"):
        ghosted.load(folder)
    with pytest.raises(ModelError, match="repaired by ghosted: load it with"):
        ghosted.load_model(str(folder))


def test_what_was_changed_after_its_check_is_refused(whole, tmp_path):
    for form in ("adapter", "checkpoint"):
        folder = written(repaired("llama", remove="2-3"), form, tmp_path / form)
        (folder / "README.md").write_text("card")
        formats.seal(folder, {"format": form})
        reads = (partial(ghosted.apply, TINY("llama")), Adapter.read) if form == "adapter" else (ghosted.load,)
        (folder / "README.md").write_text("a card may be rewritten")
        for read in reads:
            read(folder)
        weights = next(folder.glob("*.safetensors"))
        data = bytearray(weights.read_bytes())
        data[-3] ^= 1
        weights.write_bytes(data)
        for read in (*reads, ghosted.load):
            with pytest.raises(InputError, match=rf"was changed after its check \({weights.name}\); export it again"):
                read(folder)
    assert Adapter.read(tmp_path / "adapter" / WEIGHTS).removed == Adapter.read(whole).removed  # one file: no check


def test_what_is_no_export_is_said_with_what_to_name(whole, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("a text")
    checkpoint = written(repaired("llama", remove="2-3"), "checkpoint", tmp_path / "checkpoint")
    apply = partial(ghosted.apply, TINY("llama"))
    for read, path, sentence in (
        (ghosted.load, "", "Name the folder that `export` wrote"), (ghosted.load, None, "Name the folder that"),
        (ghosted.load, tmp_path / "empty", "holds no export of Ghosted Layers"),
        (ghosted.load, tmp_path / "none", "is no folder; name the folder"),
        (ghosted.load, tmp_path / "notes.txt", "notes.txt is no adapter; name the folder that `export` wrote"),
        (apply, tmp_path / "empty", "holds no export of Ghosted Layers"),
        (apply, tmp_path / "none", "is no folder; name the folder"), (apply, tmp_path / "notes.txt", "is no adapter"),
        (apply, checkpoint, r"is a whole model \(checkpoint\), no adapter; read it with ghosted.load"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=sentence):
            read(path)


def test_a_record_survives_its_own_text():
    ghost = repaired("llama", "low-rank").ghost("adapter")
    assert Ghost.from_text(ghost.to_text()) == ghost
