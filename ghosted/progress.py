"""How does long work say where it is, and how is it stopped?

Long functions are generators: they *yield* :class:`Progress` and *return* their result, so they nest with
``result = yield from step(...)``. Whoever drives them may stop between two events; a :class:`CancelFlag` reaches
the places in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from ghosted.errors import Cancelled

Result = TypeVar("Result")
Steps = Generator[Any, None, Result]
"""A generator that yields events and returns a ``Result``."""


@dataclass(frozen=True)
class Progress:
    """One step of a stage: ``done`` of ``total``, and an estimate of the seconds that this stage still takes."""

    stage: str
    done: int
    total: int
    seconds_left: float | None = None

    def __str__(self) -> str:
        """Return the line a person reads, such as ``calibrating: 12 of 64, about 5 s left``."""
        left = "" if self.seconds_left is None else f", about {self.seconds_left:.0f} s left"
        return f"{self.stage}: {self.done} of {self.total}{left}"


@dataclass(frozen=True)
class Note:
    """A sentence that a person should read now, such as what the next stage will cost."""

    text: str

    def __str__(self) -> str:
        """Return the sentence."""
        return self.text


class CancelFlag:
    """A switch that one thread sets and the working thread checks between batches."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask the work to stop at its next check."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise :class:`~ghosted.errors.Cancelled` if a stop was asked for."""
        if self.is_set:
            raise Cancelled("Stopped; press Run to start again.")


class Stage:
    """Counts the steps of one stage and turns them into :class:`Progress` events with the time left."""

    def __init__(self, name: str, total: int, cancel: CancelFlag | None = None) -> None:
        self.name, self.total, self.done = name, total, 0
        self._cancel = cancel
        self._start = time.monotonic()

    def step(self, n: int = 1) -> Progress:
        """Count ``n`` more steps; raises ``Cancelled`` where a stop was asked for."""
        if self._cancel is not None:
            self._cancel.check()
        self.done = min(self.done + n, self.total)
        elapsed = time.monotonic() - self._start
        left = elapsed / self.done * (self.total - self.done) if self.done else None
        return Progress(self.name, self.done, self.total, left)


def ignore(event: Any) -> None:
    """Take an event and do nothing."""


def settled(value: Steps[Result] | Result) -> Steps[Result]:
    """Return ``value``, run to its end first where it is a generator: short work need not be one."""
    return (yield from value) if isinstance(value, Generator) else value


def drain(steps: Steps[Result], on_event: Callable[[Any], None] | None = None) -> Result:
    """Run a generator to its end, hand each event to ``on_event``, and give back what it returns."""
    while True:
        try:
            event = next(steps)
        except StopIteration as stop:
            return stop.value
        if on_event is not None:
            on_event(event)

