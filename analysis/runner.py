"""Who computes, and when? One worker thread for the whole process, first come first served.

A single worker *is* the compute lock: the next job starts only when the one before has really wound down, however
its visitor left. The page's handlers never compute; they watch a :class:`Job` and pass on what it says.

Equal experiments are one job: whoever asks for what is already waiting or running watches that, and a job ends early
only when nobody is left who wants it; what is known already is not computed again. A page that is reloaded has some
seconds to come back to its job.

Handlers wait without a thread, so that a classroom of waiting pages does not use up the server's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from analysis.job import Ended, Job, Waiting
from analysis.speech import say
from ghosted import machine
from ghosted.errors import Cancelled, GhostedError, InputError, ResourceError
from ghosted.experiment import Experiment
from ghosted.progress import Note, Progress, Steps, drain
from ghosted.results import Run, Update

RunFunction = Callable[..., Steps[Run]]
"""``run(experiment, cancel=flag)``: a generator of Progress, Note and Update that returns a Run."""

COURTESY = 1.0
"""Seconds that a job waits between two of its steps, at most, while somebody waits for an answer."""
REMINDER = 5.0
"""Seconds after which the expected wait is said anew."""
GRACE = 10.0
"""Seconds that a job goes on after its last visitor has left: a reload comes back within them."""


class Runner:
    """Runs one job at a time on its own thread and knows which visitor each job belongs to.

    Args:
        run: does what is asked for.
        pace: seconds between two looks of a handler that waits.
        grace: seconds that a job goes on without a visitor; by default :data:`GRACE`.
        on_end: is told how each job ended.
        known: what is asked for to its result, where there is no need to compute it.
        most: jobs that may wait behind the one that runs.
        between: is called between two steps of a job and may take up to so many seconds, to let others compute.
    """

    def __init__(
        self, run: RunFunction, pace: float = 0.3, grace: float | None = None,
        on_end: Callable[[Job, Ended], None] | None = None, known: Callable[[Any], Run | None] | None = None,
        most: int = 200, between: Callable[[float], None] | None = None,
    ) -> None:
        self._run, self._pace, self._on_end = run, pace, on_end
        self._grace = GRACE if grace is None else grace
        self._known, self._most, self._between = known, most, between
        self._jobs: deque[Job] = deque()
        self._took: dict[type, float] = {}
        self._of: dict[str, Job] = {}
        self._change = threading.Condition()
        self._worker: threading.Thread | None = None

    def submit(self, visitor: str, experiment: Experiment) -> Job:
        """Queue an experiment for a visitor, or join the job that is about to answer, or has answered, the same.

        Whoever asks again for what they wait for already, as a double click does, gets the job that they have.

        Raises:
            InputError: this visitor's last job is still running, and it is another.
            ResourceError: too many jobs wait.
        """
        with self._change:
            job = self._same(experiment)
            if self.running(visitor):
                if job is not self._of[visitor]:
                    raise InputError(say("refused.running"))
                return job
            if job is None:
                job = Job(experiment)
                known = self._known(experiment) if self._known is not None else None
                if known is not None:
                    job.give(known)
                else:
                    self._refuse_more()
                    self._jobs.append(job)
            self._join(visitor, job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="ghosted-compute", daemon=True)
                self._worker.start()
            self._change.notify_all()
        return job

    def join(self, visitor: str, experiment: Experiment) -> Job | None:
        """Watch the job that waits or runs for an equal experiment; ``None``, and nothing started, if there is none."""
        with self._change:
            job = self._same(experiment)
            if job is not None:
                self._join(visitor, job)
            return job

    def claim(self, visitor: str, what: str) -> Job | None:
        """Return a visitor's newest job if they do not watch ``what`` of it yet: a click too many changes nothing."""
        job = self._of.get(visitor)
        return job if job is not None and job.claim(visitor, what) else None

    async def follow(self, job: Job, visitor: str) -> AsyncIterator[Waiting | Progress | Note | Update | Ended]:
        """Yield where a job is and its texts, a few times a second, at last its end for this visitor."""
        place = seen = 0
        said = 0.0
        while True:
            ended = self._ended(job, visitor)  # looked at before the news, so that nothing said before it is missed
            if (before := self.before(job)) and (before != place or time.monotonic() - said > REMINDER):
                yield Waiting(before, self._seconds_before(job))
                said = time.monotonic()
            place = before
            seen, news = job.news(seen)
            for event in news:
                yield event
            if ended is not None:
                yield ended
                return
            await asyncio.sleep(self._pace)

    async def part(self, job: Job, visitor: str, name: str) -> Update | None:
        """Return a part of a job once it is known; ``None`` if the job ended without it."""
        while name not in job.parts and self._ended(job, visitor) is None:
            await asyncio.sleep(self._pace)
        return job.parts.get(name)

    async def end(self, job: Job, visitor: str) -> Ended:
        """Return how a job ended for this visitor, once it has."""
        while (ended := self._ended(job, visitor)) is None:
            await asyncio.sleep(self._pace)
        return ended

    @staticmethod
    def _ended(job: Job, visitor: str) -> Ended | None:
        if job.ended is None and visitor not in job.visitors and not job.cancel.is_set:
            return Ended("stopped", say("status.stopped_here"))
        return job.ended

    def before(self, job: Job) -> int:
        """Return how many jobs come before this one; 0 while it runs and afterwards."""
        with self._change:
            return self._jobs.index(job) if job in self._jobs else 0

    @property
    def busy(self) -> bool:
        """Whether a job runs now."""
        return bool(self._jobs)

    def running(self, visitor: str) -> bool:
        """Return whether a visitor waits for a job that has not ended."""
        job = self._of.get(visitor)
        return job is not None and job.ended is None and visitor in job.visitors

    def parts(self, visitor: str) -> Collection[str]:
        """Return which parts of a visitor's newest job are known."""
        job = self._of.get(visitor)
        return () if job is None else tuple(job.parts)

    def stop(self, visitor: str) -> bool:
        """Take a visitor off their job, which stops unless others wait for the same; tells whether there was one."""
        with self._change:
            if not self.running(visitor):
                return False
            self._leave(visitor, self._of[visitor])
            return True

    def forget(self, visitor: str) -> None:
        """Drop a visitor who has left; their job stops unless they, or somebody else, ask for it again in time."""
        with self._change:
            job = self._of.pop(visitor, None)
            if job is None or job.ended is not None:
                return
            job.release(visitor)
            if self._grace <= 0:
                self._leave(visitor, job)
                return
        later = threading.Timer(self._grace, self._give_up, (visitor, job))
        later.daemon = True
        later.start()

    def _give_up(self, visitor: str, job: Job) -> None:
        with self._change:
            if self._of.get(visitor) is not job:
                self._leave(visitor, job)

    def _leave(self, visitor: str, job: Job) -> None:
        job.visitors.discard(visitor)
        if job.visitors or job.ended is not None:
            return
        job.cancel.set()
        if job in self._jobs and self._jobs[0] is not job:
            self._jobs.remove(job)
            job.put(Ended("stopped", say("refused.stopped")))

    def _seconds_before(self, job: Job | None = None) -> float | None:
        """Return about how long the jobs before one, or all, still take; ``None`` where one's kind never ended yet."""
        with self._change:
            jobs = list(self._jobs)
        total = 0.0
        for each in jobs[: jobs.index(job) if job in jobs else len(jobs)]:
            takes = self._took.get(type(each.experiment))
            if takes is None:
                return None
            total += max(takes - (time.monotonic() - each.began), 0.0) if each.began else takes
        return total

    def _refuse_more(self) -> None:
        if len(self._jobs) > self._most:
            seconds = self._seconds_before()
            when = say("refused.some_minutes")
            if seconds is not None:
                when = say("refused.about_minutes", minutes=max(1, round(seconds / 60)))
            raise ResourceError(say("refused.queue", count=f"{self._most:,}", when=when))

    def _same(self, experiment: Experiment) -> Job | None:
        fitting = (job for job in self._jobs if job.experiment == experiment and not job.cancel.is_set)
        return next(fitting, None)

    def _join(self, visitor: str, job: Job) -> None:
        job.release(visitor)
        job.visitors.add(visitor)
        self._of[visitor] = job

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._jobs))
                job = self._jobs[0]
            ended = self._do(job)
            try:
                if self._on_end is not None:
                    self._on_end(job, ended)
            except BaseException as error:  # this thread is the only one there is: it must outlive everything
                ended = _failed(error)
            if ended.run is not None:
                took, before = time.monotonic() - job.began, self._took.get(type(job.experiment))
                self._took[type(job.experiment)] = took if before is None else (before + took) / 2
            with self._change:
                self._jobs.popleft()
                job.put(ended)
            del job, ended
            machine.give_back_memory()

    def _do(self, job: Job) -> Ended:
        job.began = time.monotonic()
        try:
            job.cancel.check()
            return Ended("finished", run=drain(self._run(job.experiment, cancel=job.cancel), self._taker(job)))
        except Cancelled as stopped:
            return Ended("stopped", str(stopped))
        except GhostedError as error:
            return Ended("failed", str(error))
        except BaseException as error:  # the page must stay usable whatever a run does
            return _failed(error)


    def _taker(self, job: Job) -> Callable[[Any], None]:
        def take(event: Any) -> None:
            job.put(event)
            if self._between is not None and not job.cancel.is_set:
                self._between(COURTESY)

        return take


def _failed(error: BaseException) -> Ended:
    """Return the end of a job that nobody expected to fail; what it held in memory goes with its traceback."""
    if machine.is_out_of_memory(error):
        while error is not None:
            error.__traceback__, error = None, error.__context__
        machine.free_memory()
        return Ended("failed", machine.OUT_OF_MEMORY)
    logging.getLogger(__name__).error("a run failed", exc_info=error)
    kind = type(error).__name__
    return Ended("failed", f"The run failed in a way nobody expected ({kind}); the server's log says where.")
