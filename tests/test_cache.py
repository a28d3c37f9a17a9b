"""The cache: entries are whole or absent, also after kills, damage and races."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ghosted import cache
from ghosted.errors import ResourceError

REPO = Path(__file__).parent.parent


def write(text):
    return lambda folder: (folder / "data.txt").write_text(text)


@pytest.fixture
def kept(tmp_path):
    return cache.Cache(tmp_path / "cache")


def run_python(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], cwd=REPO, stdout=subprocess.PIPE, text=True
    )


def test_put_then_get_gives_the_files(kept):
    assert kept.get("things", "a") is None
    folder = kept.put("things", "a", write("hello"))
    assert kept.get("things", "a") == folder
    assert (folder / "data.txt").read_text() == "hello"
    about = json.loads((folder / "entry.json").read_text())
    assert about["files"]["data.txt"]["bytes"] == 5 == about["bytes"]


def test_nested_files_are_checksummed(kept):
    def nested(folder):
        (folder / "deep").mkdir()
        (folder / "deep" / "x.bin").write_bytes(b"1234")

    folder = kept.put("things", "n", nested)
    assert cache.Cache(kept.root).get("things", "n") == folder
    (folder / "deep" / "x.bin").write_bytes(b"1235")
    assert cache.Cache(kept.root).get("things", "n") is None


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "entry", "garbage"])
def test_a_broken_entry_counts_as_missing_and_is_removed(kept, damage):
    folder = kept.put("things", "a", write("hello"))
    data, about = folder / "data.txt", folder / "entry.json"
    if damage == "truncate":
        data.write_text("hell")
    elif damage == "flip":
        data.write_text("hellO")
    elif damage == "delete":
        data.unlink()
    elif damage == "entry":
        about.unlink()
    else:
        about.write_text("{")
    assert kept.get("things", "a") is None
    assert not folder.exists()
    assert kept.put("things", "a", write("again")) == folder


def test_a_writer_that_raises_leaves_nothing(kept):
    def fail(folder):
        (folder / "half").write_text("x")
        raise ValueError("no")

    with pytest.raises(ValueError):
        kept.put("things", "a", fail)
    assert list((kept.root / "things").iterdir()) == []


def test_a_second_writer_keeps_the_first_entry(kept):
    kept.put("things", "a", write("first"))
    folder = kept.put("things", "a", write("second"))
    assert (folder / "data.txt").read_text() == "first"


def test_least_recently_used_entries_go_first(tmp_path, caplog):
    kept = cache.Cache(tmp_path, limit_bytes=250)
    for age, key in ((30, "a"), (20, "b")):
        folder = kept.put("things", key, write("x" * 100))
        os.utime(folder / "entry.json", (time.time() - age, time.time() - age))
    kept.get("things", "a")  # now b is the oldest
    kept.put("others", "c", write("x" * 100))
    assert kept.get("things", "b") is None
    assert kept.get("things", "a") and kept.get("others", "c")
    assert kept.size() == 200 and caplog.text.count("has reached its bound") == 1


def test_an_entry_larger_than_the_limit_is_still_given(tmp_path):
    kept = cache.Cache(tmp_path, limit_bytes=10)
    assert kept.put("things", "big", write("x" * 100)).is_dir()


@pytest.mark.parametrize("key", ["../up", "a/b", "", ".hidden", "x" * 200])
def test_names_cannot_leave_the_folder(kept, key):
    with pytest.raises(ValueError):
        kept.put("things", key, write("x"))


def test_root_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "here"))
    assert cache.root() == tmp_path / "here"
    assert (tmp_path / "here").is_dir()
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "file"))
    with pytest.raises(ResourceError, match="GHOSTED_CACHE"):
        cache.root()


def test_the_limit_follows_the_environment(kept, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE_LIMIT", "123")
    assert kept.limit_bytes == 123
    monkeypatch.delenv("GHOSTED_CACHE_LIMIT")
    assert kept.limit_bytes == 20 * 2**30


def test_key_of_is_canonical():
    assert cache.key_of({"a": 1, "b": [1, 2]}) == cache.key_of({"b": [1, 2], "a": 1})
    assert cache.key_of({"a": 1}) != cache.key_of({"a": 2})
    with pytest.raises(ValueError):
        cache.key_of(float("nan"))


def test_a_killed_writer_leaves_no_entry_and_a_rerun_works(kept):
    code = """
        import sys, time
        from pathlib import Path
        from ghosted.cache import Cache
        def slow(folder):
            (folder / "data.txt").write_text("half")
            print("writing", flush=True)
            time.sleep(60)
        Cache(Path(sys.argv[1])).put("things", "a", slow)
    """
    process = run_python(code, kept.root)
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len([p for p in (kept.root / "things").iterdir() if p.is_dir()]) == 1  # the half-done folder
    assert kept.get("things", "a") is None
    folder = kept.put("things", "a", write("whole"))
    assert (folder / "data.txt").read_text() == "whole"
    assert [p for p in (kept.root / "things").iterdir() if p.is_dir()] == [folder]  # and it was swept


def test_a_living_writers_folder_is_not_swept(kept):
    with kept.staging("things") as work:
        (work / "part").write_text("x")
        kept.put("things", "a", write("other"))
        assert (work / "part").exists()
    assert not work.exists()


def test_two_processes_do_the_work_once(kept):
    code = """
        import sys, time
        from pathlib import Path
        from ghosted.cache import Cache
        kept = Cache(Path(sys.argv[1]))
        def make(folder):
            with open(sys.argv[2], "a") as log:
                log.write("made\\n")
            time.sleep(0.3)
            (folder / "data.txt").write_text("x")
        with kept.lock("things", "a"):
            folder = kept.get("things", "a") or kept.put("things", "a", make)
        print(folder)
    """
    log = kept.root / "log"
    processes = [run_python(code, kept.root, log) for _ in range(3)]
    folders = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert folders == {str(kept.root / "things" / "a")}
    assert log.read_text() == "made\n"


def test_waiting_for_a_lock_can_be_stopped(kept):
    class Stop(Exception):
        pass

    def stop():
        raise Stop

    other = kept.file_lock("things", "a")
    other.acquire()
    try:
        with pytest.raises(Stop), cache.Cache(kept.root).lock("things", "a", tick=stop):
            pass
    finally:
        other.release()
