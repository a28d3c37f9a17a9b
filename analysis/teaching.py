"""The page's handlers for lessons: open one, go on, answer, see what the class said. Nothing of it computes a run."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import gradio as gr

from analysis import precomputed
from analysis.lessons import RUNS, Lesson, Question, lessons
from analysis.lessons.answers import Answered, check
from analysis.lessons.guesses import Guesses, bars
from analysis.lessons.kept import browser, kept
from analysis.link import Flags
from analysis.opening import Opening
from analysis.panels import bus, status
from analysis.panels import lesson as panel_of
from analysis.panels.lesson import LessonPanel
from analysis.record import Record
from analysis.session import Session
from analysis.speech import speaking
from analysis.words import LANGUAGES, said


@cache
def run_of(name: str) -> Record | None:
    """Return a lesson's run, made by ``python -m ghosted precompute --lessons``; ``None`` where it is not at hand."""
    return precomputed.read(RUNS / f"{name}.json", "a lesson's run is missing")


class Teaching:
    """The handlers, bound to the page's opening."""

    def __init__(self, opening: Opening, panel: LessonPanel) -> None:
        self.opening, self.live, self.panel = opening, opening.live, panel
        self.guesses = Guesses()

    def open(self, answers: str, request: gr.Request) -> dict[Any, Any]:
        """Open the lesson that the link names, in the visitor's language, with the answers that their browser kept."""
        self._session(request).kept = kept(answers)
        language, flags = self.opening.heard(request), Flags.of(dict(request.query_params))
        name, _, step = flags.lesson.partition(".")
        if (found := lessons().get(name)) is not None:
            return self._go(request, found, int(step) - 1 if step.isdecimal() and len(step) < 4 else 0)
        return panel_of.closed(self.panel, language) if language != "en" else gr.skip()

    def act(self, event: gr.EventData, request: gr.Request) -> dict[Any, Any]:
        """Do what a button of the panel asks for."""
        session = self._session(request)
        deed, value, token = asked(event.asked)
        found = lessons().get(value if deed == "open" else session.lesson[0])
        if deed == "lang":
            session.language = value if value in LANGUAGES else "en"
            return self._spoken(request) | self._now(request, found)
        if deed == "forget":
            session.answers, session.kept, session.skipped = {}, {}, set()
            return self._now(request, found)
        if deed == "teacher":
            session.teacher = not session.teacher
        if found is None or deed in ("close", "finish"):
            session.lesson = ("", 0)
            return self._now(request, None)
        if deed == "open":
            return self._go(request, found, 0)
        if deed == "go":
            return self._go(request, found, int(value) if value.isdecimal() and len(value) < 4 else 0)
        if deed == "answer":
            self._answer(request, found, value, browser(token, request.session_hash))
        if deed == "uncover":
            session.skipped.add(session.lesson)
        return self._shown(request, found)

    def _now(self, request: gr.Request, found: Lesson | None) -> dict[Any, Any]:
        closed = panel_of.closed(self.panel, self._session(request).language)
        return closed if found is None else self._shown(request, found)

    def _spoken(self, request: gr.Request) -> dict[Any, Any]:
        """Return the status line in another language, and what has the browser ask for the rest of the page."""
        session, layout = self._session(request), self.live.layout
        with speaking(session.language):
            shown = {layout.bus: bus.value({}, session.shown.source if session.shown else "live", drawn=session.drawn)}
            if session.shown in (None, self.live.first):
                return shown | {layout.status.line: status.ready(self.live.first is not None)}
            if self.live.runner.running(request.session_hash):
                return shown
            return shown | {layout.status.line: status.finished(session.shown.run)}

    def _go(self, request: gr.Request, found: Lesson, index: int) -> dict[Any, Any]:
        session = self._session(request)
        index = min(max(index, 0), len(found.steps) - 1)
        session.lesson = (found.name, index)
        run, shown, notice = found.steps[index].run, {}, ""
        if run is not None:
            record = run_of(run)
            if record is None:
                notice = said("missing", session.language)
            elif session.shown is not record:
                shown = self.opening.reopen(record, request)
        return shown | self._shown(request, found, notice)

    def _answer(self, request: gr.Request, found: Lesson, given: str, by: str) -> None:
        session = self._session(request)
        index = session.lesson[1]
        question = found.steps[index].question
        if question is None:
            return
        answered = check(question, given, self.live.record(request), session.chosen)
        session.answers[found.name, index] = answered
        guess = question.kind != "act" and session.lesson not in session.skipped  # who has looked does not guess
        if guess and answered.verdict in ("right", "wrong"):
            self.guesses.add(f"{found.name}.{index}", by, answered.given)

    def _shown(self, request: gr.Request, found: Lesson, notice: str = "") -> dict[Any, Any]:
        session = self._session(request)
        index = session.lesson[1]
        question = found.steps[index].question
        answered = session.answers.get((found.name, index)) or self._restored(request, question)
        shows = session.teacher or session.lesson in session.skipped
        covered = () if shows else panel_of.covers(question, answered)
        guessed = bars(question, self.guesses.of(f"{found.name}.{index}"), session.language) if question else ()
        return panel_of.show(self.panel, found, index, session.language, self.live.record(request), answered, guessed,
                             session.teacher, notice, covered, session.lesson in session.skipped)

    def _restored(self, request: gr.Request, question: Question | None) -> Answered | None:
        """Check an answer of before a reload again; it was counted then."""
        session = self._session(request)
        if question is None or session.lesson not in session.kept:
            return None
        given = session.kept[session.lesson]
        if given is None:
            session.skipped.add(session.lesson)
            return None
        answered = check(question, given, self.live.record(request), chosen=given)
        if answered.verdict in ("right", "wrong"):
            session.answers[session.lesson] = answered
            return answered
        return None

    def _session(self, request: gr.Request) -> Session:
        return self.live.sessions.of(request.session_hash)


def asked(text: str) -> tuple[str, str, str]:
    """Read what a button asks for, with what, and from which browser; anything else asks for nothing."""
    try:
        deed, value, *token = json.loads(text)
        return str(deed), str(value)[:100], str(token[0])[:40] if token else ""
    except (TypeError, ValueError):
        return "", "", ""
