"""Which results are at hand? The records of this server's last finished runs, by what was asked for.

A link, a reload, or the same request again shows them at once; nothing is computed for either.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from analysis.record import Record


class Finished:
    """The newest records by what was asked for; the one not asked for the longest makes room."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._records: OrderedDict[Hashable, Record] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, asked: Hashable, record: Record) -> None:
        """Keep a record."""
        with self._lock:
            self._records[asked] = record
            self._records.move_to_end(asked)
            while len(self._records) > self._most:
                self._records.popitem(last=False)

    def get(self, asked: Hashable) -> Record | None:
        """Return the record of an equal request, if there is one."""
        with self._lock:
            if asked in self._records:
                self._records.move_to_end(asked)
            return self._records.get(asked)
