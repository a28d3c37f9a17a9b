"""How much memory does one piece of work need at its peak, above what was there before it? One process per answer.

``python -m ghosted.bench._peak MODULE FUNCTION JSON`` calls ``MODULE.FUNCTION(**JSON)``, which prepares and returns the
work; the work is done, and a JSON object on stdout says the peak and what the work returned. On Linux the peak of the
preparation (reading weights) does not count; elsewhere the process's own peak stands for it.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ghosted.errors import ResourceError
from ghosted.models import background


def measured(work: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Prepare and do ``work`` in a process of its own.

    Args:
        work: a function of a module, which is called by name there and returns what is to be done.
        arguments: plain data for it.

    Returns:
        ``peak_bytes`` above what was resident before, ``seconds``, and whatever the work returned, a dict.

    Raises:
        ResourceError: the process failed.
    """
    environment = background.environment(Path(__file__).parents[2])
    command = [sys.executable, "-m", __name__, work.__module__, work.__name__, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ResourceError(f"The bench's own process failed: {last[:200]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(argv: list[str]) -> None:
    """Do what the command line says and print what it took."""
    module, function, arguments = argv
    work = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    before = _reset()
    start = time.perf_counter()
    found = work() or {}
    seconds = time.perf_counter() - start
    print(json.dumps({"peak_bytes": max(0, _peak() - before), "seconds": seconds} | found))


def _reset() -> int:
    """Forget the peak so far, and return what is resident now; on a GPU its own memory counts."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS") or _peak()


def _peak() -> int:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if (high := _status("VmHWM")) is not None:
        return high
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status(name: str) -> int | None:
    with suppress(OSError):
        found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else None
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
