"""What is on its way, and how did it end? One job: the worker puts its events in, the page's handlers look."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Note, Progress
from ghosted.results import PARTS, Run, Update


@dataclass(frozen=True)
class Waiting:
    """The job waits; ``before`` others come first, and take about ``seconds`` where that is known."""

    before: int
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Ended:
    """The job is over.

    Attributes:
        how: ``finished``, ``stopped`` or ``failed``.
        said: one sentence for the status line, empty where it finished.
        run: what it returned.
    """

    how: str
    said: str = ""
    run: Run | None = None


class Job:
    """One experiment on its way: the worker puts events in, the page's handlers look.

    Of each kind of event only the newest is kept, so a slow browser never makes the worker wait and never sees what is
    out of date.

    Attributes:
        parts: the newest Update of each part of the run.
        ended: how it ended, ``None`` while it has not.
        note: the newest Note, until the part of the run that it was about is there.
        visitors: who wants its result.
        began: when it began to be computed, on the monotonic clock; 0 before.
        records: what the page has made of its parts, by part.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.cancel = CancelFlag()
        self.parts: dict[str, Update] = {}
        self.ended: Ended | None = None
        self.note = ""
        self.visitors: set[str] = set()
        self.began = 0.0
        self.records: dict[str, Any] = {}
        self._newest: dict[str, tuple[int, Progress | Note | Update]] = {}
        self._count = 0
        self._watched: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def put(self, event: Any) -> None:
        """Take an event of the run; an unknown kind is dropped."""
        with self._lock:
            self._count += 1
            if isinstance(event, Progress):
                self._newest["progress"] = self._count, event
            elif isinstance(event, Note):
                self.note = event.text
                self._newest["note"] = self._count, event
            elif isinstance(event, Ended):
                self.ended = event
            elif isinstance(event, Update):
                self.parts[event.part], self.note = event, ""
                if event.part == "columns":
                    self._newest["columns"] = self._count, event

    def give(self, run: Run) -> None:
        """End at once with a run that is known already."""
        for part in PARTS:
            self.put(Update(part, run))
        self.put(Ended("finished", run=run))

    def news(self, seen: int) -> tuple[int, list[Progress | Note | Update]]:
        """Return what changes all the time, progress, notes and texts, since event number ``seen``, and the newest."""
        with self._lock:
            newer = sorted((at, kind) for kind, (at, _) in self._newest.items() if at > seen)
            return self._count, [self._newest[kind][1] for _, kind in newer]

    def claim(self, visitor: str, what: str) -> bool:
        """Tell a visitor who asks first that ``what`` is theirs to watch, and afterwards that it is watched already."""
        with self._lock:
            mine = (visitor, what) not in self._watched
            self._watched.add((visitor, what))
            return mine

    def release(self, visitor: str) -> None:
        """Let a visitor who comes back watch everything anew."""
        with self._lock:
            self._watched = {claim for claim in self._watched if claim[0] != visitor}
