"""Where is the run? One line with a bar, the notices under it, and the self-check badge."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from analysis import tables
from analysis.numbers import three
from analysis.runner import Ended, Waiting
from ghosted.progress import Progress
from ghosted.results import Run

READY = "Ready. Press Run; the first run of a model also fetches it."


@dataclass(frozen=True)
class StatusPanel:
    """The panel's components."""

    line: gr.HTML
    notices: gr.HTML


def build() -> StatusPanel:
    """Place the status line; the notices are placed where they are read, beside the first results."""
    notices = gr.HTML(elem_id="gl-notices", render=False)
    return StatusPanel(gr.HTML(line(READY), elem_id="gl-status"), notices)


def line(said: str, kind: str = "ready", share: float | None = None, badge: str = "") -> str:
    """Return the status line; ``share`` of 1 draws the bar, ``kind`` is its class."""
    width = 100 * min(max(share or 0.0, 0.0), 1.0)
    bar = "" if share is None else f"<span class='gl-bar'><span style='width:{width:.1f}%'></span></span>"
    inner = f"{bar}<span class='gl-said'>{escape(said)}</span>{badge}"
    return f"<div class='gl-status gl-{kind}' role='status'>{inner}</div>"


def event_line(event: Progress | Waiting | Ended) -> str:
    """Return the status line for an event of a job."""
    if isinstance(event, Progress):
        said = str(event)
        return line(said[:1].upper() + said[1:], "busy", event.done / max(event.total, 1))
    if isinstance(event, Waiting):
        return line(f"Waiting: {event.before} run{'s' * (event.before > 1)} before yours.", "busy", 0)
    if event.run is not None:
        return finished(event.run)
    return line(event.said, event.how)


def finished(run: Run) -> str:
    """Return the status line of a finished run: what was run, on what, in which time."""
    time = f" in {three(sum(run.seconds.values()))} s" if run.seconds else ""
    removed = run.removed.describe(run.blocks)
    said = f"Done{time}: {run.model_label}, {run.dtype}, {removed}."
    return line(said, "done", badge=tables.self_check(run))


def show(panel: StatusPanel, run: Run, failed: str = "") -> dict[Any, Any]:
    """Show the warnings of a run, where a repair made things worse, and what the page ``failed`` to draw."""
    return {panel.notices: tables.notices(run, failed)}
