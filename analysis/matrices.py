"""Where is the whole operator while somebody looks at a part of it? In one bounded store for the whole process.

A visitor's pictures keep a key only. What has not been looked at for longest makes room, and then the page asks for
another run before it zooms.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict

import numpy as np


class Matrices:
    """Operators by a key that cannot be guessed, the least recently used dropped first.

    Args:
        most: bytes kept at most; a matrix above that is not kept at all.
    """

    def __init__(self, most: int = 64 << 20) -> None:
        self._most, self._bytes = most, 0
        self._kept: OrderedDict[str, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes kept now."""
        return self._bytes

    def put(self, matrix: np.ndarray) -> str:
        """Keep a ``(C, C)`` matrix as float32 and return its key, or ``""`` where it is too large to be kept."""
        kept = np.asarray(matrix, dtype=np.float32)
        if kept.nbytes > self._most:
            return ""
        key = secrets.token_hex(8)
        with self._lock:
            self._kept[key] = kept
            self._bytes += kept.nbytes
            while self._bytes > self._most:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return key

    def get(self, key: str) -> np.ndarray | None:
        """Return a matrix, or ``None`` where it is gone."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]


MATRICES = Matrices()
"""The process's own store."""
