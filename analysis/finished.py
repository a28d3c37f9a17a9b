"""Which results are at hand? The records of this server's last finished runs, by their experiment.

A link or a reload shows them at once; nothing is computed for either.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from analysis.record import Record
from ghosted.experiment import Experiment


class Finished:
    """The newest records by experiment; the one not asked for the longest makes room."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._records: OrderedDict[Experiment, Record] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, experiment: Experiment, record: Record) -> None:
        """Keep a record."""
        with self._lock:
            self._records[experiment] = record
            self._records.move_to_end(experiment)
            while len(self._records) > self._most:
                self._records.popitem(last=False)

    def get(self, experiment: Experiment) -> Record | None:
        """Return the record of an equal experiment, if there is one."""
        with self._lock:
            if experiment in self._records:
                self._records.move_to_end(experiment)
            return self._records.get(experiment)
