"""The page's handlers for another range, answered from states at hand: numbers first, then pictures; no model pass."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gradio as gr

from analysis import panels
from analysis.answered import Answered
from analysis.live import Live
from analysis.map_value import read, removed_of
from analysis.opening import Opening
from analysis.record import Record
from analysis.runner import Runner
from analysis.session import Session
from analysis.settings import FIELDS
from analysis.speech import as_here
from ghosted import machine
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag
from ghosted.removed import RemovedBlocks
from ghosted.results import Run

SHOWN = ("boundary", "decomposition")
"""The panels that a preview can fill; the others wait for a run."""

Source = Callable[[Experiment], Any]
"""From an experiment to what answers for its range (:class:`ghosted.preview.Preview`), or ``None``."""


class _WhileIdle(CancelFlag):
    """A switch that is also set while a run is under way."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._runner = runner

    @property
    def is_set(self) -> bool:
        """Whether a stop was asked for, or a run needs the processor."""
        return super().is_set or self._runner.busy


AT_ONCE = 4
"""Answers that are worked on at the same time; one more waits for the first of them."""


class Previewing:
    """The handlers, bound to the page's live part; a newer range of the same visitor stops the older one.

    Numbers have threads of their own, the pictures that follow have one, and what is computed ahead has one: it is
    given up as soon as anybody asks, and not begun while a run is under way. So numbers wait for numbers only.
    """

    def __init__(self, live: Live, opening: Opening, source: Source) -> None:
        self.live, self.opening, self.layout, self._source = live, opening, live.layout, source
        self._answers = ThreadPoolExecutor(AT_ONCE, "ghosted-preview")
        self._pictures = ThreadPoolExecutor(1, "ghosted-pictures")
        self._later = ThreadPoolExecutor(1, "ghosted-ahead")
        self._ahead_of, self._answered = CancelFlag(), Answered()

    async def from_map(self, request: gr.Request, value: str, *values: Any) -> dict[Any, Any]:
        """Show the numbers of what was picked on the map, before its forms have followed."""
        try:
            gaps = removed_of(read(value)["gaps"])
        except GhostedError:
            return gr.skip()
        picked = dict(zip(FIELDS, values, strict=True)) | {"criterion": "manual", "remove": str(gaps)}
        return await self._answer(request, tuple(picked.values()), "quick")

    async def quick(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Show the errors and the shares of the methods that the states at the gap's ends decide, as numbers."""
        return await self._answer(request, values, "quick")

    async def bars(self, request: gr.Request) -> dict[Any, Any]:
        """Draw those numbers: a figure takes longer to paint than they take to compute."""
        session = self.live.sessions.of(request.session_hash)
        record = session.preview or session.shown
        if record is None or self.live.runner.running(request.session_hash):
            return gr.skip()
        shown = await asyncio.to_thread(panels.module("boundary").show, self.layout.boundary, record)
        if record is not (session.preview or session.shown):  # another range has come, whose bars follow
            return gr.skip()
        return {self.layout.boundary.bars: shown[self.layout.boundary.bars]}

    async def rest(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Add the methods that need the branch before the gap, and the pictures of the operators."""
        return await self._answer(request, values, "rest")

    async def prepare(self, request: gr.Request) -> None:
        """Compute ahead, while nobody waits, what the next range will need; the next key press or run stops it."""
        session = self.live.sessions.of(request.session_hash)
        shown = session.preview or session.shown
        if shown is None or shown.source not in ("live", "preview") or self.live.runner.busy:
            return
        self._ahead_of.set()
        cancel = self._ahead_of = _WhileIdle(self.live.runner)
        await asyncio.get_running_loop().run_in_executor(self._later, self._ahead, shown.run, cancel)

    def _ahead(self, run: Run, cancel: CancelFlag) -> None:
        with contextlib.suppress(GhostedError, MemoryError):
            if (preview := self._source(run.experiment)) is not None:
                preview.prefetch(run.removed, run.experiment.methods, cancel)
                preview.warm(run.experiment.methods, cancel)

    async def _answer(self, request: gr.Request, values: tuple[Any, ...], step: str) -> dict[Any, Any]:
        visitor = request.session_hash
        session = self.live.sessions.of(visitor)
        try:
            experiment = self.live.experiment(visitor, values)
        except GhostedError:  # half-typed
            return gr.skip()
        if self.live.runner.running(visitor) or experiment.criterion != "manual" or not experiment.remove:
            return gr.skip()
        asked = (experiment.remove, experiment.methods)
        if step == "quick":
            session.asked = asked
        elif session.asked != asked:  # another range has come since, and its own numbers and pictures with it
            return gr.skip()
        if set(SHOWN if step == "rest" else SHOWN[:1]) <= set(session.fresh(experiment)):
            return gr.skip()
        if step == "quick":
            session.preview_of.set()
            session.preview_of, session.preview = CancelFlag(), None
        if answers(session, experiment):
            return self._shown(session, session.shown, experiment, SHOWN) if step == "quick" else gr.skip()
        self._ahead_of.set()
        loop, cancel = asyncio.get_running_loop(), session.preview_of
        threads = self._answers if step == "quick" else self._pictures
        return await loop.run_in_executor(threads, as_here(self._computed, session, experiment, step, cancel))

    def _computed(self, session: Session, experiment: Experiment, step: str, cancel: CancelFlag) -> dict[Any, Any]:
        try:
            cancel.check()
            preview = self._source(experiment)
            if preview is None:
                return gr.skip()
            calibration = getattr(preview, "calibration", None)
            record = self._answered.get(calibration, experiment) if step == "quick" else None
            if record is None:
                run = getattr(preview, step)(RemovedBlocks.parse(experiment.remove), experiment.methods, cancel)
                record = Record.of(run, "preview")
                if step == "quick":
                    record = self._answered.put(calibration, experiment, record)
        except (GhostedError, MemoryError):
            return gr.skip()
        finally:
            if step != "quick":
                machine.give_back_memory()
        if cancel.is_set:
            return gr.skip()
        session.preview, session.previewed = record, SHOWN if step == "rest" else SHOWN[:1]
        return self._shown(session, session.preview, experiment, session.previewed)

    def _shown(
        self, session: Session, record: Record, experiment: Experiment, names: tuple[str, ...],
    ) -> dict[Any, Any]:
        if names == SHOWN[:1]:
            shown = panels.module("boundary").told(self.layout.boundary, record)
        else:
            shown = self.live.show(record, session, only=names)
            shown.pop(self.layout.status.notices)  # they are about the run
        return shown | {self.layout.bus: self.opening.marks(session, experiment)}


def answers(session: Session, experiment: Experiment) -> bool:
    """Return whether the run that is shown has this range and these methods already."""
    shown = session.shown
    same = shown is not None and shown.source != "precomputed" and str(shown.run.removed) == experiment.remove
    return same and set(experiment.methods) <= set(shown.run.experiment.methods)
