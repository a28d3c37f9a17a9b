"""Blocking work beside progress: its result, its error, and nothing left of it where it is stopped."""

import os
import shutil
import sys
import threading
import time

import pytest

from ghosted.errors import Cancelled
from ghosted.models import background
from ghosted.progress import CancelFlag, drain


def test_a_command_ends_when_its_run_is_stopped(tmp_path):
    cancel = CancelFlag()
    steps = background.command(
        "sleeping", [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"],
        log=tmp_path / "log", expected=1.0, cancel=cancel,
    )
    while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text():
        next(steps)
    pid = int((tmp_path / "log").read_text())
    cancel.set()
    with pytest.raises(Cancelled):
        next(steps)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_call_hands_over_its_result_and_its_error():
    assert drain(background.call("adding", lambda: 1 + 1)) == 2
    with pytest.raises(ZeroDivisionError):
        drain(background.call("dividing", lambda: 1 / 0))
    with pytest.raises(TimeoutError):
        drain(background.call("waiting", lambda: time.sleep(1), limit=0.1))


@pytest.mark.parametrize("takes", [0.3, background.PATIENCE + 0.5])
def test_an_abandoned_call_leaves_nothing_of_what_it_writes(takes, tmp_path):
    folder, cancel = tmp_path / "work", CancelFlag()

    def write():
        time.sleep(takes)
        folder.mkdir(exist_ok=True)  # as save_pretrained does
        (folder / "weights").write_text("x")

    steps = background.call("writing", write, folder=folder, cancel=cancel)
    next(steps)
    cancel.set()
    with pytest.raises(Cancelled):
        drain(steps)
    shutil.rmtree(folder, ignore_errors=True)
    for thread in threading.enumerate():
        if thread.name == "ghosted: writing":
            thread.join()
    assert not folder.exists()
