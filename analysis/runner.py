"""Who computes, and when? One worker thread for the whole process, first come first served.

A single worker *is* the compute lock: the next job starts only when the one before has really wound down, however
its visitor left. The page's handlers never compute; they watch a :class:`Job` and pass on what it says.

Handlers wait without a thread, so that a classroom of waiting pages does not use up the server's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from ghosted.errors import Cancelled, GhostedError, InputError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Note, Progress, Steps, drain
from ghosted.results import Run, Update

RunFunction = Callable[..., Steps[Run]]
"""``run(experiment, cancel=flag)``: a generator of Progress, Note and Update that returns a Run."""


@dataclass(frozen=True)
class Waiting:
    """The job waits; ``before`` others come first."""

    before: int


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

    What nobody has seen yet is merged into the newest of its kind, so a slow browser never makes the worker wait and
    never sees what is out of date.

    Attributes:
        parts: the newest Update of each part of the run.
        ended: how it ended, ``None`` while it has not.
        note: the newest Note, until the part of the run that it was about is there.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.cancel = CancelFlag()
        self.parts: dict[str, Update] = {}
        self.ended: Ended | None = None
        self.note = ""
        self._unseen: dict[str, Progress | Note | Update] = {}
        self._watched: set[str] = set()
        self._lock = threading.Lock()

    def put(self, event: Any) -> None:
        """Take an event of the run; an unknown kind is dropped."""
        with self._lock:
            if isinstance(event, Progress):
                self._unseen["progress"] = event
            elif isinstance(event, Note):
                self.note = event.text
                self._unseen["note"] = event
            elif isinstance(event, Ended):
                self.ended = event
            elif isinstance(event, Update):
                self.parts[event.part], self.note = event, ""
                if event.part == "columns":
                    self._unseen["columns"] = event

    def news(self) -> list[Progress | Note | Update]:
        """Return what changes all the time, progress, notes and texts, as far as nobody has seen it."""
        with self._lock:
            news, self._unseen = list(self._unseen.values()), {}
            return news

    def claim(self, what: str) -> bool:
        """Tell the first who asks that ``what`` is theirs to watch, and everybody after them that it is not."""
        with self._lock:
            mine = what not in self._watched
            self._watched.add(what)
            return mine


class Runner:
    """Runs one job at a time on its own thread and knows which visitor each job belongs to."""

    def __init__(self, run: RunFunction, pace: float = 0.3) -> None:
        self._run, self._pace = run, pace
        self._jobs: deque[Job] = deque()
        self._of: dict[str, Job] = {}
        self._change = threading.Condition()
        self._worker: threading.Thread | None = None

    def submit(self, visitor: str, experiment: Experiment) -> Job:
        """Queue an experiment for a visitor.

        Raises:
            InputError: this visitor's last job is still running or winding down.
        """
        with self._change:
            last = self._of.get(visitor)
            if last is not None and last.ended is None:
                raise InputError("A run of this page is already running; press Stop or wait for its end.")
            job = self._of[visitor] = Job(experiment)
            self._jobs.append(job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="ghosted-compute", daemon=True)
                self._worker.start()
            self._change.notify_all()
        return job

    def claim(self, visitor: str, what: str) -> Job | None:
        """Return a visitor's newest job if nobody watches ``what`` of it yet: a click too many changes nothing."""
        job = self._of.get(visitor)
        return job if job is not None and job.claim(what) else None

    async def follow(self, job: Job) -> AsyncIterator[Waiting | Progress | Note | Update | Ended]:
        """Yield where a job is and its texts, a few times a second, at last its end; leaving early stops the job."""
        place = 0
        try:
            while True:
                ended = job.ended  # looked at before the news, so that nothing said before the end is missed
                if (before := self.before(job)) and before != place:
                    yield Waiting(before)
                place = before
                for event in job.news():
                    yield event
                if ended is not None:
                    yield ended
                    return
                await asyncio.sleep(self._pace)
        finally:
            job.cancel.set()

    async def part(self, job: Job, name: str) -> Update | None:
        """Return a part of a job once it is known; ``None`` if the job ended without it."""
        while name not in job.parts and job.ended is None:
            await asyncio.sleep(self._pace)
        return job.parts.get(name)

    async def end(self, job: Job) -> Ended:
        """Return how a job ended, once it has."""
        while job.ended is None:
            await asyncio.sleep(self._pace)
        return job.ended

    def before(self, job: Job) -> int:
        """Return how many jobs come before this one; 0 while it runs and afterwards."""
        with self._change:
            return self._jobs.index(job) if job in self._jobs else 0

    def stop(self, visitor: str) -> bool:
        """Ask a visitor's job to stop; tells whether there was one."""
        with self._change:
            job = self._of.get(visitor)
            if job is None or job.ended is not None:
                return False
            job.cancel.set()
            if job in self._jobs and self._jobs[0] is not job:
                self._jobs.remove(job)
                job.put(Ended("stopped", "Stopped before it started."))
            return True

    def forget(self, visitor: str) -> None:
        """Stop and drop a visitor who has left."""
        self.stop(visitor)
        with self._change:
            self._of.pop(visitor, None)

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._jobs))
                job = self._jobs[0]
            ended = self._do(job)
            with self._change:
                self._jobs.popleft()
                job.put(ended)
            del job, ended

    def _do(self, job: Job) -> Ended:
        try:
            job.cancel.check()
            return Ended("finished", run=drain(self._run(job.experiment, cancel=job.cancel), job.put))
        except Cancelled as stopped:
            return Ended("stopped", str(stopped))
        except GhostedError as error:
            return Ended("failed", str(error))
        except Exception as error:  # the page must stay usable whatever a run does
            logging.getLogger(__name__).exception("a run failed")
            kind = type(error).__name__
            return Ended("failed", f"The run failed in a way nobody expected ({kind}); the server's log says where.")
