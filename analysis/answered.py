"""Which ranges have been answered already from the states at hand? Their numbers, for everybody who asks the same.

Numbers only, without the operators' pictures: some kilobytes each. They belong to one calibration and go with it.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import numpy as np

from analysis.record import Record

MOST = 256
"""Answers that are kept; the one not asked for longest makes room."""


class Answered:
    """Records of quick answers by what was asked, for as long as the calibration they come from is in use."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._of: Any = lambda: None
        self._records: OrderedDict[Hashable, Record] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, calibration: Any, asked: Hashable) -> Record | None:
        """Return the answer that the states of a calibration gave before, if they did."""
        with self._lock:
            if calibration is None or self._of() is not calibration or asked not in self._records:
                return None
            self._records.move_to_end(asked)
            return self._records[asked]

    def put(self, calibration: Any, asked: Hashable, record: Record) -> Record:
        """Keep an answer and return it as it is kept; one from nowhere is only returned."""
        light = without_pictures(record)
        with self._lock:
            if calibration is not None:
                if self._of() is not calibration:
                    self._of = weakref.ref(calibration)
                    self._records.clear()
                self._records[asked] = light
                while len(self._records) > self._most:
                    self._records.popitem(last=False)
        return light


def without_pictures(record: Record) -> Record:
    """Return a record whose operators have their numbers only."""
    nothing = np.zeros((1, 1), dtype=np.float32)
    light = {name: dataclasses.replace(each, reduced=nothing, matrix="") for name, each in record.portraits.items()}
    return dataclasses.replace(record, portraits=light)
