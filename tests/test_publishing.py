"""``push`` and ``ghosted.load("owner/name")`` against the stand-in for the Hub: no network."""

import os
import subprocess
import sys
from pathlib import Path

import hub as stand_in
import pytest
from exports import repaired
from test_formats import written

from ghosted import formats
from ghosted.__main__ import main

REPO = Path(__file__).parent.parent
PUSH = "from ghosted.__main__ import main; import sys; sys.exit(main(sys.argv[1:]))"
LOAD = """
import sys; sys.path.insert(0, sys.argv[1]); import ghosted, torch
from tiny import TINY
from exports import repaired
from tiny import logits_of, prompt_ids
ids = prompt_ids(20)
print(torch.equal(logits_of(ghosted.load("me/cut"), ids), logits_of(repaired("llama").view(), ids)))
"""


@pytest.fixture
def hub():
    with stand_in.serving() as (hub, address):
        yield hub, address


@pytest.fixture
def export(tmp_path):
    folder = written(repaired("llama"), "checkpoint", tmp_path / "out")
    (folder / "README.md").write_text("# card")
    formats.seal(folder, {"format": "checkpoint", "logits": 0.0, "perplexity": 0.0})
    return folder


def run(address, home, code, *args, stdin="", token="t"):
    environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_TOKEN": token} if token else {}
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=REPO, input=stdin,
                          env=environment, timeout=90)  # fmt: skip


def test_a_checked_export_goes_up_whole_and_comes_back_as_the_same_model(hub, export, tmp_path):
    hub, address = hub
    hub.writable = tmp_path / "there"
    done = run(address, tmp_path / "home", PUSH, "push", "me/cut", "--from", str(export))
    assert done.returncode == 0, done.stderr
    there = hub.folders["me/cut"]
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {p.name: p.read_bytes() for p in export.iterdir()}
    again = run(address, tmp_path / "home", PUSH, "push", "me/cut", "--from", str(export))
    assert again.returncode == 2 and "holds" in again.stderr and "Say --yes" in again.stderr
    assert run(address, tmp_path / "home", PUSH, "push", "me/cut", "--from", str(export), "--yes").returncode == 0
    hub.asked.clear()
    loaded = run(address, tmp_path / "other", LOAD, str(REPO / "tests"))
    assert loaded.stdout.strip() == "True", loaded.stderr[-1500:]
    assert not [path for path in hub.asked if path.endswith(".py")]


def test_refusals_of_the_hub_are_sentences(hub, export, tmp_path):
    hub, address = hub
    refused = run(address, tmp_path / "home", PUSH, "push", "me/cut", "--from", str(export))
    assert refused.returncode == 2 and "does not let you write me/cut" in refused.stderr
    assert refused.stderr.count("\n") == 1
    gone = run("http://127.0.0.1:9", tmp_path / "home", PUSH, "push", "me/cut", "--from", str(export))
    assert gone.returncode == 2 and "cannot be reached" in gone.stderr and gone.stderr.count("\n") == 1


def test_only_a_checked_export_is_pushed(export, tmp_path, capsys):
    def said(*args):
        assert main(["push", *args]) == 2
        return capsys.readouterr().err

    assert "not an owner/name" in said("cut", "--from", str(export))
    assert "Name the export's folder" in said("me/cut")
    assert "holds no export of Ghosted Layers (there is no ghost.json in it)" in said("me/cut", "--from", str(tmp_path))
    assert "is no folder; name the folder that `export` wrote" in said("me/cut", "--from", str(tmp_path / "none"))
    (export / "config.json").write_text("{}")
    assert "was changed after its check (config.json)" in said("me/cut", "--from", str(export))
    (export / "check.json").unlink()
    assert "no checked export" in said("me/cut", "--from", str(export))
    recipe = written(repaired("llama", "none"), "mergekit", tmp_path / "recipe")
    formats.seal(recipe, {"format": "mergekit"})
    assert "recipe is no model" in said("me/cut", "--from", str(recipe))
