"""An adapter opened on the page: its experiment fills the controls, its recorded numbers are said."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from exports import repaired
from test_formats import written

from analysis.export import adapter_file, settings_file
from ghosted.errors import InputError

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return written(repaired("llama", remove="2-3"), "adapter", tmp_path_factory.mktemp("whole") / "adapter")


def zipped(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_both_forms_give_the_experiment_and_the_recorded_numbers(whole, tmp_path):
    files = {f"my-cut/{path.name}": path.read_bytes() for path in whole.iterdir()}
    for path in (whole / "ghost.safetensors", zipped(tmp_path / "cut.zip", files)):
        found = settings_file.read(str(path))
        assert (found.experiment.remove, found.experiment.methods, found.record) == ("2-3", ("none", "ghosted"), None)
        assert found.notices and "choose your own copy" in " ".join(found.notices)
        for part in ("2–3 (2 of 6)", "held-out error 0.6", "perplexity 12.5", "the original 10", "2 windows of 64"):
            assert part in found.said, part


def test_only_the_adapters_own_files_are_taken_out_of_a_zip(whole, tmp_path):
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    evil = {"../../ghost.json": files["ghost.json"], "/etc/ghost.safetensors": files["ghost.safetensors"],
            "../../evil.py": b"x"}  # fmt: skip
    assert adapter_file.read(zipped(tmp_path / "evil.zip", evil)).removed == "2-3"
    assert not list(tmp_path.parent.glob("evil.py")) and [p.name for p in tmp_path.iterdir()] == ["evil.zip"]


def test_other_zips_are_refused(whole, tmp_path):
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    with pytest.raises(InputError, match="holds no ghost"):
        settings_file.read(str(zipped(tmp_path / "half.zip", {"ghost.json": files["ghost.json"]})))
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ghost.json", b" " * 9_000_000)
        archive.writestr("ghost.safetensors", files["ghost.safetensors"])
    with pytest.raises(InputError, match="larger than 8 MB"):
        settings_file.read(str(bomb))
    data = bytearray(zipped(tmp_path / "damaged.zip", files).read_bytes())
    at = data.index(b"ghosted layers") + 30
    data[at : at + 40] = b"\0" * 40
    (tmp_path / "damaged.zip").write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        settings_file.read(str(tmp_path / "damaged.zip"))


def test_a_record_with_settings_that_make_no_sense(whole, tmp_path):
    from safetensors.torch import load_file, save_file

    said = json.loads((whole / "ghost.json").read_text())
    for experiment in ({}, {"tokens": -5}, {"methods": ["evil"]}, {"colour": "red"}):
        path = tmp_path / "bad.safetensors"
        text = json.dumps(said | {"experiment": experiment})
        save_file(load_file(whole / "ghost.safetensors"), path, metadata={"ghost": text})
        with pytest.raises(InputError):
            settings_file.read(str(path))


def test_the_page_still_starts_without_torch():
    code = "import analysis.export.settings_file, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
