"""Where is the run? One line with a bar, the notices under it, and the self-check badge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from typing import Any

import gradio as gr

from analysis import tables
from analysis.job import Ended, Waiting
from analysis.names import blocks_label, label_in, removes
from analysis.numbers import three
from analysis.panels import parts
from analysis.settings import DEFAULT
from analysis.speech import say
from analysis.words import catalogue
from ghosted.experiment import Experiment
from ghosted.progress import Note, Progress
from ghosted.results import Run


@dataclass(frozen=True)
class StatusPanel:
    """The panel's components."""

    line: gr.HTML
    notices: gr.HTML


def build(precomputed: bool = False) -> StatusPanel:
    """Place the status line; the notices are placed where they are read, beside the first results."""
    notices = gr.HTML(elem_id="gl-notices", render=False)
    place = parts.worded(gr.HTML, words={"value": partial(ready, precomputed)}, elem_id="gl-status")
    return StatusPanel(place, notices)


def ready(precomputed: bool = False, experiment: Experiment = DEFAULT) -> str:
    """Return the status line of a page on which nothing was done yet, and whose controls say ``experiment``."""
    if experiment.criterion == "manual":
        blocks = blocks_label(experiment.remove)
        said = say("status.ready_by_hand", blocks=say("page.blocks", blocks=blocks) if blocks else say("runs.nothing"))
    else:
        said = say("status.ready", criterion=experiment.criterion, count=experiment.count)
    return line(said, note=say("status.shown") if precomputed else "")


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
        said = progress(event)
        return line(said[:1].upper() + said[1:], "busy", event.done / max(event.total, 1), note=note)
    if isinstance(event, Note):
        return line(event.text[:1].upper() + event.text[1:], "busy", 0)
    if isinstance(event, Waiting):
        wait = "" if event.seconds is None else say("status.wait", time=duration(event.seconds))
        key = "status.waiting" if event.before > 1 else "status.waiting_one"
        return line(say(key, count=event.before, wait=wait), "busy", 0)
    if event.run is not None:
        return finished(event.run)
    return line(event.said, event.how)


def progress(event: Progress) -> str:
    """Return where a stage is, as :class:`~ghosted.progress.Progress` says it."""
    left = "" if event.seconds_left is None else say("status.left", seconds=f"{event.seconds_left:.0f}")
    return say("status.progress", stage=resaid(event.stage), done=event.done, total=event.total, left=left)


def resaid(stage: str) -> str:
    """Return what the library calls a stage in the language that is spoken here; as it is where nobody has named it."""
    for key, pattern in _stages().items():
        if found := pattern.fullmatch(stage):
            return say(key, **found.groupdict())
    return stage


@cache
def _stages() -> dict[str, re.Pattern[str]]:
    """Return a pattern of each stage's English name: those without places first, then the longest."""
    english = {key: texts["en"] for key, texts in catalogue().items() if key.startswith("stage.")}
    ordered = sorted(english.items(), key=lambda one: ("{" in one[1], -len(one[1])))
    return {key: re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(text))) for key, text in ordered}


def duration(seconds: float) -> str:
    """Return a time as people say it, in seconds or minutes."""
    return f"{max(seconds, 1):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def finished(run: Run) -> str:
    """Return the status line of a finished run: what was run, on what, who chose the blocks, in which time."""
    time = say("status.took", seconds=three(sum(run.seconds.values()))) if run.seconds else ""
    removed = removes(run.removed, run.blocks)
    if run.choice is not None:
        removed += say("status.chosen_by", criterion=label_in("ghosted.criteria", run.choice.criterion))
        removed += say("status.near_tie") if run.choice.near_tie else ""
    said = say("status.done", time=time, model=run.model_label, dtype=run.dtype, removed=removed)
    return line(said, "done", badge=tables.self_check(run))


def show(panel: StatusPanel, run: Run, failed: str = "") -> dict[Any, Any]:
    """Show the warnings of a run, where a repair made things worse, and what the page ``failed`` to draw."""
    return {panel.notices: tables.notices(run, failed)}
