"""The page's handlers for what is opened: a link, a run of the list, an imported file; and for what has grown stale."""

from __future__ import annotations

from typing import Any

import gradio as gr

from analysis import library, panels, pickers
from analysis.link import Flags, experiment_of
from analysis.live import Live, without_pictures
from analysis.measuring import measurer
from analysis.panels import bus, controls, layer_map, parts, share, status
from analysis.panels.runs import asked, listed
from analysis.portable import hashes
from analysis.record import Record
from analysis.session import Session
from analysis.settings import DEFAULT, FIELDS, values_of
from analysis.speech import language, speaking
from analysis.stale import pending_panels, stale_panels
from analysis.taking import taker
from analysis.words import language_of
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment
from ghosted.removed import RemovedBlocks


class Opening:
    """The handlers, bound to the page's live part."""

    def __init__(self, live: Live) -> None:
        self.live, self.layout = live, live.layout
        self.worded: list[Any] = []

    def open(self, request: gr.Request) -> dict[Any, Any]:
        """Fill the controls from the link, and show what is at hand: nothing is fetched or computed.

        From here on the visitor is spoken to in the language that the link asks for, else their browser.
        """
        with speaking(self.heard(request)):
            return self._open(request)

    def heard(self, request: gr.Request) -> str:
        """Note and return the language that a visitor's link, else their browser, asks for."""
        session, asked = self.live.sessions.of(request.session_hash), Flags.of(dict(request.query_params)).lang
        session.language = language_of(asked, request.headers.get("accept-language", ""))
        return session.language

    def _open(self, request: gr.Request) -> dict[Any, Any]:
        visitor, layout = request.session_hash, self.layout
        query = dict(request.query_params)
        experiment, notices = experiment_of(query, self._texts(visitor))
        notices += Flags.of(query).notices()
        try:
            self.live.sessions.admit(visitor)
            self.live.allow(experiment, visitor)
        except GhostedError as refused:
            experiment, notices = DEFAULT, [*notices, str(refused)]
        found = self.live.finished.get(experiment)
        record = found or self.live.first
        session = self.live.sessions.of(visitor)
        session.shown = record
        session.redraw(panels.PANELS)
        session.tell()
        # What the page opened with is in it already, and somebody may have begun to type.
        shown = share.show(layout.share, record, session.takes) if record is not None else {}
        shown |= self.live.first_pickers
        if found is not None:
            shown |= self._texts_of(found, session)
        if experiment != DEFAULT:
            shown |= share.follow(layout.share, experiment) | self.settings(experiment, record)
        if found is not None:
            session.keep(found)
            shown |= listed(layout.runs, session) | {layout.status.line: status.finished(found.run)}
        if notices:
            shown[layout.status.line] = status.line(" ".join(notices), "failed")
        elif found is None and (language() != "en" or experiment != DEFAULT):
            shown[layout.status.line] = status.ready(self.live.first is not None, experiment)
        job = self.live.runner.join(visitor, experiment) if found is None else None
        if job is not None:
            shown |= controls.buttons(layout.controls, running=True)
        return shown | {layout.bus: self.marks(session, experiment, job is not None)}

    def reword(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Say anew, in the visitor's language, what stands on the page and what it shows; no control changes."""
        visitor, layout = request.session_hash, self.layout
        session, runner = self.live.sessions.of(visitor), self.live.runner
        # A line that follows a job speaks the new language with the job's next word.
        busy = [line for line, job in ((layout.evidence.line, measurer), (layout.share.take.line, taker))
                if runner.running(job(visitor))]
        words = {each: parts.reworded(each) for each in self.worded if each not in busy}
        texts = layout.controls.text
        if texts in words:
            words[texts]["choices"] = [*words[texts]["choices"], *library.uploaded(session.uploads)]
        shown: dict[Any, Any] = {}
        for name in panels.PANELS:  # the map's words are its script's, and its value is the visitor's choice
            record = self.live.shown_by(name, visitor) if name != "layer_map" else None
            if record is not None:
                shown |= without_pictures(self.live.show(record, session, only=[name]))
        if session.shown is not None:
            shown |= share.show(layout.share, session.shown, session.takes)
        shown |= listed(layout.runs, session)
        session.redraw(panels.PANELS)
        marks = bus.value(pending_panels(runner.parts(visitor), session.before), drawn=session.drawn)
        try:
            experiment = self.live.experiment(visitor, values)
        except GhostedError:  # half-typed
            return parts.joined(words, shown) | {layout.bus: marks}
        if not runner.running(visitor):
            marks = self.marks(session, experiment)
        shown |= share.follow(layout.share, experiment, self._texts(visitor))
        return parts.joined(words, shown) | controls.told(layout.controls, experiment) | {layout.bus: marks}

    def near(self, event: gr.EventData, request: gr.Request) -> dict[Any, Any]:
        """Draw the pictures of the panels that have come near the window, as their pickers say; the others wait."""
        visitor, near = request.session_hash, getattr(event, "panels", ())
        session = self.live.sessions.of(visitor)
        drawn: dict[Any, Any] = {}
        for name in panels.PANELS:
            record = self.live.shown_by(name, visitor) if isinstance(near, list) and name in near else None
            if record is None:
                continue
            picked = session.picked.get(name)
            shown = self.live.show(record, session, only=[name])
            if picked:
                shown |= panels.module(name).redraw(self.layout.panels[name], record, *picked)
            if session.picked.get(name) is picked:  # else what has been picked meanwhile is being drawn already
                drawn |= {part: value for part, value in shown.items() if isinstance(part, gr.Plot)}
        return drawn or gr.skip()

    def _texts_of(self, record: Record, session: Session) -> dict[Any, Any]:
        """Return the updates of a whole record but its figures, which are asked for when their panel is near."""
        return without_pictures(self.live.show(record, session))

    def reopen(self, record: Record, request: gr.Request) -> dict[Any, Any]:
        """Show a record that was kept or imported, and set the controls to its settings."""
        session = self.live.sessions.of(request.session_hash)
        session.shown = record
        session.redraw(panels.PANELS)
        marks = bus.value({}, record.source, drawn=session.drawn)
        said = {self.layout.status.line: status.finished(record.run), self.layout.bus: marks}
        shown = self._texts_of(record, session) | share.show(self.layout.share, record, session.takes)
        return shown | self.settings(record.run.experiment, record) | said

    def act(self, event: gr.EventData, request: gr.Request) -> dict[Any, Any]:
        """Do what a button of the list of runs asks for: open, pin or delete."""
        session = self.live.sessions.of(request.session_hash)
        deed, number = asked(event.asked)
        record = session.runs.get(number)
        if record is None:
            return listed(self.layout.runs, session)
        if deed == "open":
            return self.reopen(record, request) | listed(self.layout.runs, session)
        if deed == "delete":
            session.drop(number)
        else:
            session.pinned = None if session.pinned == number else number
        return listed(self.layout.runs, session)

    def changed(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Write the link and the code of what the controls say now, and say which panels show something else."""
        visitor = request.session_hash
        try:
            experiment = self.live.experiment(visitor, values)
        except GhostedError:  # half-typed: Run says what is wrong with it
            return gr.skip()
        self.live.sessions.of(visitor).chosen = experiment.remove
        shown = {self.layout.controls.plan: controls.quiet(pickers.run_line(experiment))}
        if not self.live.runner.running(visitor):
            shown[self.layout.bus] = self.marks(self.live.sessions.of(visitor), experiment)
        return shown | share.follow(self.layout.share, experiment, self._texts(visitor))

    def _texts(self, visitor: str) -> dict[str, str]:
        return hashes(self.live.sessions.of(visitor).uploads)

    def marks(self, session: Session, experiment: Experiment, resume: bool = False) -> str:
        """Return which panels show something else than the experiment, and where what is shown comes from."""
        stale, fresh = stale_panels(session.shown, experiment), session.fresh(experiment)
        if "all" not in stale:
            stale = {name: reason for name, reason in stale.items() if name not in fresh}
        source = session.shown.source if session.shown is not None else "live"
        return bus.value(stale, source, fresh, resume, session.told)

    def settings(self, experiment: Experiment, record: Record | None) -> dict[Any, Any]:
        """Return the updates that set every control to an experiment, and the map to its blocks."""
        named = dict(zip(FIELDS, self.layout.inputs(), strict=True))
        shown = {named[name]: value for name, value in values_of(experiment).items()}
        shown[self.layout.controls.count] = gr.Number(experiment.count, visible=experiment.criterion != "manual")
        shown[self.layout.controls.facts] = controls.quiet(pickers.catalogue_line(experiment.model))
        same = record is not None and record.run.experiment.model == experiment.model
        removed = RemovedBlocks.parse(experiment.remove)
        if experiment.criterion != "manual" and record is not None:
            removed = record.run.removed
        return shown | layer_map.set_range(self.layout.layer_map, removed, record if same else None)
