"""What do the panels show of a record? Drawn once for all who look at it.

A class that opens one run looks at the same tables and pictures: whoever asks first has them made, the others get the
same, and who asks meanwhile waits for these instead of making them again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from analysis.record import Record
from analysis.speech import language

MOST = 8
"""Records whose tables and pictures are kept, some megabytes each; the one not looked at for longest makes room."""

Show = Callable[[Any, Record], dict[Any, Any]]
"""A panel's ``show``: its components and a record to the components' updates."""


class _Entry:
    def __init__(self, record: Record) -> None:
        self.record, self.lock = record, threading.Lock()
        self.updates: dict[tuple[str, Show, str], dict[Any, Any]] = {}


class Shown:
    """The updates of the last records, by record, panel and language.

    Args:
        panels: the panels' components by name.
        most: records that are kept.
    """

    def __init__(self, panels: dict[str, Any], most: int = MOST) -> None:
        self._panels, self._most = panels, most
        self._kept: OrderedDict[int, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, record: Record, name: str, show: Show) -> dict[Any, Any]:
        """Return what ``show`` makes of a record for one panel; what it raises is raised, and tried again next time."""
        with self._lock:
            entry = self._kept.setdefault(id(record), _Entry(record))
            self._kept.move_to_end(id(record))
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        with entry.lock:
            asked = name, show, language()
            found = entry.updates.get(asked)
            if found is None:
                found = entry.updates[asked] = show(self._panels[name], record)
        return dict(found)
