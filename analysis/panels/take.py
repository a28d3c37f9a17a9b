"""How do I take the repaired model with me? One method of the run that is shown, in one format, as one checked file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from analysis import code
from analysis.names import choices, method_label
from analysis.panels import parts
from analysis.panels.beside import Beside
from analysis.panels.status import line
from analysis.record import Record
from analysis.speech import say
from analysis.taking import Taken, Wanted, exportable, size, taker, wanted
from analysis.words import said
from ghosted.errors import GhostedError, InputError

READY = said("take.ready", "en")
FAVOURITE = "ghosted"


@dataclass(frozen=True)
class TakePanel:
    """The part's components."""

    method: gr.Dropdown
    form: gr.Dropdown
    go: gr.Button
    stop: gr.Button
    file: gr.DownloadButton
    line: gr.HTML
    more: gr.Accordion
    command: gr.HTML


def build() -> TakePanel:
    """Place the part, in the panel that shares."""
    parts.caption("take.title")
    with gr.Row():
        method = parts.worded(gr.Dropdown, [], words={"label": "take.method"}, elem_id="gl-take-method", min_width=200,
                              scale=1, interactive=True)
        words = {"label": "take.format", "choices": partial(choices, "ghosted.formats")}
        form = parts.worded(gr.Dropdown, words=words, value="adapter", elem_id="gl-take-form", min_width=240, scale=1,
                            interactive=True)
    with gr.Row(elem_classes="gl-sharing"):
        options = {"size": "sm", "min_width": 110, "scale": 0}
        go = parts.worded(gr.Button, words={"value": "take.export"}, interactive=False, elem_id="gl-take", **options)
        stop = parts.worded(gr.Button, words={"value": "take.stop"}, interactive=False, elem_id="gl-take-stop",
                            **options)
        file = gr.DownloadButton(say("take.download"), visible=False, variant="primary", elem_id="gl-take-file",
                                 **options)
    told = parts.worded(gr.HTML, words={"value": lambda: line(say("take.invitation"))}, elem_id="gl-taking")
    with parts.worded(gr.Accordion, words={"label": "take.command"}, open=False) as more:
        command = gr.HTML(elem_id="gl-take-command")
    return TakePanel(method, form, go, stop, file, told, more, command)


def shows(panel: TakePanel) -> list[gr.Component]:
    """Return the components that follow the run that is shown."""
    return [panel.method, panel.go]


def show(panel: TakePanel, record: Record, method: str = "") -> dict[Any, Any]:
    """Offer the methods of a run.

    Args:
        panel: the part.
        record: the run that is shown.
        method: what the visitor has picked before; it stays where the run has it.
    """
    names = exportable(record.run)
    offered = gr.Dropdown([(method_label(name), name) for name in names], value=offered_first(names, method))
    return {panel.method: offered, panel.go: gr.Button(interactive=bool(names))}


def offered_first(names: list[str], method: str = "") -> str | None:
    """Return which of the methods is chosen until somebody chooses: what they picked before, where it is there."""
    return next((name for name in (method, FAVOURITE, *names[-1:]) if name in names), None)


def wire(panel: TakePanel, live: Any, changed: gr.HTML) -> None:
    """Wire the part's own events.

    Args:
        panel: the part.
        live: the page's live part.
        changed: changes with the run that is shown.
    """
    taking, picked = Taking(panel, live, taker), [panel.method, panel.form]
    said = [panel.line, panel.command, panel.more]
    taking.wire(picked, [panel.file])
    gr.on([panel.method.input, panel.form.input], taking.plan, picked, said, **parts.EACH)
    changed.change(taking.fresh, [panel.form], said, **parts.PRIVATE)


class Taking(Beside):
    """The part's handlers."""

    def plan(self, request: gr.Request, method: str | None, form: str) -> dict[Any, Any]:
        """Say what Export model will do, and keep what was picked."""
        self.live.sessions.of(request.session_hash).takes = method or ""
        return self._said(request, method, form)

    def fresh(self, request: gr.Request, form: str) -> dict[Any, Any]:
        """Say it of another run, where that was computed here: opening the page loads nothing.

        The list of methods may not have reached the browser yet, so its value is not asked for.
        """
        if self.running(request):
            return gr.skip()
        record = self.live.record(request)
        if record is None or not exportable(record.run):
            return {self.panel.line: line(say("take.invitation"))}
        picked = self.live.sessions.of(request.session_hash).takes
        if record.source != "live" and not picked:
            return {self.panel.line: line(say("take.ready")), self.panel.command: ""}
        return self._said(request, offered_first(exportable(record.run), picked), form)

    def asked(self, request: gr.Request, method: str | None, form: str) -> Wanted:
        """Return the export, which could be refused now rather than later.

        Raises:
            GhostedError: there is no run, or it is refused.
        """
        chosen = self._wanted(request, method, form)
        self.live.outlook(chosen)
        return chosen

    def start(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Queue the export; the file of the one before goes with it."""
        shown = super().start(request, *values)
        return shown | ({self.panel.file: gr.DownloadButton(visible=False)} if self.panel.go in shown else {})

    def shown(self, taken: Taken) -> dict[Any, Any]:
        """Offer the file."""
        label = say("take.download_what", method=method_label(taken.wanted.method), form=taken.wanted.form,
                    size=size(taken.bytes))
        file = gr.DownloadButton(label, value=str(taken.path), visible=True)
        return {self.panel.line: line(taken.said(), "done"), self.panel.file: file}

    def _said(self, request: gr.Request, method: str | None, form: str) -> dict[Any, Any]:
        if self.running(request):
            return gr.skip()
        try:
            chosen = self._wanted(request, method, form)
        except GhostedError as error:
            return {self.panel.line: line(str(error)), self.panel.command: ""}
        uploads = self.live.sessions.of(request.session_hash).uploads
        command = code.export_command(chosen.experiment, form, uploads)
        shown = {self.panel.command: parts.snippet(say("share.command_line"), command)}
        try:
            return shown | {self.panel.line: line(self.live.outlook(chosen))}
        except GhostedError as error:
            return shown | {self.panel.line: line(str(error), "failed"), self.panel.more: gr.Accordion(open=True)}

    def _wanted(self, request: gr.Request, method: str | None, form: str) -> Wanted:
        record = self.live.record(request)
        if record is None:
            raise InputError(say("take.invitation"))
        chosen = wanted(record.run, method or "", form)
        self.live.allow(chosen.experiment, request.session_hash)
        return chosen
