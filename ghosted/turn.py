"""Who computes first when somebody waits for an answer? A :class:`Turn`: a lock that patient work gives up.

An answer that a person waits for takes fractions of a second, the work beside it minutes. So whoever can wait asks
between two steps whether anybody is in a hurry, and lets them go first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ghosted.progress import CancelFlag

_TICK = 0.02


class Turn:
    """One computes at a time; the patient stand back for the urgent, also in the middle of their work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = threading.Lock()
        self._urgent = 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody in a hurry computes or waits to."""
        return self._urgent > 0

    @contextmanager
    def urgent(self, cancel: CancelFlag | None = None) -> Iterator[CancelFlag | None]:
        """Hold the turn for an answer that somebody waits for.

        Raises:
            Cancelled: ``cancel`` was set while waiting.
        """
        with self._count:
            self._urgent += 1
        try:
            self._take(cancel)
            try:
                yield cancel
            finally:
                self._lock.release()
        finally:
            with self._count:
                self._urgent -= 1

    @contextmanager
    def patient(self, cancel: CancelFlag | None = None) -> Iterator[CancelFlag]:
        """Hold the turn for work that can wait; the flag that it gets lets others go first whenever it is checked.

        Raises:
            Cancelled: ``cancel`` was set while waiting.
        """
        self.let_pass(cancel=cancel)
        self._take(cancel)
        try:
            yield _Polite(self, cancel)
        finally:
            self._lock.release()

    def let_pass(self, most: float = 60.0, cancel: CancelFlag | None = None) -> None:
        """Wait while anybody is in a hurry, at most some seconds.

        Raises:
            Cancelled: ``cancel`` was set meanwhile.
        """
        until = time.monotonic() + most
        while self.is_wanted and time.monotonic() < until:
            if cancel is not None:
                cancel.check()
            time.sleep(_TICK)

    def _take(self, cancel: CancelFlag | None) -> None:
        while not self._lock.acquire(timeout=_TICK):
            if cancel is not None:
                cancel.check()

    def _stand_back(self, cancel: CancelFlag | None) -> None:
        self._lock.release()
        try:
            self.let_pass(cancel=cancel)
        finally:
            self._lock.acquire()


class _Polite(CancelFlag):
    """A cancel flag that lets the urgent go first before it says whether to go on."""

    def __init__(self, turn: Turn, inner: CancelFlag | None) -> None:
        super().__init__()
        self._turn, self._inner = turn, inner

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return super().is_set or (self._inner is not None and self._inner.is_set)

    def check(self) -> None:
        """Let others go first; raises ``Cancelled`` if a stop was asked for."""
        super().check()
        if self._turn.is_wanted:
            self._turn._stand_back(self._inner)
            super().check()
