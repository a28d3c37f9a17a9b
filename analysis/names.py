"""What methods, criteria and blocks are called on the page: by the catalogue, or the label their own file gives."""

from __future__ import annotations

from analysis.speech import say, say_of
from ghosted.registry import members
from ghosted.removed import RemovedBlocks


def choices(package: str) -> list[tuple[str, str]]:
    """Return ``(label, name)`` of every member of a registry, in its order."""
    return [(label_in(package, name), name) for name in members(package)]


def label_in(package: str, name: str) -> str:
    """Return the label of a registry's member; its name where it has none."""
    return say_of(package.rpartition(".")[2], name, getattr(members(package).get(name), "LABEL", name))


def method_label(name: str) -> str:
    """Return what a method, or the original, is called."""
    return say("page.original") if name == "original" else label_in("ghosted.operators", name)


def blocks_label(removed: RemovedBlocks | str) -> str:
    """Return blocks as people read them: ``3, 12–16``."""
    return str(removed).replace("-", "–").replace(",", ", ")


def removes(removed: RemovedBlocks, blocks: int) -> str:
    """Return the part of a sentence that says what goes: ``removes blocks 12–16 (5 of 30)``."""
    if not removed.gaps:
        return say("page.removes_nothing", all=blocks)
    key = "page.removes_one" if removed.count == 1 else "page.removes"
    return say(key, blocks=blocks_label(removed), count=removed.count, all=blocks)
