"""The page's handlers: each translates page → library → page and nothing more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from analysis import library
from analysis.panels import boundary, controls, decomposition, generations, layer_map, similarity, status
from analysis.runner import Runner
from analysis.session import Sessions
from analysis.settings import FIELDS, experiment_from, refuse_paths
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment
from ghosted.results import Run, Update


@dataclass(frozen=True)
class Panels:
    """All panels of the page, each with its components by name."""

    controls: controls.Controls
    status: status.StatusPanel
    layer_map: layer_map.LayerMap
    boundary: boundary.BoundaryPanel
    generations: generations.GenerationsPanel
    decomposition: decomposition.DecompositionPanel
    similarity: similarity.SimilarityPanel

    def inputs(self) -> list[gr.Component]:
        """Return the components that hold the settings, in the order of ``FIELDS``."""
        return [self.layer_map.remove if name == "remove" else getattr(self.controls, name) for name in FIELDS]

    def outputs(self, part: str) -> list[gr.Component]:
        """Return the components that one part of a run changes; the texts are followed on their own."""
        shown = [each for panel, _ in SHOWS[part] for each in _components(getattr(self, panel))]
        return [self.status.notices, *(each for each in shown if each is not self.generations.columns)]

    def decomposition_outputs(self) -> list[gr.Component]:
        """Return the components that another operator changes."""
        return [part for part in _components(self.decomposition) if part is not self.decomposition.method]


class Live:
    """The handlers, bound to one page's panels, the runner and the open sessions."""

    def __init__(
        self, panels: Panels, runner: Runner, sessions: Sessions, describe: Callable[[str], Any], local_paths: bool,
    ) -> None:
        self.panels, self.runner, self.sessions = panels, runner, sessions
        self._describe, self._local_paths = describe, local_paths

    def start(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Start what the controls say."""
        visitor = request.session_hash
        try:
            self.runner.submit(visitor, self._experiment(visitor, values))
        except GhostedError as error:
            return {self.panels.status.line: status.line(str(error), "failed")}
        self.sessions.of(visitor).failed = ""
        return controls.buttons(self.panels.controls, running=True)

    async def follow(self, request: gr.Request) -> AsyncIterator[dict[Any, Any]]:
        """Pass on where the run is and what the models write."""
        line = self.panels.status.line
        yield {line: gr.skip()}  # gradio empties the outputs of a generator that yields nothing
        if (job := self.runner.claim(request.session_hash, "lines")) is None:
            return
        async for event in self.runner.follow(job):
            if isinstance(event, Update):
                yield generations.show_columns(self.panels.generations, event.run)
            else:
                yield {line: status.event_line(event, job.note)}

    async def similarity(self, request: gr.Request) -> dict[Any, Any]:
        """Draw the similarities once they are known."""
        return await self._draw("similarity", request.session_hash)

    async def boundary(self, request: gr.Request) -> dict[Any, Any]:
        """Draw the error at the boundary once it is known."""
        return await self._draw("boundary", request.session_hash)

    async def decomposition(self, request: gr.Request) -> dict[Any, Any]:
        """Draw what W* is made of once it is known."""
        return await self._draw("decomposition", request.session_hash)

    async def scores(self, request: gr.Request) -> dict[Any, Any]:
        """Show the numbers once they are known."""
        return await self._draw("scores", request.session_hash)

    async def ranges(self, request: gr.Request) -> dict[Any, Any]:
        """Add the recoverability map once it is drawn."""
        return await self._draw("map", request.session_hash)

    async def finish(self, request: gr.Request) -> dict[Any, Any]:
        """Give the buttons back at the end of the run."""
        if (job := self.runner.claim(request.session_hash, "end")) is None:
            return gr.skip()
        await self.runner.end(job)
        return controls.buttons(self.panels.controls, running=False)

    def stop(self, request: gr.Request) -> str | dict[str, Any]:
        """Ask the visitor's run to stop."""
        stopping = self.runner.stop(request.session_hash)
        return status.line("Stopping at the next safe point.", "busy", 0) if stopping else gr.skip()

    def leave(self, request: gr.Request) -> None:
        """Forget a visitor who has closed the page."""
        self.runner.forget(request.session_hash)
        self.sessions.forget(request.session_hash)

    def from_map(self, value: str) -> dict[Any, Any]:
        """Follow the map."""
        forms = layer_map.from_map(self.panels.layer_map, value)
        return forms | {self.panels.controls.criterion: layer_map.criterion_of(value)}

    def from_numbers(self, first: float | None, last: float | None, value: str) -> dict[Any, Any]:
        """Follow the two numbers."""
        return self._by_hand(layer_map.from_numbers(self.panels.layer_map, first, last, value))

    def from_text(self, text: str | None, value: str) -> dict[Any, Any]:
        """Follow the text form."""
        return self._by_hand(layer_map.from_text(self.panels.layer_map, text, value))

    def describe(self, model: str, remove: str) -> dict[Any, Any]:
        """Say what a model is before it is fetched, and fit the map to it."""
        facts_at = self.panels.controls.facts
        try:
            self._allow(Experiment(model=str(model or "").strip()), "")
            facts = self._describe(str(model).strip())
        except GhostedError as error:
            return {facts_at: f"<p class='gl-problem' role='alert'>{escape(str(error))}</p>"}
        return {facts_at: controls.facts_line(facts)} | layer_map.resize(self.panels.layer_map, facts.blocks, remove)

    def upload(self, path: str, request: gr.Request) -> gr.Dropdown:
        """Offer an uploaded text by its file name and choose it."""
        uploads = self.sessions.of(request.session_hash).uploads
        uploads.add(path)
        own = [(Path(each).name, each) for each in sorted(uploads)]
        return gr.Dropdown(library.text_choices() + own, value=path)

    def criterion(self, name: str) -> gr.Number:
        """Ask for a count only where a criterion chooses."""
        return gr.Number(visible=name != "manual")

    def operator(self, name: str, request: gr.Request) -> dict[Any, Any]:
        """Draw another operator of the last run."""
        picture = self.sessions.of(request.session_hash).portraits.get(name)
        return decomposition.draw(self.panels.decomposition, picture) if picture else gr.skip()

    def _by_hand(self, forms: dict[Any, Any]) -> dict[Any, Any]:
        """Let blocks that were picked by hand count, whatever criterion was set; not what cannot be read."""
        read = layer_map.accepted(self.panels.layer_map, forms)
        return forms | ({self.panels.controls.criterion: "manual"} if read else {})

    def _experiment(self, visitor: str, values: tuple[Any, ...]) -> Experiment:
        experiment = experiment_from(dict(zip(FIELDS, values, strict=True)))
        self._allow(experiment, visitor)
        return experiment

    def _allow(self, experiment: Experiment, visitor: str) -> None:
        if not self._local_paths:
            uploads = self.sessions.of(visitor).uploads if visitor else ()
            refuse_paths(experiment, uploads, [name for _, name in library.text_choices()])

    async def _draw(self, part: str, visitor: str) -> dict[Any, Any]:
        job = self.runner.claim(visitor, part)
        update = await self.runner.part(job, part) if job is not None else None
        return gr.skip() if update is None else await asyncio.to_thread(self._drawn, update, visitor)

    def _drawn(self, update: Update, visitor: str) -> dict[Any, Any]:
        panels, session = self.panels, self.sessions.of(visitor)
        try:
            shown: dict[Any, Any] = {}
            for panel, show in SHOWS[update.part]:
                shown |= show(getattr(panels, panel), update.run, session)
            return shown | status.show(panels.status, update.run, session.failed)
        except Exception:  # a picture that cannot be drawn must not take the others with it
            logging.getLogger(__name__).exception("the part %s could not be shown", update.part)
            session.failed = f"The part {update.part} of the run could not be shown; the server's log says why."
            return status.show(panels.status, update.run, session.failed)


def _of_record(show: Callable[[Any, Any], dict[Any, Any]]) -> Callable[[Any, Run, Any], dict[Any, Any]]:
    return lambda panel, run, session: show(panel, SimpleNamespace(run=run))


SHOWS = {
    "similarity": (("layer_map", _of_record(layer_map.show)), ("similarity", similarity.show)),
    "boundary": (("boundary", boundary.show),),
    "decomposition": (("decomposition", decomposition.show),),
    "scores": (("generations", generations.show_numbers),),
    "map": (("layer_map", _of_record(layer_map.show_ranges)),),
}
"""Which panels show which part of a run."""


def _components(panel: Any) -> Iterator[gr.Component]:
    for each in fields(panel):
        part = getattr(panel, each.name)
        yield from part.values() if isinstance(part, dict) else (part,)
