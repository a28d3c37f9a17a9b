"""The criteria: how the removed blocks are chosen. One file each, found by :func:`ghosted.registry.members`.

A criterion's module states ``NAME``, ``LABEL``, ``ORDER`` and ``choose(similarity, count) -> Choice``.
"""

from __future__ import annotations

from types import ModuleType

from ghosted.registry import members, pick

PACKAGE = __name__


def criterion(name: str) -> ModuleType:
    """Return the module of one criterion; raises :class:`~ghosted.errors.InputError` for an unknown name."""
    return pick(PACKAGE, name, "criterion")


def criteria() -> dict[str, ModuleType]:
    """Return all criteria by name, in the order they are shown."""
    return members(PACKAGE)
