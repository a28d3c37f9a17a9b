"""The page's handlers for a run: each translates page → library → page and nothing more."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis import library, panels
from analysis.endpoints import Only
from analysis.finished import Finished
from analysis.job import Ended, Job
from analysis.limits import Limits
from analysis.measuring import Asked, measurer
from analysis.panels import bus, controls, generations, share, status
from analysis.panels.lesson import LessonPanel
from analysis.portable import is_fixed
from analysis.record import Record
from analysis.runner import RunFunction, Runner
from analysis.session import Session, Sessions
from analysis.settings import FIELDS, experiment_from
from analysis.shown import Shown
from analysis.speech import say
from analysis.stale import pending_panels
from analysis.taking import LARGEST, Wanted, taker
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment
from ghosted.results import Run, Update


@dataclass(frozen=True)
class Layout:
    """What is on the page: the controls, the status line, what is shared, and the panels by name."""

    controls: controls.Controls
    status: status.StatusPanel
    share: Any
    bus: gr.HTML
    lesson: LessonPanel
    panels: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        """Return a panel by its name."""
        try:
            return self.__dict__["panels"][name]
        except KeyError:
            raise AttributeError(name) from None

    def inputs(self) -> list[gr.Component]:
        """Return the components that hold the settings, in the order of ``FIELDS``."""
        holders = (self.controls, *self.panels.values())
        return [next(getattr(each, name) for each in holders if hasattr(each, name)) for name in FIELDS]

    def outputs(self, part: str | None = None) -> list[gr.Component]:
        """Return the components that one part of a run changes, or all that a record changes."""
        names = panels.showing(part) if part else list(self.panels)
        return [self.status.notices, *(c for n in names for c in panels.components(self.panels[n]))]


class Live:
    """The handlers, bound to one page's layout, the runner and the open sessions."""

    def __init__(
        self, layout: Layout, run: RunFunction, describe: Callable[[str], Any], limits: Limits,
        first: Record | None = None, measure: RunFunction = library.measure, take: RunFunction = library.take,
        outlook: Callable[..., str] = library.outlook,
    ) -> None:
        self.first, self.first_pickers = first, {}
        self.layout, self.sessions, self.finished = layout, Sessions(limits.sessions), Finished()
        # One runner for all: they share the model, and so they wait for each other.
        def work(asked: Experiment | Asked | Only | Wanted, cancel: Any) -> Any:
            if limits.memory is not None:
                limits.check_memory(library.memory_needed(getattr(asked, "experiment", asked)))
            if isinstance(asked, Wanted):
                return take(asked, cancel=cancel, limit=self._largest)
            if isinstance(asked, Asked):
                return measure(asked, cancel=cancel)
            if isinstance(asked, Only):
                return run(asked.experiment, cancel=cancel, parts=asked.parts)
            return run(asked, cancel=cancel)

        self.runner = Runner(work, on_end=self._remember, known=self._known, most=limits.queue,
                             between=library.TURN.let_pass)
        self._describe, self.limits, self._outlook = describe, limits, outlook
        self._largest = None if limits.local_paths else LARGEST
        self._drawings, self._reducing = Shown(layout.panels), threading.Lock()

    def record(self, request: gr.Request) -> Record | None:
        """Return what this visitor's page shows now."""
        return self.sessions.of(request.session_hash).shown

    def shown_by(self, panel: str, visitor: str) -> Record | None:
        """Return the record that one panel shows: a preview's, or the one before where a run has not reached it."""
        session, part = self.sessions.of(visitor), panels.module(panel).PART
        if session.preview is not None and panel in session.previewed:
            return session.preview
        waits = self.runner.running(visitor) and part not in (None, *self.runner.parts(visitor))
        return session.before if waits else session.shown or self.first

    def start(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Start what the controls say."""
        visitor = request.session_hash
        try:
            self.sessions.admit(visitor)
            running = self.runner.running(visitor)
            self.runner.submit(visitor, self.experiment(visitor, values))
            if running:  # a double click
                return gr.skip()
        except GhostedError as error:
            return {self.layout.status.line: status.line(str(error), "failed")}
        session = self.sessions.of(visitor)
        session.preview_of.set()
        session.failed, session.before, session.preview = "", session.shown, None
        pending = bus.value(pending_panels((), session.before), drawn=session.drawn)
        begun = {self.layout.bus: pending, self.layout.status.line: status.line(say("status.starting"), "busy", 0)}
        return controls.buttons(self.layout.controls, running=True) | begun

    async def follow(self, request: gr.Request) -> AsyncIterator[dict[Any, Any]]:
        """Pass on where the run is and what the models write."""
        line, visitor = self.layout.status.line, request.session_hash
        yield {line: gr.skip()}  # gradio empties the outputs of a generator that yields nothing
        if (job := self.runner.claim(visitor, "lines")) is None:
            return
        async for event in self.runner.follow(job, visitor):
            if isinstance(event, Update):
                told = self.sessions.of(visitor).told
                yield generations.show_columns(self.layout.generations, event.run) | self._pending(job, visitor, told)
            else:
                yield {line: status.event_line(event, job.note)}

    def drawing(self, part: str) -> Callable[[gr.Request], Any]:
        """Return the handler that draws one part of a run once it is known."""

        async def draw(request: gr.Request) -> dict[Any, Any]:
            visitor = request.session_hash
            self.sessions.of(visitor).tell()  # the browser has the part before
            job = self.runner.claim(visitor, part)
            update = await self.runner.part(job, visitor, part) if job is not None else None
            if update is None:
                return gr.skip()
            shown = await asyncio.to_thread(self._drawn, job, update, visitor)
            return shown | self._pending(job, visitor, self.sessions.of(visitor).drawn)

        draw.__name__ = f"draw_{part}"
        return draw

    async def finish(self, request: gr.Request) -> dict[Any, Any]:
        """Give the buttons back at the end of the run, and list it if it was finished."""
        visitor = request.session_hash
        self.sessions.of(visitor).tell()
        if (job := self.runner.claim(visitor, "end")) is None:
            return gr.skip()
        ended = await self.runner.end(job, visitor)
        shown = controls.buttons(self.layout.controls, running=False)
        if ended.run is not None:
            session = self.sessions.of(visitor)
            session.shown = self._record(job, "all", ended.run)
            session.keep(session.shown)
            shown |= panels.module("runs").listed(self.layout.runs, session)
            shown |= share.show(self.layout.share, session.shown, session.takes)
        return shown

    def stop(self, request: gr.Request) -> str | dict[str, Any]:
        """Ask the visitor's run to stop."""
        stopping = self.runner.stop(request.session_hash)
        return status.line(say("status.stopping"), "busy", 0) if stopping else gr.skip()

    def leave(self, request: gr.Request) -> None:
        """Forget a visitor who has closed the page."""
        self.runner.forget(request.session_hash)
        for beside in (measurer, taker):
            self.runner.forget(beside(request.session_hash))
        self.sessions.forget(request.session_hash)

    def describe(self, model: str) -> Any:
        """Return a model's facts.

        Raises:
            GhostedError: it may not or cannot be used.
        """
        name = str(model or "").strip()
        self.allow(Experiment(model=name), "")
        return self._describe(name)

    def outlook(self, wanted: Wanted) -> str:
        """Return what an export will be.

        Raises:
            GhostedError: it would be refused.
        """
        return self._outlook(wanted, limit=self._largest)

    def experiment(self, visitor: str, values: tuple[Any, ...]) -> Experiment:
        """Return what the controls say.

        Raises:
            InputError: it makes no sense, or is not allowed here.
        """
        experiment = experiment_from(dict(zip(FIELDS, values, strict=True)))
        self.allow(experiment, visitor)
        return experiment

    def show(
        self, record: Record, session: Session, part: str | None = None, only: Sequence[str] = panels.PANELS,
    ) -> dict[Any, Any]:
        """Return the updates of the panels that show ``part`` of a record, or of ``only`` some, and the notices."""
        shown: dict[Any, Any] = {}
        shows = panels.showing(part) if part else {name: panels.module(name).show for name in only}
        for name, show in shows.items():
            try:
                shown |= self._drawings.of(record, name, show)
            except Exception:  # a picture that cannot be drawn must not take the others with it
                logging.getLogger(__name__).exception("the panel %s could not be drawn", name)
                session.failed = say("page.undrawn", panel=name.replace("_", " "))
        return shown | status.show(self.layout.status, record.run, session.failed)

    def allow(self, experiment: Experiment, visitor: str) -> None:
        """Refuse what may not be asked for here.

        Raises:
            InputError: a file of this machine where the page is open to others, or more than its bounds allow.
        """
        uploads = self.sessions.of(visitor).uploads if visitor else ()
        self.limits.check(experiment, uploads, [name for _, name in library.text_choices()])

    def _drawn(self, job: Job, update: Update, visitor: str) -> dict[Any, Any]:
        session = self.sessions.of(visitor)
        session.shown = self._record(job, update.part, update.run)
        session.redraw(panels.showing(update.part))
        return without_pictures(self.show(session.shown, session, update.part))

    def _pending(self, job: Job, visitor: str, drawn: Mapping[str, int]) -> dict[Any, Any]:
        before = self.sessions.of(visitor).before
        return {self.layout.bus: bus.value(pending_panels(job.parts, before), drawn=drawn)}

    def _remember(self, job: Job, ended: Ended) -> None:
        asked = job.experiment
        if ended.run is None or isinstance(asked, Asked | Wanted) or "decomposition" in getattr(asked, "parts", ()):
            return
        self.finished.put(asked, Record.of(ended.run))

    def _known(self, asked: Any) -> Run | None:
        """Return the run that answers what is asked for, where it is at hand and nothing it read can have changed."""
        if isinstance(asked, Asked | Wanted) or not is_fixed(getattr(asked, "experiment", asked)):
            return None
        record = self.finished.get(asked)
        return None if record is None else record.run

    def _record(self, job: Job, part: str, run: Run) -> Record:
        """Return what the page keeps of a job when a part of it is known: one record for all who watch it."""
        kept = self.finished.get(job.experiment) if job.ended is not None else None
        if kept is not None:
            return kept
        with self._reducing:
            if part not in job.records:
                job.records[part] = Record.of(run)
            return job.records[part]


def without_pictures(shown: dict[Any, Any]) -> dict[Any, Any]:
    """Return updates without figures: these are asked for when their panel comes near the window."""
    return {component: value for component, value in shown.items() if not isinstance(component, gr.Plot)}
