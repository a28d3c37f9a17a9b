"""Does it hold elsewhere? Long texts, zero-shot tasks, a behaviour probe, speed, and the amount of text: on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis import evidence_tables
from analysis.figures.evidence import loss_lines, sequence_lines
from analysis.measuring import WHAT, Asked, Measured, cost_line, measurer, named_blocks
from analysis.panels import parts
from analysis.panels.beside import Beside
from analysis.panels.status import line
from analysis.record import Record
from analysis.speech import say
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment
from ghosted.flags import names

PART = None
PICTURES = ("losses", "sequences")


@dataclass(frozen=True)
class EvidencePanel:
    """The panel's components; pictures by the names of ``PICTURES``."""

    what: gr.CheckboxGroup
    tasks: gr.Textbox
    limit: gr.Number
    go: gr.Button
    stop: gr.Button
    line: gr.HTML
    results: gr.HTML
    plots: dict[str, gr.Plot]


def build() -> EvidencePanel:
    """Place the panel."""
    parts.heading("evidence")
    words = {"label": "evidence.what", "choices": lambda: [(say(f"evidence.{name}"), name) for name in WHAT]}
    what = parts.worded(gr.CheckboxGroup, words=words, value=["texts", "probe"], elem_id="gl-what", interactive=True)
    with gr.Row():
        words = {"label": "evidence.tasks_label", "placeholder": "evidence.tasks_empty", "info": "evidence.tasks_info"}
        tasks = parts.worded(gr.Textbox, "", words=words, max_lines=1, max_length=400, elem_id="gl-tasks",
                             min_width=240, scale=4, interactive=True)
        limit = parts.worded(gr.Number, 100, words={"label": "evidence.items"}, precision=0, elem_id="gl-limit",
                             min_width=110, scale=1, interactive=True)
    with gr.Row(elem_classes="gl-buttons"):
        go = parts.worded(gr.Button, words={"value": "evidence.measure"}, elem_id="gl-measure", min_width=120, scale=0)
        stop = parts.worded(gr.Button, words={"value": "evidence.stop"}, interactive=False, elem_id="gl-measure-stop",
                            min_width=160, scale=0)
    said = parts.worded(gr.HTML, words={"value": lambda: line(say("evidence.ready"))}, elem_id="gl-measuring")
    results = gr.HTML(elem_id="gl-evidence")
    plots = {}
    with gr.Row():
        for name in PICTURES:
            plots[name] = parts.captioned(f"evidence-{name}", f"evidence.{name}", f"evidence.{name}_empty", 340,
                                          width=300)
    return EvidencePanel(what, tasks, limit, go, stop, said, results, plots)


def show(panel: EvidencePanel, record: Record) -> dict[Any, Any]:
    """Change nothing: what is here was measured on demand, and says of what."""
    return {}


def wire(panel: EvidencePanel, live: Any) -> None:
    """Wire the panel's own events."""
    measuring = Measuring(panel, live, measurer)
    asked = [panel.what, panel.tasks, panel.limit, *live.layout.inputs()]
    measuring.wire(asked, [panel.results, *panel.plots.values()])
    gr.on([panel.what.change, panel.tasks.change, panel.limit.change], measuring.plan, asked, [panel.line],
          **parts.PRIVATE)


class Measuring(Beside):
    """The panel's handlers."""

    def plan(self, request: gr.Request, what: list[str], tasks: str, limit: float, *values: Any) -> str:
        """Say what Measure will do and cost."""
        if self.running(request):
            return gr.skip()
        try:
            asked = self.asked(request, what, tasks, limit, *values)
            return line(cost_line(asked, self._seconds(asked.experiment)))
        except GhostedError as error:
            return line(str(error))

    def shown(self, measured: Measured) -> dict[Any, Any]:
        """Return the updates of tables and pictures."""
        panel, found = self.panel, measured.evaluation
        shown: dict[Any, Any] = {panel.results: evidence_tables.tables(measured),
                                 panel.line: line(evidence_tables.subject(measured), "done")}
        if found is not None and found.protocols:
            figure = loss_lines(found.dense, found.methods, next(iter(found.protocols)))
            shown[panel.plots["losses"]] = parts.drawn(figure)
        if measured.sources:
            shown[panel.plots["sequences"]] = parts.drawn(sequence_lines(measured.sources))
        return shown

    def asked(self, request: gr.Request, what: list[str], tasks: str, limit: float, *values: Any) -> Asked:
        """Return the request that the controls say.

        Raises:
            InputError: it makes no sense.
        """
        experiment = named_blocks(self.live.experiment(request.session_hash, values), self.live.record(request))
        whole = int(limit) if limit is not None and float(limit).is_integer() else 0
        ordered = tuple(name for name in WHAT if name in (what or ()))
        asked = Asked(experiment, ordered, tuple(names(tasks or "")) if "tasks" in ordered else (), whole)
        self.live.limits.check_tasks(asked.tasks, asked.limit)
        return asked

    def _seconds(self, experiment: Experiment) -> Any:
        if "/" in experiment.model:  # its config may have to be fetched
            return lambda tokens: None
        return self.live.describe(experiment.model).pass_seconds
