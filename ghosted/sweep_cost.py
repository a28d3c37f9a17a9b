"""What will a sweep take? Memory and time of each cell from what the catalogue knows, without a network.

Rough on purpose: passes over the calibration and the scored text and over the tasks' items, at this machine's measured
speed. What a criterion costs beside that is said when it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ghosted.errors import GhostedError
from ghosted.models import describe, resolve
from ghosted.models.entries import ENTRIES
from ghosted.models.facts import ModelFacts
from ghosted.scores.tasks import NAMES
from ghosted.sweep import Cell
from ghosted.texts.whole import ENDLESS_WINDOWS, WINDOW
from ghosted.texts.windows import HELD_OUT_LEAST

ITEMS = {"ARC-c": 1172, "ARC-e": 2376, "BoolQ": 3270, "HellaSwag": 10042, "PIQA": 1838, "WinoGrande": 1267,
         "WSC273": 273, "RACE-h": 1045, "COPA": 100}  # fmt: skip
"""Items of the papers' tasks, as the harness scores them."""
TOKENS_PER_ITEM = 120
"""Of all answers of an item with their question: what the local ARC-Easy and PIQA items have, about."""


@dataclass(frozen=True)
class CellCost:
    """What one cell takes.

    Attributes:
        memory_bytes: with its model, in this machine's dtype; ``None`` where the model is not known beforehand.
        seconds: on this machine; ``None`` where that or a text's or a task's length is not known.
        blocks: of the original.
    """

    memory_bytes: int | None
    seconds: float | None
    blocks: int | None


def facts_without_network(name: str) -> ModelFacts | None:
    """Return what is known of a model without asking anybody; ``None`` for an id that the catalogue lacks."""
    for entry in ENTRIES:
        if name.lower() in (entry.name, entry.source.lower()) and not entry.offline:
            return ModelFacts(entry.name, entry.label, "hub", "", entry.blocks, 0, 0, int(entry.parameters))
    try:
        return None if resolve(name).kind == "hub" else describe(name, refuse_too_large=False)
    except GhostedError:
        return None


def cost(cell: Cell) -> CellCost:
    """Return what a cell takes."""
    e, plan = cell.experiment, cell.plan
    facts = facts_without_network(e.model)
    if facts is None:
        return CellCost(None, None, None)
    window = plan.window or min(WINDOW, facts.context or WINDOW)
    texts = max(1, len(e.evaluate)) if e.evaluate or not plan.tasks else 0
    scored = texts * (plan.windows or ENDLESS_WINDOWS) * (plan.stride or window)
    known = {task: ITEMS.get(task) if task in NAMES else None for task in plan.tasks}
    items = [plan.limit if count is None else min(count, plan.limit or count) for count in known.values()]
    seconds = None
    if None not in items:
        scored += TOKENS_PER_ITEM * sum(items)
        models = 1 + len(e.methods) * (facts.blocks - e.count) / facts.blocks
        read = e.tokens + max(HELD_OUT_LEAST, e.tokens // 4)
        seconds = facts.pass_seconds(int(read + models * scored), e.dtype)
    return CellCost(facts.memory(e.dtype), seconds, facts.blocks)
