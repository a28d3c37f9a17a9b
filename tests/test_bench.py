"""The bench's figures on a tiny model: ratios of one run, and what each of them compares."""

import json

import pytest
from tiny import TINY, tokenizer

from ghosted.__main__ import main
from ghosted.bench import _rounds, solve
from ghosted.bench.memory import bound


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    TINY("llama").save_pretrained(tmp_path / "tiny-llama")
    tokenizer().save_pretrained(tmp_path / "tiny-llama")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def figure(capsys, name, *more):
    arguments = ["bench", name, "--model", "tiny-llama", "--tokens", "2000", "--window", "100", "--json", *more]
    assert main(arguments) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload.keys() == {name, "machine"}
    found = payload[name]
    low, high = found["spread"]
    assert 0 < low <= found["ratio"] <= high
    return found


def test_works_take_turns_and_the_first_round_does_not_count():
    called = []
    seconds = _rounds.interleaved({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, 2)
    assert called == ["a", "b"] * 3 and {name: len(each) for name, each in seconds.items()} == {"a": 2, "b": 2}
    assert _rounds.ratio([2.0, 6.0, 1.0], [1.0, 2.0, 4.0]) == {"ratio": 2.0, "spread": [0.25, 3.0]}


def test_calibration_with_all_ranges_is_told_apart(folder, capsys):
    found = figure(capsys, "calibrate")
    assert found["ratio_all_ranges"] > 0 and len(found["spread_all_ranges"]) == 2
    assert found["tokens"] == 2000


def test_decoding_is_compared_with_the_plain_and_with_the_whole_model(folder, capsys, monkeypatch):
    monkeypatch.setattr("ghosted.bench.decode.TURNS", 4)
    found = figure(capsys, "decode")
    assert found["ratio_dense"].keys() == {"5"}
    assert found["tokens_per_second"].keys() == {"original", "plain 5", "repaired 5"}


def test_solving_is_compared_with_a_product_at_every_order(folder, capsys, monkeypatch):
    monkeypatch.setattr(solve, "ORDERS", {64: 2, 128: 1})
    found = figure(capsys, "solve")
    assert found["orders"].keys() == {"64", "128"} and found["ratio"] == found["orders"]["64"]["ratio"] > 1


def test_synthetic_moments_are_those_of_a_solvable_system():
    G, B = solve.synthetic_moments(48, 0)
    assert (G - G.mT).abs().max() < 1e-4 * G.max() and B.shape == G.shape


def test_the_bound_on_memory_is_the_stated_one():
    assert bound(576) == 64 * 576**2 + 64_000_000


@pytest.mark.soak
def test_memory_is_measured_in_processes_of_their_own(folder, capsys):
    found = figure(capsys, "memory")
    assert found["tokens"] == [2000, 24_000] and found["peaks"].keys() >= {"forward", "calibrate", "longer"}
    assert found["ratio"] <= 1 and found["ratio_2048"] <= 1 and found["ratio_growth"] <= 1


@pytest.mark.soak
def test_the_straightforward_way_finds_the_same_blocks(folder, capsys):
    found = figure(capsys, "naive")
    assert found["same_blocks"] and found["theirs_peak_bytes"] > 0 and found["solve_ratio"] > 0
