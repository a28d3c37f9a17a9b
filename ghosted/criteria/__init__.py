"""The criteria: how the removed blocks are chosen. One file each, found by :func:`ghosted.registry.members`.

A criterion's module states ``NAME``, ``LABEL``, ``ORDER`` and ``choose(similarity, count) -> Choice``.
"""

from __future__ import annotations

from types import ModuleType

from ghosted.errors import InputError
from ghosted.registry import members, pick

PACKAGE = __name__


def criterion(name: str) -> ModuleType:
    """Return the module of one criterion; raises :class:`~ghosted.errors.InputError` for an unknown name."""
    return pick(PACKAGE, name, "criterion")


def check_count(count: int, blocks: int) -> None:
    """Raise :class:`~ghosted.errors.InputError` unless removing ``count`` of ``blocks`` leaves at least one."""
    if not 1 <= count < blocks:
        raise InputError(f"Cannot remove {count} of {blocks} blocks; choose a count from 1 to {blocks - 1}.")


def criteria() -> dict[str, ModuleType]:
    """Return all criteria by name, in the order they are shown."""
    return members(PACKAGE)
