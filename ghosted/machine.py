"""What is this machine, how much memory is free, and which number format is fast on it?"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import cache as once
from pathlib import Path
from typing import Any

from ghosted import cache

FASTER = 1.2
"""bfloat16 is taken only where it is at least this many times as fast as float32: it costs precision."""

GIVE_BACK_EVERY = 5.0
"""Seconds between two returns of memory to the system: each walks through all of it."""
_given_back = 0.0
OUT_OF_MEMORY = "This machine ran out of memory; take fewer tokens, a smaller batch or a smaller model."

_SHAPE = (2048, 576, 1536)  # tokens, width and feed-forward width of the default model
_REPEATS = 9


def available_memory(device: str | None = None) -> int:
    """Return the bytes that can still be used, on the device's own memory where it has one.

    On the CPU that is what the system calls available, or what a container's limit leaves, whichever is less.
    """
    if device is not None and device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    import psutil

    free = int(psutil.virtual_memory().available)
    left = _container_memory_left()
    return free if left is None else min(free, left)


def _container_memory_left(base: Path = Path("/sys/fs/cgroup")) -> int | None:
    for limit_name, used_name, stat_name, cached in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            limit, used = (base / limit_name).read_text().strip(), int((base / used_name).read_text())
            if not limit.isdigit():
                return None
            stat = dict(line.split() for line in (base / stat_name).read_text().splitlines())
        except (OSError, ValueError):
            continue
        # Pages of files can be dropped at any time: they do not count as used.
        return max(0, int(limit) - used + int(stat.get(cached, 0)))
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory was not enough, on this machine or on its accelerator."""
    if isinstance(error, MemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or "allocate memory" in said or "ALLOC_FAILED" in said
        or "out of memory" in said.lower()
    )


def give_back_memory() -> None:
    """Give what Python has let go back to the system, where the C library keeps it for later (glibc), now and then.

    Threads that take turns at large tensors otherwise leave several times as much behind as is in use.
    """
    global _given_back
    if time.monotonic() - _given_back < GIVE_BACK_EVERY:
        return
    _given_back = time.monotonic()
    trim = _trim()
    if trim is not None:
        trim(0)


@once
def _trim() -> Callable[[int], int] | None:
    import ctypes

    if platform.system() != "Linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def free_memory() -> None:
    """Give back what a failed job has left: what only its frames held, and what the accelerator keeps for later."""
    import gc
    import sys

    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and device() != "cpu":
        getattr(torch, device()).empty_cache()


def device() -> str:
    """Return where models run here: ``cuda``, ``mps`` or ``cpu``."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def finisher(where: str) -> Callable[[], None] | None:
    """Return what waits until a device has done all it was given; ``None`` where work is done when a call returns."""
    import torch

    kind = torch.device(where).type
    if kind == "cpu":
        return None
    return lambda: torch.accelerator.synchronize(where)


def seconds_of(work: Callable[[], Any], where: str) -> float:
    """Do ``work`` and return its seconds; a device that computes on its own is waited for, before and after."""
    wait = finisher(where)
    if wait is not None:
        wait()
    start = time.perf_counter()
    work()
    if wait is not None:
        wait()
    return time.perf_counter() - start


@once
def cpu_name() -> str:
    """Return the processor's name as people know it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Return plain data that says on what a number was measured."""
    import psutil
    import torch

    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device(),
        "dtype": fastest_dtype(),
    }


@once
def fastest_dtype() -> str:
    """Return ``bfloat16`` where it is clearly faster here, else ``float32``.

    On a CPU this is measured once per machine (a product of the default model's shapes) and kept in the cache; on
    CUDA it is the device's own word. float16 is never taken: the states of some models do not fit into it.
    """
    import torch

    where = device()
    if where == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    if where != "cpu":
        return "float32"
    return _measured()["fastest"]


def operations_per_second(dtype: str) -> float | None:
    """Return how many floating-point operations a matrix product does per second here; ``None`` off the CPU."""
    if device() != "cpu":
        return None
    tokens, width, hidden = _SHAPE
    return 2 * tokens * width * hidden / _measured()[dtype]


@once
def _measured() -> dict[str, Any]:
    import torch

    key = cache.key_of({"cpu": cpu_name(), "cores": cores(), "torch": torch.__version__, "shape": _SHAPE})
    found = cache.read("machine", key, _read)
    if found is None:
        with cache.lock("machine", key):  # two processes that measure at once would disturb each other
            found = cache.read("machine", key, _read)
            if found is None:
                found = measure_dtypes()
                cache.put("machine", key, lambda f: (f / "dtype.json").write_text(json.dumps(found)))
    return found


def _read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "dtype.json").read_text())


def measure_dtypes(shape: tuple[int, int, int] = _SHAPE, repeats: int = _REPEATS) -> dict[str, Any]:
    """Time one product ``(tokens, C) @ (C, F)`` in both formats, interleaved.

    Returns:
        ``fastest``, and the median seconds per product under ``float32`` and ``bfloat16``.
    """
    import torch

    tokens, width, hidden = shape
    operands = {
        name: (torch.randn(tokens, width).to(dtype), torch.randn(width, hidden).to(dtype))
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    }
    seconds: dict[str, list[float]] = {name: [] for name in operands}
    with torch.inference_mode():
        for repeat in range(repeats + 2):
            for name, (left, right) in operands.items():
                start = time.perf_counter()
                left @ right
                if repeat >= 2:  # the first products also build the kernels
                    seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    faster = median["float32"] >= FASTER * median["bfloat16"]
    return {"fastest": "bfloat16" if faster else "float32", **median}
