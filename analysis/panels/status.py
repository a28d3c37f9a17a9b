"""Where is the run? One line with a bar, the notices under it, and the self-check badge."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from analysis import tables
from analysis.job import Ended, Waiting
from analysis.names import label_in
from analysis.numbers import three
from analysis.settings import DEFAULT
from ghosted.progress import Note, Progress
from ghosted.results import Run

READY = (
    f"Ready. Press Run and {DEFAULT.criterion} finds {DEFAULT.count} blocks to remove, or drag on the map to choose "
    "them yourself."
)
SHOWN = "Until then you see a run that was computed beforehand, on text that the model wrote itself."


@dataclass(frozen=True)
class StatusPanel:
    """The panel's components."""

    line: gr.HTML
    notices: gr.HTML


def build(precomputed: bool = False) -> StatusPanel:
    """Place the status line; the notices are placed where they are read, beside the first results."""
    notices = gr.HTML(elem_id="gl-notices", render=False)
    return StatusPanel(gr.HTML(line(READY, note=SHOWN if precomputed else ""), elem_id="gl-status"), notices)


def line(said: str, kind: str = "ready", share: float | None = None, badge: str = "", note: str = "") -> str:
    """Return the status line; ``share`` of 1 draws the bar, ``kind`` is its class, ``note`` a quieter sentence."""
    width = 100 * min(max(share or 0.0, 0.0), 1.0)
    bar = "" if share is None else f"<span class='gl-bar'><span style='width:{width:.1f}%'></span></span>"
    note = f"<span class='gl-said gl-quiet'>{escape(note)}</span>" if note else ""
    inner = f"{bar}<span class='gl-said'>{escape(said)}</span>{note}{badge}"
    return f"<div class='gl-status gl-{kind}' role='status'>{inner}</div>"


def event_line(event: Progress | Note | Waiting | Ended, note: str = "") -> str:
    """Return the status line for an event of a job; progress keeps the ``note`` on what is going on beside it."""
    if isinstance(event, Progress):
        said = str(event)
        return line(said[:1].upper() + said[1:], "busy", event.done / max(event.total, 1), note=note)
    if isinstance(event, Note):
        return line(event.text[:1].upper() + event.text[1:], "busy", 0)
    if isinstance(event, Waiting):
        wait = "" if event.seconds is None else f", about {duration(event.seconds)}"
        return line(f"Waiting: {event.before} run{'s' * (event.before > 1)} before yours{wait}.", "busy", 0)
    if event.run is not None:
        return finished(event.run)
    return line(event.said, event.how)


def duration(seconds: float) -> str:
    """Return a time as people say it, in seconds or minutes."""
    return f"{max(seconds, 1):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def finished(run: Run) -> str:
    """Return the status line of a finished run: what was run, on what, who chose the blocks, in which time."""
    time = f" in {three(sum(run.seconds.values()))} s" if run.seconds else ""
    removed = run.removed.describe(run.blocks)
    if run.choice is not None:
        removed += f", chosen by {label_in('ghosted.criteria', run.choice.criterion)}"
        removed += ", a near tie" if run.choice.near_tie else ""
    said = f"Done{time}: {run.model_label}, {run.dtype}, {removed}."
    return line(said, "done", badge=tables.self_check(run))


def show(panel: StatusPanel, run: Run, failed: str = "") -> dict[Any, Any]:
    """Show the warnings of a run, where a repair made things worse, and what the page ``failed`` to draw."""
    return {panel.notices: tables.notices(run, failed)}
