"""The machine: memory that is really free, and a measured dtype that is measured once."""

import json

import psutil
import pytest

from ghosted import cache, machine


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path))
    for kept in (machine.fastest_dtype, machine._measured):
        kept.cache_clear()
    yield tmp_path
    for kept in (machine.fastest_dtype, machine._measured):
        kept.cache_clear()


def test_available_memory_is_bounded_by_the_machine():
    assert 0 < machine.available_memory() <= psutil.virtual_memory().total


def test_a_containers_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 50\n")
    assert machine._container_memory_left(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._container_memory_left(tmp_path) is None
    assert machine._container_memory_left(tmp_path / "missing") is None


@pytest.mark.parametrize(("seconds", "expected"), [((1.0, 0.5), "bfloat16"), ((1.0, 0.9), "float32")])
def test_bfloat16_only_where_it_is_clearly_faster(own_cache, monkeypatch, seconds, expected):
    monkeypatch.setattr(machine, "device", lambda: "cpu")
    calls = []

    def measure():
        calls.append(1)
        fast = "bfloat16" if seconds[0] >= machine.FASTER * seconds[1] else "float32"
        return {"fastest": fast, "float32": seconds[0], "bfloat16": seconds[1]}

    monkeypatch.setattr(machine, "measure_dtypes", measure)
    assert machine.fastest_dtype() == expected
    machine.fastest_dtype.cache_clear()  # as a new process would be
    assert machine.fastest_dtype() == expected
    assert len(calls) == 1
    kept = json.loads(next((own_cache / "machine").glob("*/dtype.json")).read_text())
    assert kept["fastest"] == expected


def test_measuring_compares_both_formats():
    measured = machine.measure_dtypes(shape=(64, 32, 64), repeats=3)
    assert measured["float32"] > 0 and measured["bfloat16"] > 0
    faster = measured["float32"] >= machine.FASTER * measured["bfloat16"]
    assert measured["fastest"] == ("bfloat16" if faster else "float32")


def test_describe_is_plain_data(own_cache, monkeypatch):
    monkeypatch.setattr(machine, "measure_dtypes", lambda: {"fastest": "float32"})
    about = machine.describe()
    assert json.loads(json.dumps(about)) == about
    assert about["cores"] >= 1 and about["memory_bytes"] > 0 and about["dtype"] in ("float32", "bfloat16")
    assert cache.root() == own_cache
