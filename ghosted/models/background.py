"""How does one blocking call show progress and stop when asked?

A call runs in a thread, a command in a process of its own; meanwhile :class:`~ghosted.progress.Progress` events
flow. A process is ended when the run is cancelled or abandoned; a thread finishes alone, its result is dropped, and
the folder that it writes in, if any, is gone after it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ghosted.errors import ResourceError
from ghosted.progress import CancelFlag, Progress, Steps

Result = TypeVar("Result")
_TICK = 0.2
PATIENCE = 1.5
"""Seconds that an abandoned call which writes is waited for: Stop must free the page within two."""


def call(
    stage: str, work: Callable[[], Result], *, expected: float = 5.0, limit: float | None = None,
    measure: Callable[[], tuple[int, int]] | None = None, cancel: CancelFlag | None = None, folder: Path | None = None,
) -> Steps[Result]:
    """Run ``work()`` in a thread.

    Args:
        stage: what it is called.
        work: the call; what it raises is raised here.
        expected: seconds it usually takes, for the time left.
        limit: seconds after which ``TimeoutError`` is raised here.
        measure: ``(done, total)`` in units of its own, where that is known better than by the clock.
        cancel: checked between two events.
        folder: what ``work`` writes in. Whoever abandons the call removes it, but a late writer may make it again:
            the call is waited for a moment, and removes the folder itself where it ends later.
    """
    outcome: list = []
    abandoned = threading.Event()

    def body() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:
            outcome.append((False, error))
        finally:
            if abandoned.is_set() and folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    thread = threading.Thread(target=body, name=f"ghosted: {stage}", daemon=True)
    start = time.monotonic()
    thread.start()
    try:
        while thread.is_alive():
            if cancel is not None:
                cancel.check()
            seconds = time.monotonic() - start
            if limit is not None and seconds > limit:
                raise TimeoutError(stage)
            yield _progress(stage, seconds, expected, measure)
            thread.join(_TICK)
    finally:
        if thread.is_alive():
            abandoned.set()
            thread.join(PATIENCE if folder is not None else 0)
    fine, value = outcome[0]
    if not fine:
        raise value
    yield Progress(stage, 1, 1, 0.0)
    return value


def command(
    stage: str, arguments: Sequence[str], *, log: Path, expected: float, limit: float = 3600.0,
    measure: Callable[[], tuple[int, int]] | None = None, environment: dict[str, str] | None = None,
    cancel: CancelFlag | None = None,
) -> Steps[int]:
    """Run a program to its end and return its exit code; what it prints goes to ``log``.

    It never outlives this generator: it is ended when the run is cancelled or abandoned.

    Raises:
        ResourceError: it took longer than ``limit`` seconds.
    """
    start = time.monotonic()
    with open(log, "wb") as output, subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
    ) as process:
        try:
            while True:
                try:
                    code = process.wait(_TICK)
                    break
                except subprocess.TimeoutExpired:
                    pass
                if cancel is not None:
                    cancel.check()
                seconds = time.monotonic() - start
                if seconds > limit:
                    raise ResourceError(f"{stage.capitalize()} took longer than {limit:.0f} s and was ended.")
                yield _progress(stage, seconds, expected, measure)
        finally:
            if process.poll() is None:
                process.kill()
    yield Progress(stage, 1, 1, 0.0)
    return code


def environment(folder: Path) -> dict[str, str]:
    """Return this process's environment for another Python, which finds the modules of ``folder`` first."""
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": paths}


def _progress(
    stage: str, seconds: float, expected: float, measure: Callable[[], tuple[int, int]] | None
) -> Progress:
    if measure is not None:
        done, total = measure()
        if total > 0 and done > 0:
            return Progress(stage, min(done, total), total, seconds / done * max(0, total - done))
    # By the clock: the bar waits at 95 % when the work takes longer than usual.
    done = round(100 * min(seconds / expected, 0.95))
    return Progress(stage, done, 100, max(0.0, expected - seconds) if done < 95 else None)
