"""What does the page remember of a visitor? What it shows, their finished runs and their uploads: nothing large."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from analysis.lessons.answers import Answered
from analysis.lessons.kept import Kept
from analysis.record import Record
from analysis.speech import say
from ghosted.errors import ResourceError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag

MOST_RUNS = 30
"""Finished runs kept per visitor; the oldest that is not pinned makes room."""


MOST_TAKEN = 4
IDLE = 1200.0
"""Seconds after which a page that nobody touched makes room for another, where there is none left."""

SETTLE = 0.03
"""Seconds that the answer of a form waits for a later one."""


@dataclass
class Session:
    """One open page.

    Attributes:
        shown: what the panels show now.
        before: what they showed when the last run began.
        preview: what the panels at the boundary show where the range has changed since.
        previewed: the panels that show it.
        preview_of: stops the preview that is being computed.
        asked: the range and the methods that a preview was last asked for.
        runs: the finished runs by number, oldest first.
        pinned: number of the run that the others are compared with.
        drawn: by panel, how many times its pictures have changed; the page asks for them when they come near.
        told: the same, as the browser knows it for sure. Other answers say no more: they may overtake the one that sets
            a panel's pickers, and what was picked beside the pictures would be set back.
        picked: by panel, what a person has set in the panel's own pickers since its pictures last changed.
        typed: when the range's text was last written in; an answer that a later one has overtaken is not sent, for it
            would put back what was typed before.
        followed: when the map was last told to follow the text.
        uploads: paths of the files this visitor has uploaded.
        chosen: the blocks that the controls remove, in their canonical form.
        language: of the page, ``en`` or ``de``.
        lesson: the open lesson and its step, from 0; no name where none is open.
        answers: by lesson and step, what was answered last.
        kept: answers of before a reload that were not checked again yet (:mod:`analysis.lessons.kept`).
        skipped: by lesson and step, the questions whose panels were uncovered without an answer.
        teacher: whether lessons show their answers.
        failed: what could not be drawn of the last run, one sentence.
        used: when the page was last heard of.
        takes: the method that they have picked to export as a model.
        taken: the last exports that were handed to a program, whose files are there for as long as they are here.
    """

    shown: Record | None = None
    before: Record | None = None
    preview: Record | None = None
    previewed: tuple[str, ...] = ()
    preview_of: CancelFlag = field(default_factory=CancelFlag)
    asked: tuple[str, tuple[str, ...]] | None = None
    runs: dict[int, Record] = field(default_factory=dict)
    pinned: int | None = None
    drawn: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    picked: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    typed: float = 0
    followed: float = -math.inf
    uploads: set[str] = field(default_factory=set)
    chosen: str = ""
    language: str = "en"
    lesson: tuple[str, int] = ("", 0)
    answers: dict[tuple[str, int], Answered] = field(default_factory=dict)
    kept: Kept = field(default_factory=dict)
    skipped: set[tuple[str, int]] = field(default_factory=set)
    teacher: bool = False
    failed: str = ""
    used: float = 0.0
    takes: str = ""
    taken: deque[Any] = field(default_factory=lambda: deque(maxlen=MOST_TAKEN))
    _last: int = 0

    def write(self, at: float = 0) -> Callable[[], bool]:
        """Note that the range's text was written in; what is returned waits a moment and tells if it is the newest.

        The moment is for letters that came together: their answers would reach the browser in any order.

        Args:
            at: when, by the visitor's clock; by default after all that was written before.
        """
        at = at or self.typed + 1
        self.typed = max(at, self.typed)

        def is_newest() -> bool:
            time.sleep(SETTLE)
            return self.typed == at

        return is_newest

    def keep(self, record: Record) -> int:
        """Keep a finished run and return its number, counted from 1; the very same run once more takes a new place."""
        self._last += 1
        before = next((number for number, kept in self.runs.items() if kept is record), None)
        if before is not None:
            del self.runs[before]
            self.pinned = self._last if self.pinned == before else self.pinned
        self.runs[self._last] = record
        while len(self.runs) > MOST_RUNS:
            del self.runs[next(number for number in self.runs if number != self.pinned)]
        return self._last

    def redraw(self, panels: Iterable[str]) -> None:
        """Note that the pictures of these panels have changed."""
        for name in panels:
            self.drawn[name] = self.drawn.get(name, 0) + 1
            self.picked.pop(name, None)

    def tell(self) -> None:
        """Note that the browser has what was drawn so far."""
        self.told = dict(self.drawn)

    def fresh(self, experiment: Experiment) -> tuple[str, ...]:
        """Return the panels that a preview of this very experiment fills."""
        answered = self.preview.run.experiment if self.preview is not None else None
        same = answered is not None and (answered.remove, answered.methods) == (experiment.remove, experiment.methods)
        return self.previewed if same else ()

    def drop(self, number: int) -> None:
        """Delete a run; one that is not there is no mistake."""
        self.runs.pop(number, None)
        if self.pinned == number:
            self.pinned = None


class Sessions:
    """The open pages by their session hash; one that is not touched for long makes room, for not all say goodbye.

    Args:
        most: pages that are remembered.
        idle: seconds without an event after which a page may make room.
        clock: the time in seconds.
    """

    def __init__(self, most: int = 200, idle: float = IDLE, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._idle, self._clock = most, idle, clock
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def of(self, visitor: str) -> Session:
        """Return a visitor's session; where there is none and no room, one that is not remembered."""
        with self._lock:
            session = self._open.get(visitor)
            if session is None:
                session = Session()
                if not self._makes_room():
                    return session
                self._open[visitor] = session
            self._open.move_to_end(visitor)
            session.used = self._clock()
            return session

    def language(self, visitor: str) -> str:
        """Return the language of a visitor; English for one who is not remembered."""
        session = self._open.get(visitor)
        return session.language if session is not None else "en"

    def admit(self, visitor: str) -> None:
        """Remember a visitor's page.

        Raises:
            ResourceError: as many pages as are served at once are open, and all of them in use.
        """
        self.of(visitor)
        if visitor not in self._open:
            raise ResourceError(say("refused.open", count=f"{self._most:,}"))

    def forget(self, visitor: str) -> None:
        """Drop a visitor who has left."""
        with self._lock:
            self._open.pop(visitor, None)

    def _makes_room(self) -> bool:
        while len(self._open) >= self._most:
            oldest, session = next(iter(self._open.items()))
            if self._clock() - session.used < self._idle:
                return False
            del self._open[oldest]
        return True
