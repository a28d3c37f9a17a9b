"""Several processes do one run: the same numbers as one, and no hang when one of them is gone."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny import TINY, tokenizer

from ghosted import distributed
from ghosted.errors import InputError

ROOT = Path(__file__).parent.parent
COMMAND = ["compare", "--model", "tiny-llama", "--calibration", "text.txt", "--tokens", "3000", "--window", "64",
           "--dtype", "float32", "--windows", "9", "--methods", "none,linearpatch,ghosted", "--json"]  # fmt: skip
WRITES_W = """
import os, sys
sys.path[:0] = [os.environ["ROOT"]]
import torch
torch.set_num_threads(1)
from ghosted import distributed
from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.run import run
distributed.begin()
e = Experiment(model="tiny-llama", text="text.txt", tokens=3000, window=64, dtype="float32", remove="2-3",
               methods=("ghosted", "replaceme", "linearpatch"))
found = drain(run(e, parts=("decomposition",)))
torch.save({k: torch.from_numpy(d.W) for k, d in found.decompositions.items()}
           | {"cosine": torch.from_numpy(found.similarity.cosine), "text": torch.from_numpy(found.similarity.by_text)},
           f"W-{distributed.size()}-{distributed.rank()}.pt")
distributed.end()
"""


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "tiny-llama"
    TINY("llama").save_pretrained(model)
    tokenizer().save_pretrained(model)
    (tmp_path / "text.txt").write_text("".join(f"Line {i} says that {i * i % 89} birds sang. " for i in range(1200)))
    return tmp_path


def started(folder, ranks, *arguments, patience=120):
    """Start the processes of one run, each with a cache of its own, as on machines of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    several = []
    for rank in range(ranks):
        world = {"WORLD_SIZE": str(ranks), "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port)} if ranks > 1 else {}  # fmt: skip
        env = os.environ | world | {
            "GHOSTED_CACHE": str(folder / f"cache-{ranks}-{rank}"), "GHOSTED_PATIENCE": str(patience),
            "OMP_NUM_THREADS": "1", "ROOT": str(ROOT), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        several.append(subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ))
    return several


def ended(several, seconds=100):
    return [(*process.communicate(timeout=seconds), process.returncode) for process in several]


def compared(folder, ranks):
    found = ended(started(folder, ranks, "-m", "ghosted", *COMMAND, "--remove", "2-3"))
    assert [code for *_, code in found] == [0] * ranks, found
    assert all(not out for out, *_ in found[1:])  # only the first prints
    payload = json.loads(found[0][0])
    return {m["method"]: (m["perplexity"], m["residual"], [d["error"] for d in m["downstream"]])
            for m in payload["methods"]}, payload["dense"], payload["self_check"]  # fmt: skip


def flat(numbers):
    if isinstance(numbers, dict):
        return [x for value in numbers.values() for x in flat(value)]
    return [x for value in numbers for x in flat(value)] if isinstance(numbers, (list, tuple)) else [numbers]


def same_as_alone(folder, ranks):
    one, several = compared(folder, 1), compared(folder, ranks)
    assert flat(several) == pytest.approx(flat(one), rel=1e-6)
    for count in (1, ranks):
        assert not any(code for *_, code in ended(started(folder, count, "-c", WRITES_W)))
    alone = torch.load(folder / "W-1-0.pt")
    for rank in range(ranks):
        found = torch.load(folder / f"W-{ranks}-{rank}.pt")
        assert found.keys() == alone.keys() and len(alone) == 4
        assert all(torch.allclose(found[k], alone[k], atol=1e-6, rtol=0) for k in alone)
    return True


def test_two_processes_give_the_same_numbers_as_one(folder):
    found = ended(started(folder, 1, "-c", WRITES_W)), ended(started(folder, 2, "-c", WRITES_W))
    assert not any(code for run in found for *_, code in run), found
    alone = torch.load(folder / "W-1-0.pt")
    for rank in range(2):
        several = torch.load(folder / f"W-2-{rank}.pt")
        assert several.keys() == alone.keys() and len(alone) == 4
        assert all(torch.allclose(several[k], alone[k], atol=1e-6, rtol=0) for k in alone)


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [2, 3])
def test_several_processes_compare_and_solve_as_one(folder, ranks):
    assert same_as_alone(folder, ranks)


@pytest.mark.soak
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_goes_silent_ends_the_run_with_one_sentence(folder, how):
    command = ["-m", "ghosted", *COMMAND, "--remove", "2-3"]
    command[command.index("3000")] = "30000"
    several = started(folder, 3, *command, patience=6)
    (folder / "text.txt").write_text((folder / "text.txt").read_text() * 20)
    deadline = time.monotonic() + 60
    while not any(Path(f"/proc/{several[1].pid}/task").glob("*/comm")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(6)  # past the imports
    several[1].send_signal(how)
    found = ended([several[0], several[2]], 90)
    several[1].kill()
    several[1].communicate()
    assert [code for *_, code in found] == [2, 2]
    said = [line for _, err, _ in found for line in err.splitlines() if "Another process" in line]
    assert said and not any("Traceback" in err for _, err, _ in found)


@pytest.mark.soak
def test_bad_input_is_said_once_by_all_together(folder):
    found = ended(started(folder, 2, "-m", "ghosted", *COMMAND, "--remove", "2-30"))
    assert [code for *_, code in found] == [2, 2]
    assert sum(len(err.strip().splitlines()) for _, err, _ in found) == 1


@pytest.mark.soak
def test_torchrun_starts_the_same(folder):
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ghosted", *COMMAND]
    ((out, _, code),) = ended(started(folder, 1, *run, "--remove", "2-3"))
    assert code == 0 and [m["method"] for m in json.loads(out.splitlines()[-1])["methods"]][-1] == "ghosted"


def test_by_itself_a_process_shares_nothing(monkeypatch):
    assert (distributed.size(), distributed.rank(), distributed.is_first()) == (1, 0, True)
    assert list(distributed.mine("abc")) == [(0, "a"), (1, "b"), (2, "c")]
    assert distributed.added_up(1.5, 2) == [1.5, 2] and distributed.everywhere(True)
    monkeypatch.setattr(distributed, "size", lambda: 3)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    assert list(distributed.mine("abcde")) == [(1, "b"), (4, "e")]


def test_a_patience_that_is_no_number_is_said(monkeypatch):
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("GHOSTED_PATIENCE", "long")):
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="must be a number of seconds, not 'long'"):
        distributed.begin()
