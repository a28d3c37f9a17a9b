"""Which runs were there? Every finished run of this visit in a table: pin, open again, or delete one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from analysis.names import blocks_label, label_in, method_label
from analysis.numbers import MISSING, three
from analysis.panels import parts
from analysis.portable import without_folders
from analysis.record import Record
from analysis.scripts import script
from analysis.session import Session
from analysis.speech import say

PART = None
HEADERS = ("run", "model", "text", "removed", "repair", "perplexity", "damage", "to_pinned")


@dataclass(frozen=True)
class RunsPanel:
    """The panel's components: the table, whose buttons fire ``act`` with what they ask for as its value's ``asked``."""

    table: gr.HTML


def build() -> RunsPanel:
    """Place the panel."""
    parts.heading("runs")
    return RunsPanel(parts.invited("runs.invitation", 60, js_on_load=script("runs"), elem_id="gl-runs"))


def show(panel: RunsPanel, record: Record) -> dict[Any, Any]:
    """Change nothing: the table lists finished runs, whatever is shown."""
    return {}


def asked(text: str) -> tuple[str, int]:
    """Read what a button asks for; anything else asks for run 0, which there is not."""
    try:
        deed, number = json.loads(text)
        return str(deed), int(number)
    except (TypeError, ValueError):
        return "", 0


def listed(panel: RunsPanel, session: Session) -> dict[Any, Any]:
    """Return the update of the table for a visitor's runs."""
    return {panel.table: runs_table(session)}


def runs_table(session: Session) -> str:
    """Return the table of a visitor's runs, the newest first."""
    if not session.runs:
        return parts.invitation(say("runs.invitation"), 60)
    head = "".join(f"<th scope='col'>{say(f'runs.{name}')}</th>" for name in HEADERS)
    head += f"<th scope='col'><span class=gl-unseen>{say('runs.actions')}</span></th>"
    base = _least(session.runs[session.pinned]) if session.pinned in session.runs else None
    rows = "".join(_row(number, session, base) for number in sorted(session.runs, reverse=True))
    table = f"<table class='gl-table gl-runs'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div class='gl-scroll'>{table}</div>"


def _row(number: int, session: Session, base: tuple[str, float, float] | None) -> str:
    record, run = session.runs[number], session.runs[number].run
    best, pinned = _least(record), session.pinned == number
    delta = best[2] - base[2] if best and base else None
    sign = "" if delta is None or pinned else f"{'+' if delta >= 0 else '−'}{three(abs(delta))}"
    removed = blocks_label(run.removed) or say("runs.nothing")
    if run.choice is not None:
        removed = say("runs.by", blocks=removed, criterion=label_in("ghosted.criteria", run.choice.criterion))
    named = without_folders(run.experiment)
    cells = [
        named.model, named.text, removed,
        method_label(best[0]) if best else MISSING, three(best[1] if best else None),
        three(best[2] if best else None), say("runs.pinned") if pinned else sign,
    ]
    shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    source = "" if record.source == "live" else f" <small>{say(f'source.{record.source}')}</small>"
    here = " aria-current='true'" if record is session.shown else ""
    return f"<tr{here}><th scope='row'>{number}{source}</th>{shown}<td>{_buttons(number, pinned)}</td></tr>"


def _buttons(number: int, pinned: bool) -> str:
    pin = say("runs.unpin" if pinned else "runs.pin")
    deeds = (("pin", pin), ("open", say("runs.open")), ("delete", say("runs.delete")))
    return "".join(
        f"<button type='button' class='gl-small' data-deed='{deed}' data-run='{number}' "
        f"aria-label='{say('runs.label', deed=said, number=number)}'>{said}</button>" for deed, said in deeds
    )


def _least(record: Record) -> tuple[str, float, float] | None:
    """The method of the least damage with its perplexity and damage on the first scored text."""
    text = next(iter(record.run.dense_perplexity), None)
    scored = [(m.method, m.perplexity[text], m.damage[text]) for m in record.run.methods if text in m.damage]
    return min(scored, key=lambda each: each[2], default=None)
