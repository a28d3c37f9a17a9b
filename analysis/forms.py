"""The page's handlers for its forms: the range in its three forms, the model, the text, the criterion."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gradio as gr

from analysis import library, pickers
from analysis.live import Live
from analysis.panels import controls, layer_map, parts
from analysis.settings import DEFAULT
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment

ON_ITS_WAY = 3.0
"""Seconds in which an answer may still be on its way to the browser."""


class Forms:
    """The handlers, bound to the page's layout and to what a visitor may ask for."""

    def __init__(self, live: Live) -> None:
        self.live, self.layout = live, live.layout

    def from_map(self, value: str) -> dict[Any, Any]:
        """Follow the map."""
        try:
            forms = layer_map.from_map(self.layout.layer_map, value)
        except GhostedError as error:
            return {self.layout.layer_map.problem: parts.problem(str(error))}
        return forms | {self.layout.controls.criterion: layer_map.criterion_of(value)}

    def from_numbers(self, first: float | None, last: float | None, value: str) -> dict[Any, Any]:
        """Follow the two numbers; their answers come one after the other."""
        return self._by_hand(lambda panel: layer_map.from_numbers(panel, first, last, value))

    def from_text(self, text: str | None, value: str, request: gr.Request) -> dict[Any, Any]:
        """Follow the text form, unless a later letter has come; ``None`` is what the page itself has written there."""
        if text is None:
            return gr.skip()
        session = self.live.sessions.of(request.session_hash)
        is_newest = session.write(layer_map.typed_at(value))
        settled = time.monotonic() - session.followed > ON_ITS_WAY
        forms = self._by_hand(lambda panel: layer_map.from_text(panel, text, value, settled))
        if not is_newest():
            return gr.skip()
        if self.layout.layer_map.map in forms:
            session.followed = time.monotonic()
        return forms

    def describe(self, model: str, tokens: float | None, remove: str) -> dict[Any, Any]:
        """Say what a model is and needs before it is fetched, and fit the map to it."""
        facts_at = self.layout.controls.facts
        try:
            facts = self.live.describe(model)
        except GhostedError as error:
            return {facts_at: parts.problem(str(error))}
        said = controls.quiet(pickers.model_line(facts, int(tokens or DEFAULT.tokens)))
        return {facts_at: said} | layer_map.resize(self.layout.layer_map, facts.blocks, remove)

    def text(self, name: str, tokens: float | None, request: gr.Request) -> str:
        """Say what a calibration text is, unless it may not be read here."""
        text = str(name or "").strip()
        try:
            self.live.allow(Experiment(text=text), request.session_hash)
        except GhostedError as error:
            return controls.quiet(str(error))
        return controls.quiet(pickers.text_line(text, int(tokens or DEFAULT.tokens)))

    def upload(self, path: str, request: gr.Request) -> gr.Dropdown:
        """Offer an uploaded text by its file name and choose it.

        Raises:
            Error: this page has too many already.
        """
        uploads = self.live.sessions.of(request.session_hash).uploads
        try:
            self.live.limits.check_upload(len(uploads - {path}))
        except GhostedError as error:
            raise gr.Error(str(error), print_exception=False) from error
        uploads.add(path)
        return gr.Dropdown(library.text_choices() + library.uploaded(uploads), value=path)

    def criterion(self, name: str) -> gr.Number:
        """Ask for a count only where a criterion chooses."""
        return gr.Number(visible=name != "manual")

    def _by_hand(self, follow: Callable[[Any], dict[Any, Any]]) -> dict[Any, Any]:
        """Let blocks that were picked by hand count, whatever criterion was set; not what cannot be read."""
        try:
            forms = follow(self.layout.layer_map)
        except GhostedError as error:
            return {self.layout.layer_map.problem: parts.problem(str(error))}
        read = layer_map.accepted(self.layout.layer_map, forms)
        return forms | ({self.layout.controls.criterion: "manual"} if read else {})
