"""mergekit: a recipe of the plain pruning for https://github.com/arcee-ai/mergekit, in its passthrough slices.

``layer_range`` is half-open there, as ranges are in code here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghosted.formats._expected import Shape
    from ghosted.ghost import Ghost
    from ghosted.removed import RemovedBlocks
    from ghosted.repaired import Repaired

NAME, LABEL, ORDER = "mergekit", "mergekit recipe (plain pruning)", 30
METHODS = ("none",)
WHY_NOT = "A mergekit recipe cuts and has no place for an operator:"
LIMIT = None
FILE = "mergekit.yaml"


def refuse(model: Shape) -> None:
    """Plain pruning of any model can be a recipe."""


def size(model: Shape) -> int:
    """Return about how large the recipe is."""
    return 4_096


def says(model: Shape) -> str:
    """Return what it takes to use it."""
    return "holds no weights; mergekit makes the pruned model from it"


def write(model: Repaired, ghost: Ghost, folder: Path) -> None:
    """Write the recipe."""
    name = model.loaded.facts.name if ghost.base.kind == "hub" else ghost.base.name
    text = recipe(name, ghost.base.revision, model.removed, ghost.base.blocks, ghost.base.dtype)
    if ghost.base.kind != "hub":
        text = f"# {json.dumps(name)} is no model of the Hub: put the folder of the base model in its place.\n{text}"
    (folder / FILE).write_text(text, "utf-8")


def recipe(name: str, revision: str | None, removed: RemovedBlocks, blocks: int, dtype: str) -> str:
    """Return the YAML: one slice for each run of blocks that stays.

    Args:
        name: Hub id or folder of the base model.
        revision: commit on the Hub.
        removed: which blocks go.
        blocks: L.
        dtype: of the result.
    """
    edges = [0, *(edge for gap in removed.gaps for edge in (gap.start, gap.stop)), blocks]
    kept = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
    model = json.dumps(f"{name}@{revision}" if revision else name)  # JSON strings are YAML strings
    lines = ["slices:"]
    for start, stop in kept:
        lines += ["  - sources:", f"      - model: {model}", f"        layer_range: [{start}, {stop}]"]
    return "\n".join([*lines, "merge_method: passthrough", f"dtype: {dtype}", ""])
