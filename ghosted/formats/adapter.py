"""Adapter: the numbers of the repair alone; ``ghosted.load`` puts them on the base model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ghosted.adapter import Adapter

if TYPE_CHECKING:
    from ghosted.formats._expected import Shape
    from ghosted.ghost import Ghost
    from ghosted.repaired import Repaired

NAME, LABEL, ORDER = "adapter", "Adapter (safetensors)", 0
METHODS = None
LIMIT = 0.0


def refuse(model: Shape) -> None:
    """Every repair can be an adapter."""


def size(model: Shape) -> int:
    """Return 4 bytes per number of the repair: 4·C² per gap of a full operator."""
    return 4 * model.stored


def says(model: Shape) -> str:
    """Return what it takes to load it."""
    return "holds no code; ghosted.load puts it on the base model"


def write(model: Repaired, ghost: Ghost, folder: Path) -> None:
    """Write ``ghost.safetensors`` and ``ghost.json``."""
    Adapter(ghost, [fit.tensors() for fit in model.fits]).write(folder)
