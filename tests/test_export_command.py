"""``python -m ghosted export``: what is refused before anything is computed, and what it prints."""

import json
import sys
from types import SimpleNamespace

import pytest
from test_cli import SMALL, folder  # noqa: F401

from ghosted import formats
from ghosted.__main__ import main
from ghosted.adapter import Adapter

EXPORT = ["export", *SMALL, "--remove", "2-3", "--windows", "2", "--dtype", "float32"]


@pytest.fixture(autouse=True)
def no_new_process(monkeypatch):
    for name in ("adapter", "merged"):
        monkeypatch.setattr(formats.formats()[name], "LIMIT", None)


def test_an_adapter_and_its_record(folder, capsys):  # noqa: F811
    assert main([*EXPORT, "--method", "ghosted", "--out", "cut", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    adapter = Adapter.read(folder / "cut")
    assert set(payload["files"]) == {"README.md", "check.json", "ghost.json", "ghost.safetensors"}
    assert adapter.ghost.base.kind == "folder" and adapter.ghost.experiment["model"] == "local"
    assert adapter.ghost.experiment["text"].startswith("sha256:")
    assert str(folder) not in adapter.ghost.to_text()
    assert {each.method for each in adapter.ghost.numbers} == {"none", "ghosted"}
    assert next(iter(adapter.ghost.protocols.values()))["tokens_scored"] == 126


def test_refusals_come_before_the_work(folder, capsys, monkeypatch):  # noqa: F811
    import ghosted.repaired

    monkeypatch.setattr(ghosted.repaired, "repaired", lambda *_: pytest.fail("it was computed"))
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.txt").write_text("x")
    for more, sentence in (
        (["--method", "none", "--format", "mergekit", "--out", "new", "--remove", ""], "Name the blocks to remove"),
        (["--method", "ghosted"], "Name the folder"), (["--out", "new"], "Name the method"),
        (["--out", "new", "--methods", "ghosted,symmetric"], "One model is exported at a time"),
        (["--out", "new", "--method", "ghosted", "--format", "merged"], "ghosted cannot"),
        (["--out", "new", "--method", "ghosted", "--format", "onnx"], "no export format"),
        (["--out", "text.txt/new", "--method", "ghosted"], "(Not a directory); name another folder."),
        (["--out", "taken", "--method", "ghosted"], "is there already"),
        (["--out", "taken", "--method", "ghosted", "--overwrite"], "not an export of this program"),
    ):
        assert main([*EXPORT, *more]) == 2
        err = capsys.readouterr().err
        assert sentence in err and err.count("\n") == 1
    assert not (folder / "new").exists()


def test_a_disk_that_is_too_small_is_said_before_the_work(folder, capsys, monkeypatch):  # noqa: F811
    import ghosted.repaired
    from ghosted.formats import _place

    monkeypatch.setattr(ghosted.repaired, "repaired", lambda *_: pytest.fail("it was computed"))
    monkeypatch.setattr(_place.shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    assert main([*EXPORT, "--method", "ghosted", "--out", "new"]) == 2
    assert "are free; free some space or name a folder on another disk." in capsys.readouterr().err


def test_memory_and_families_are_refused_before_the_work(folder, capsys, monkeypatch):  # noqa: F811
    import ghosted.repaired
    from ghosted.models import device_map

    monkeypatch.setattr(ghosted.repaired, "repaired", lambda *_: pytest.fail("it was computed"))
    assert main([*EXPORT[:-5], "0-1", *EXPORT[-4:], "--method", "replaceme", "--format", "merged", "--out", "new"]) == 2
    assert "block 0" in capsys.readouterr().err
    monkeypatch.setattr(device_map, "capacity", lambda device=None: 10**8)
    assert main([*EXPORT, "--method", "ghosted", "--format", "checkpoint", "--out", "new"]) == 2
    err = capsys.readouterr().err
    assert "read again in a new process" in err and "GB of memory for both, and 0.1 GB are free" in err
    assert err.count("\n") == 1 and not (folder / "new").exists()


def test_a_table_for_people(folder, capsys):  # noqa: F811
    assert main([*EXPORT, "--method", "replaceme", "--format", "merged", "--out", "merged"]) == 0
    out = capsys.readouterr().out
    assert "model.safetensors" in out and "replaceme, blocks 2-3 removed" in out
    assert "torch" in sys.modules
