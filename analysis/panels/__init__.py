"""The page's panels: one file each. A panel builds its components and says what they show for a run.

A panel module states ``PART``, the part of a run that it shows (of :data:`ghosted.results.PARTS`), and has ``build()``,
which creates its components and returns them as a dataclass, and ``show(panel, record)``, which returns the updates of
its components for a record. One with events of its own has ``wire(panel, live)``, one that shows something of further
parts ``ALSO``, their shows by part. Adding a panel is one file, and its name in :data:`PANELS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from types import ModuleType
from typing import Any

FIRST = ("layer_map", "boundary")
"""The panels of the first row, which a screen shows together."""

PANELS = (*FIRST, "generations", "scores", "evidence", "downstream", "tokens", "decomposition", "similarity", "runs")
"""Every panel, in the order of the page."""


def module(name: str) -> ModuleType:
    """Return a panel's module."""
    return importlib.import_module(f"{__name__}.{name}")


def components(panel: Any) -> Iterator[Any]:
    """Return the components of a panel's dataclass; a dictionary of components counts as its values."""
    for each in fields(panel):
        part = getattr(panel, each.name)
        yield from part.values() if isinstance(part, dict) else (part,)


def showing(part: str) -> dict[str, Callable[[Any, Any], dict[Any, Any]]]:
    """Return what shows one part of a run: by the panel's name, its ``show`` or what it has for further parts."""
    found = {}
    for name in PANELS:
        panel = module(name)
        show = panel.show if part == panel.PART else getattr(panel, "ALSO", {}).get(part)
        if show is not None:
            found[name] = show
    return found
