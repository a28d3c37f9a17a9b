"""Who computes, and when? One worker thread for the whole process, first come first served.

A single worker *is* the compute lock: the next job starts only when the one before has really wound down, however
its visitor left. The page's handlers never compute; they watch a :class:`Job` and pass on what it says.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ghosted.errors import Cancelled, GhostedError, InputError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Progress, Steps, drain
from ghosted.results import Run, Update

RunFunction = Callable[..., Steps[Run]]
"""``run(experiment, cancel=flag)``: a generator of Progress and Update that returns a Run."""


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
    """One experiment on its way: the worker puts events in, one watching handler takes them out.

    Events nobody has taken yet are merged (the newest progress, one update per part), so a slow browser never makes
    the worker wait and never sees stale pictures.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.cancel = CancelFlag()
        self.ended: Ended | None = None
        self._progress: Progress | None = None
        self._updates: dict[str, Update] = {}
        self._news = threading.Condition()

    def put(self, event: Any) -> None:
        """Take an event of the run; anything but Progress, Update and Ended is dropped."""
        with self._news:
            if isinstance(event, Progress):
                self._progress = event
            elif isinstance(event, Update):
                self._updates[event.part] = event
            elif isinstance(event, Ended):
                self.ended = event
            self._news.notify_all()

    def rest(self, seconds: float) -> None:
        """Let news gather for a moment, so that drawing leaves the cores to the model; returns at once at the end."""
        with self._news:
            self._news.wait_for(lambda: self.ended is not None, seconds)

    def take(self, patience: float) -> list[Any]:
        """Return what is new, oldest part first, after at most ``patience`` seconds."""
        with self._news:
            if not (self._progress or self._updates or self.ended):
                self._news.wait(patience)
            news = [*self._updates.values(), *([self._progress] if self._progress else [])]
            self._progress, self._updates = None, {}
            return news


class Runner:
    """Runs one job at a time on its own thread and knows which visitor each job belongs to."""

    def __init__(self, run: RunFunction, pace: float = 0.25) -> None:
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

    def watch(self, job: Job) -> Iterator[Any]:
        """Yield Waiting, Update and Progress events of a job, at last its Ended; leaving early stops the job."""
        try:
            place = None
            while job.ended is None:
                if (before := self.before(job)) != place and before:
                    place = before
                    yield Waiting(before)
                if news := job.take(self._pace):
                    yield from news
                    job.rest(self._pace)
            yield from job.take(0)
            yield job.ended
        finally:
            job.cancel.set()

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
