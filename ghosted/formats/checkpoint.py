"""Checkpoint: the pruned weights and the operators in one folder that plain transformers loads.

The operator needs a line of code at run time, so the folder carries :mod:`ghosted.modelling_ghosted` and transformers
asks for ``trust_remote_code=True``. This program itself never executes a folder's code: it has that file already.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ghosted.formats import _folder

if TYPE_CHECKING:
    from ghosted.formats._expected import Shape
    from ghosted.ghost import Ghost
    from ghosted.repaired import Repaired

NAME, LABEL, ORDER = "checkpoint", "Checkpoint (transformers)", 10
METHODS = None
LIMIT = 0.0


def refuse(model: Shape) -> None:
    """Raise :class:`~ghosted.errors.NotDefined` where the pruned model cannot be built from its configuration."""
    _folder.refuse(model)


def size(model: Shape) -> int:
    """Return the bytes of the kept weights and of the operators in float32."""
    return _folder.weights_bytes(model) + 4 * model.dense


def says(model: Shape) -> str:
    """Return what it takes to load it."""
    return ("carries one modelling file, so transformers asks for trust_remote_code=True" if model.dense else
            "needs no code: plain transformers loads it")  # fmt: skip


def write(model: Repaired, ghost: Ghost, folder: Path) -> None:
    """Write configuration, weights, modelling file and tokenizer; without an operator the folder needs no code."""
    from ghosted.formats._wrapped import wrapped

    repairs = model.repairs
    made = wrapped(model.loaded.model, model.removed, repairs) if repairs else model.view()
    _folder.save(made, model.loaded, folder)
