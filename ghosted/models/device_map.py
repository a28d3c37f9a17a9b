"""Onto which devices does a model go when it is larger than one of them?

``$GHOSTED_DEVICE_MAP`` decides: ``auto`` (default) spreads a model over all accelerators and the memory beside them,
but only where it does not fit one device; ``none`` never does; ``disk`` lets what fits nowhere stay on disk, read again
in every pass; a path names a JSON file of accelerate's form, module → device. The spreading itself is accelerate's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ghosted import machine
from ghosted.errors import InputError

VARIABLE = "GHOSTED_DEVICE_MAP"
SHARE = 0.8
"""Of the free memory, what weights may take: the rest is for states and sums."""


def setting() -> str:
    """Return what ``$GHOSTED_DEVICE_MAP`` says; ``auto`` where it is not set."""
    return os.environ.get(VARIABLE, "").strip() or "auto"


def capacity(device: str | None = None) -> int | None:
    """Return the bytes that a model may take here, on all devices it may be spread over; ``None``: no bound.

    Args:
        device: where a model is to go that fits there; by default the machine's best.
    """
    where = device or machine.device()
    if setting() in ("auto", "none"):
        alone = machine.available_memory(where)
        if setting() == "none" or not where.startswith("cuda"):
            return alone
        return sum(_accelerators().values()) + machine.available_memory("cpu")
    return None


def choose(needed: int, device: str | None = None) -> dict[str, Any]:
    """Return the arguments for transformers' ``from_pretrained`` that spread a model, none where one device will do.

    Args:
        needed: bytes that the model takes.
        device: where it is to go if it fits.

    Raises:
        InputError: the file named is missing or no map.
    """
    how, where = setting(), device or machine.device()
    if how not in ("auto", "none", "disk"):
        return {"device_map": _read(how)}
    if how == "none" or needed <= machine.available_memory(where):
        return {}
    if how == "auto" and not where.startswith("cuda"):
        return {}
    memory: dict[Any, int] = {name: int(SHARE * free) for name, free in _accelerators().items()}
    return {"device_map": "auto", "max_memory": memory | {"cpu": int(SHARE * machine.available_memory("cpu"))}}


def _accelerators() -> dict[int, int]:
    import torch

    return {i: machine.available_memory(f"cuda:{i}") for i in range(torch.cuda.device_count())}


def _read(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).expanduser().read_text("utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, str | int) for v in found.values()):
        raise InputError(f"{VARIABLE} must be auto, none, disk, or a JSON file of module → device, not {path[:60]!r}.")
    return found
