"""Perplexity on whole texts: against a plain computation, whatever the batch; nothing removed equals the original."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import BOS, TINY, tokenizer

from ghosted.__main__ import main
from ghosted.errors import Cancelled, InputError, TextError
from ghosted.evaluation import Plan, evaluate
from ghosted.experiment import Experiment
from ghosted.models.loaded import LoadedModel
from ghosted.progress import CancelFlag, drain
from ghosted.removed import RemovedBlocks
from ghosted.results.evidence import same_protocol
from ghosted.scores.perplexity import score
from ghosted.texts.whole import cut, whole_text, window_and_stride
from ghosted.workspace import Workspace


def loaded(bos=False):
    return LoadedModel.of(TINY("llama"), tokenizer(bos=bos), name="tiny")


def reference(model, ids, window, stride, bos=None):
    """Every token once, each from the longest context its window gives it: the textbook loop, one window at a time."""
    head = [] if bos is None else [bos]
    total, tokens, end = 0.0, 0, 0
    for begin in range(0, len(ids), stride - len(head)):
        row = head + ids[begin : begin + window - len(head)]
        stop = begin + len(row) - len(head)
        new = min(stop - end, len(row) - 1)
        if new < 1:
            break
        with torch.no_grad():
            probabilities = model(torch.tensor([row])).logits[0].double().log_softmax(-1)
        for place in range(len(row) - new, len(row)):
            total -= float(probabilities[place - 1, row[place]])
        tokens, end = tokens + new, stop
        if stop == len(ids):
            break
    return math.exp(total / tokens), tokens


@pytest.fixture
def prose(tmp_path):
    path = tmp_path / "prose.txt"
    path.write_text("".join(f"Line {i} says that {i * i % 89} birds sang, é. " for i in range(20)), "utf-8")
    return str(path)


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("window", [32, 57, 128])
@pytest.mark.parametrize("part", [1, 2])
def test_perplexity_is_what_twenty_lines_compute(prose, window, part, bos):
    model = loaded(bos)
    stride = window // part
    text = drain(whole_text(prose, model, window=window, stride=stride))
    dense, _, same = drain(score(model, RemovedBlocks(), {}, text.windows, fresh=text.fresh, keep=True))
    ids = list(Path(prose).read_bytes())
    expected, tokens = reference(model.model, ids, window, stride, BOS if bos else None)
    assert dense.perplexity == pytest.approx(expected, rel=1e-4)
    assert dense.tokens_scored == tokens == len(dense.losses) and same
    assert dense.losses.astype(np.float64).mean() == pytest.approx(math.log(expected), rel=1e-3)


def test_batch_size_changes_nothing(prose):
    model = loaded()
    text = drain(whole_text(prose, model, window=48, stride=30))
    one, three = (
        drain(score(model, RemovedBlocks(), {}, text.windows, fresh=text.fresh, batch=size))[0] for size in (1, 3)
    )
    assert one.tokens_scored == three.tokens_scored
    assert one.perplexity == pytest.approx(three.perplexity, rel=1e-6)


def test_every_token_is_scored_once(prose):
    model, size = loaded(), len(Path(prose).read_bytes())
    overlapping = drain(whole_text(prose, model, window=40, stride=17))
    scored = [token for run in overlapping.scored for token in run]
    assert scored == list(range(1, size)) and overlapping.size == size - 1
    apart = drain(whole_text(prose, model, window=40, stride=40))
    assert sum(apart.fresh) == size - len(apart.windows)
    first = overlapping.windows.rows[0]
    assert len(first) == 40 and overlapping.windows.rows[1][0] == Path(prose).read_bytes()[17]


def test_the_end_of_text_string_is_text_and_scored_in_full(tmp_path):
    path = tmp_path / "end.txt"
    path.write_text("One story ends here.</s>Another <|im_end|> begins after it, and goes on.")
    text = drain(whole_text(str(path), loaded(), window=200, stride=200))
    assert sum(text.fresh) == len(path.read_bytes()) - 1 and max(map(int, text.windows.rows[0])) < 256


def test_the_papers_window_is_the_default_within_the_models_context():
    assert window_and_stride(None, None, 8192) == (2048, 2048)
    assert window_and_stride(None, None, 256) == (256, 256)
    assert window_and_stride(128, 64, None) == (128, 64)
    for window, stride in ((512, None), (128, 129), (128, 1), (2, None)):
        with pytest.raises(InputError, match="does not fit"):
            window_and_stride(window, stride, 256)


def test_a_rest_of_one_token_is_not_scored_from_nothing():
    windows, scored = cut(list(range(9)), start=0, window=4, stride=4, bos_id=None, text="t", digest="d")
    assert [len(row) for row in windows.rows] == [4, 4] and [len(run) for run in scored] == [3, 3]


def settings(text, **more):
    return Experiment(**({"model": "tiny", "remove": "2-3", "text": text, "tokens": 1024, "window": 64,
                          "methods": ("none", "ghosted")} | more))  # fmt: skip


def test_nothing_removed_equals_the_original_exactly(text, prose, monkeypatch, tmp_path):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    e = settings(text, remove="", evaluate=(prose,))
    found = drain(evaluate(e, Plan(window=64), Workspace(loaded())))
    dense = found.dense.texts["prose.txt"]
    for method in found.methods:
        assert method.texts["prose.txt"].perplexity - dense.perplexity == 0.0
        assert (method.texts["prose.txt"].losses == dense.losses).all()
    assert found.run.self_check


def test_the_calibration_text_is_scored_where_it_was_not_read(text, monkeypatch, tmp_path):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    found = drain(evaluate(settings(text), Plan(window=128, windows=3), Workspace(loaded())))
    (label, protocol), = found.protocols.items()
    assert label == "text.txt" and protocol.same_source and protocol.windows == 3
    assert f"tokens {1024 + 8192:,} to" in protocol.text
    payload = json.loads(json.dumps(found.to_json()))
    assert {m["method"] for m in payload["methods"]} == {"none", "ghosted"}
    assert payload["methods"][1]["perplexity"] > 1 and payload["methods"][1]["bits_per_byte"] > 0
    assert payload["protocol"]["texts"][label]["stride"] == 128


def test_bits_per_byte_follow_from_the_loss(prose):
    model = loaded()
    text = drain(whole_text(prose, model, window=64, stride=32))
    dense, *_ = drain(score(model, RemovedBlocks(), {}, text.windows, fresh=text.fresh))
    # One token per byte: bits per byte are bits per token.
    from ghosted.results.evidence import TextScore

    found = TextScore.of(dense.loss, dense.tokens_scored, text.size)
    assert found.bits_per_byte == pytest.approx(math.log2(dense.perplexity), rel=1e-9)


def test_different_protocols_are_not_compared(text, prose, monkeypatch, tmp_path):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    found = [
        drain(evaluate(settings(text, evaluate=(prose,)), Plan(window=w), Workspace(loaded()))) for w in (64, 128)
    ]
    one, other = (each.protocols["prose.txt"] for each in found)
    same_protocol(one, vars(one))
    with pytest.raises(InputError, match="window 64 and 128"):
        same_protocol(one, other)


def test_a_text_that_is_used_up_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "short.txt"
    path.write_text("abcdefgh" * ((1024 + 8192) // 8))
    with pytest.raises(TextError, match="none are left after calibration"):
        drain(evaluate(settings(str(path)), Plan(window=64), Workspace(loaded())))


def test_the_command_prints_a_table_and_refuses_nonsense(text, prose, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "tiny-llama"
    TINY("llama").save_pretrained(model)
    tokenizer().save_pretrained(model)
    common = ["evaluate", "--model", str(model), "--remove", "2-3", "--methods", "none,ghosted", "--calibration", text,
              "--tokens", "1024", "--window", "64", "--evaluate", prose]  # fmt: skip
    assert main([*common, "--evaluation-window", "64", "--stride", "32"]) == 0
    said = capsys.readouterr().out
    assert "stride 32" in said and "dense" in said and "ghosted" in said
    for wrong in (["--stride", "900"], ["--windows", "0"], ["--limit", "0"]):
        assert main([*common, *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("bos", [False, True])
def test_each_scored_window_has_one_bos_iff_the_tokenizer_adds_one(prose, bos):
    """CASE 21."""
    text = drain(whole_text(prose, loaded(bos), window=40, stride=25))
    counts = [int((row == BOS).sum()) for row in text.windows.rows]
    assert counts == [int(bos)] * len(counts) and len(counts) > 3
    size = len(Path(prose).read_bytes())
    assert [token for run in text.scored for token in run] == list(range(0 if bos else 1, size))


def test_a_stop_frees_the_lock(text, prose, monkeypatch, tmp_path):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    space, flag = Workspace(loaded()), CancelFlag()
    steps = evaluate(settings(text, evaluate=(prose,)), Plan(window=32), space, flag)
    with pytest.raises(Cancelled):
        for event in steps:
            if str(event).startswith("scoring"):
                flag.set()
    assert not space.lock.locked()


@pytest.mark.model
def test_a_longer_window_is_lower_and_another_protocol(smol, monkeypatch, tmp_path):
    """CASE 20."""
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ghosted.texts.windows.HELD_OUT_LEAST", 512)
    e = Experiment(remove="", methods=("none",), tokens=512, window=128)
    found = [drain(evaluate(e, Plan(window=w, windows=2048 // w), Workspace(smol))) for w in (128, 512)]
    (short, short_protocol), (long, long_protocol) = (
        (next(iter(each.dense.texts.values())), next(iter(each.protocols.values()))) for each in found
    )
    assert long.perplexity < short.perplexity and long.bits_per_byte < short.bits_per_byte
    assert (short_protocol.window, long_protocol.window) == (128, 512)
    with pytest.raises(InputError, match="cannot be compared"):
        same_protocol(short_protocol, long_protocol)
    for each in found:
        assert each.method("none").texts[next(iter(each.protocols))].perplexity - next(
            iter(each.dense.texts.values())
        ).perplexity == 0.0
