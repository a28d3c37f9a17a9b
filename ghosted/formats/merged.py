"""Merged: a repair of the feed-forward branch vanishes into the weights; the folder needs no code and no operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ghosted.errors import NotDefined
from ghosted.formats import _folder

if TYPE_CHECKING:
    from ghosted.formats._expected import Shape
    from ghosted.ghost import Ghost
    from ghosted.repaired import Repaired

NAME, LABEL, ORDER = "merged", "Merged weights (transformers, no code)", 20
METHODS = ("none", "replaceme", "replaceme-cosine")
WHY_NOT = "Only a repair of the feed-forward branch merges into the weights:"
LIMIT = 0.005
"""Merged weights are rounded to the model's dtype."""


def refuse(model: Shape) -> None:
    """Raise :class:`~ghosted.errors.NotDefined` where the repair does not merge; the message says why."""
    from ghosted.merge import check_merges
    from ghosted.models.families import find_family

    _folder.refuse(model)
    if model.method not in METHODS:
        raise NotDefined(f"{model.method} keeps an operator at run time; export it as adapter or checkpoint.")
    for gap in model.removed.gaps if model.dense else ():
        check_merges(gap, find_family(model.original))


def size(model: Shape) -> int:
    """Return the bytes of the kept weights."""
    return _folder.weights_bytes(model)


def says(model: Shape) -> str:
    """Return what it takes to load it."""
    return "needs no code: plain transformers loads it"


def write(model: Repaired, ghost: Ghost, folder: Path) -> None:
    """Write configuration, weights and tokenizer."""
    from ghosted.merge import merged_view

    _folder.save(merged_view(model.loaded.model, model.removed, model.repairs), model.loaded, folder)
