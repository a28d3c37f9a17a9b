"""What methods, criteria and texts are called on the page: by the label their own file gives them."""

from __future__ import annotations

from ghosted.registry import members


def choices(package: str) -> list[tuple[str, str]]:
    """Return ``(label, name)`` of every member of a registry, in its order."""
    return [(label_in(package, name), name) for name in members(package)]


def label_in(package: str, name: str) -> str:
    """Return the label of a registry's member; its name where it has none."""
    return getattr(members(package).get(name), "LABEL", name)


def method_label(name: str) -> str:
    """Return what a method, or the original, is called."""
    return "original" if name == "original" else label_in("ghosted.operators", name)
