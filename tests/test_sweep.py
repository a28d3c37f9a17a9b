"""A sweep: its cells, what is finished stays finished, killed and restarted it gives the same table."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import TINY, tokenizer

from analysis import sweeps
from ghosted import distributed
from ghosted.__main__ import main
from ghosted.errors import InputError
from ghosted.progress import drain
from ghosted.sweep import CELLS, Outcome, Spec, finished, sweep

ROOT = Path(__file__).parent.parent


@pytest.fixture
def spec(tmp_path, monkeypatch, text):
    """A sweep of four cells on a tiny model in a local folder."""
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    TINY("llama").save_pretrained(tmp_path / "m")
    tokenizer().save_pretrained(tmp_path / "m")
    (tmp_path / "other.txt").write_text("".join(f"{i} is not {i + 1}; " for i in range(90)))
    path = tmp_path / "small.yaml"
    path.write_text(f"""
models: {tmp_path / 'm'}
counts: [1, 2]
criteria: {{LLM-Streamline: cosine, ShortGPT: block-influence}}
methods: [none, replaceme, ghosted]
calibration: {text}
tokens: 1024
window: 64
evaluate: [{tmp_path / 'other.txt'}]
evaluation_window: 64
dtype: float32
""")
    return str(path)


def results(folder):
    return {name: (Path(folder) / name).read_text() for name in ("results.csv", "results.md")}


def test_a_sweep_prints_the_papers_table_and_writes_it(spec, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["sweep", spec, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "LLM-Streamline" in said and "4 cells" in said and said.count("dense") == 2
    assert "perplexity on other.txt" in (out / "results.md").read_text()
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 2 and "http" not in page.replace("http-equiv", "") and "<script" not in page
    head, *lines = (out / "results.csv").read_text().splitlines()
    assert head.startswith("model,calibration,count,criterion,removed,method") and len(lines) == 1 + 4 * 3
    assert not [p for p in out.rglob(".*.json*") if not p.name.endswith(".lock")]


def test_finished_cells_are_not_run_again(spec, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = drain(sweep(Spec.read(spec), out))
    monkeypatch.setattr("ghosted.sweep.evaluate", lambda *a: pytest.fail("ran a finished cell"))
    assert sweeps.rows(drain(sweep(Spec.read(spec), out))) == sweeps.rows(first)
    one = Spec.read(spec).cells()[0]
    assert finished(out, one) is not None


def test_another_text_under_the_same_name_is_another_cell(spec, tmp_path):
    before = [cell.key() for cell in Spec.read(spec).cells()]
    (tmp_path / "other.txt").write_text("Something else entirely, of the same name. " * 40)
    after = [cell.key() for cell in Spec.read(spec).cells()]
    assert len(set(before)) == 4 and not set(before) & set(after)


def test_killed_in_the_middle_and_started_again_it_gives_the_same_table(spec, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    arguments = [sys.executable, "-m", "ghosted", "sweep", spec, "--out"]
    process = subprocess.Popen([*arguments, str(cut)], cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + 120
    while not list((cut / CELLS).glob("*.json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    left = {path.name: path.stat().st_mtime_ns for path in (cut / CELLS).glob("*.json")}
    assert 1 <= len(left) <= 4
    assert main(["sweep", spec, "--out", str(cut)]) == 0
    assert main(["sweep", spec, "--out", str(whole)]) == 0
    assert results(cut) == results(whole)
    assert all((cut / CELLS / name).stat().st_mtime_ns == when for name, when in left.items())


def test_two_jobs_give_the_same_table(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert main(["sweep", spec, "--out", str(tmp_path / "one")]) == 0
    assert main(["sweep", spec, "--out", str(tmp_path / "two"), "--jobs", "2"]) == 0
    assert results(tmp_path / "one") == results(tmp_path / "two")


@pytest.mark.soak
def test_two_processes_share_the_cells_out_and_give_the_same_table(spec, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ghosted", "sweep", spec, "--out", str(tmp_path / "two")]
    several = [subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={
        **os.environ, "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}) for rank in range(2)]  # fmt: skip
    found = [(*process.communicate(timeout=200), process.returncode) for process in several]
    assert [code for *_, code in found] == [0, 0], found
    assert "4 cells" in found[0][0] and not found[1][0]  # only the first prints
    assert main(["sweep", spec, "--out", str(tmp_path / "one")]) == 0
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_each_process_takes_its_own_cells_first_and_computes_by_itself(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "size", lambda: 1 if distributed._alone else 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    taken = []

    def run_cell(cell, folder, workspace, cancel):
        taken.append((cell, distributed.size()))
        return Outcome(cell, {})
        yield

    monkeypatch.setattr("ghosted.sweep.run_cell", run_cell)
    cells = Spec.read(spec).cells()
    assert [o.cell for o in drain(sweep(Spec.read(spec), tmp_path / "out"))] == cells
    assert taken == [(cells[i], 1) for i in (1, 3, 0, 2)] and distributed.size() == 2
    with pytest.raises(InputError, match="leave --jobs at 1"):
        drain(sweep(Spec.read(spec), tmp_path / "out", jobs=2))


def test_a_cell_that_cannot_be_run_is_said_and_the_others_go_on(spec, tmp_path):
    said = Path(spec).read_text().replace("counts: [1, 2]", "counts: [1, 6]")
    Path(spec).write_text(said)
    outcomes = drain(sweep(Spec.read(spec), tmp_path / "out"))
    assert [bool(o.failed) for o in outcomes] == [False, False, True, True]
    assert "6 of 6" in outcomes[2].failed and "failed" in sweeps.as_text(sweeps.rows(outcomes))


def test_the_papers_table_is_planned_without_a_network(monkeypatch, capsys):
    import socket

    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("asked the network"))
    assert main(["sweep", str(ROOT / "assets" / "sweeps" / "paper.yaml"), "--dry-run", "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["planned"]
    assert len(cells) == 3 * 2 * 4 and {c["count"] for c in cells} == {7, 11} and {c["blocks"] for c in cells} == {32}
    assert {c["tokens"] for c in cells} == {128 * 2048}
    assert all(c["memory_bytes"] > 16e9 and c["seconds"] > 60 for c in cells)
    assert main(["sweep", str(ROOT / "assets" / "sweeps" / "paper.yaml"), "--dry-run"]) == 0
    assert "24 cells" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("models: m\ncounts: [0]\ncriteria: cosine", "whole numbers"), ("counts: [1]", "no models"),
        ("models: m\ncounts: [1]\ncriteria: magic", "no criterion"), ("- a\n- b", "mapping"), ("a: [", "not YAML"),
        ("models: m\ncounts: [1]\ncriteria: cosine\nspeed: 3", "no field 'speed'"),
    ],
)  # fmt: skip
def test_a_bad_spec_is_one_sentence(tmp_path, change, sentence):
    path = tmp_path / "bad.yaml"
    path.write_text(change)
    with pytest.raises(InputError, match=sentence) as refused:
        Spec.read(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path, capsys):
    assert main(["sweep", str(tmp_path / "no.yaml"), "--dry-run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["sweep", str(ROOT / "assets" / "sweeps" / "smollm2.yaml")]) == 2
    assert "--out" in capsys.readouterr().err
