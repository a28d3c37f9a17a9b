"""Which runs were there? Every finished run of this visit in a table: pin, open again, or delete one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from analysis.names import label_in, method_label
from analysis.numbers import MISSING, three
from analysis.panels import parts
from analysis.portable import without_folders
from analysis.record import Record
from analysis.session import Session

PART = None
ASSETS = Path(__file__).parents[2] / "assets"
READING = (
    "Every run that finished on this page, newest first, with its least damage. Pin one, and the others show how much "
    "more (+) or less (−) damage they leave. Open shows a run again with its settings; nothing is computed anew."
)
INVITATION = "Press Run: every finished run is listed here."
HEADERS = ("run", "model", "text", "removed", "best repair", "perplexity", "damage", "to the pinned", "")


@dataclass(frozen=True)
class RunsPanel:
    """The panel's components: the table, whose buttons fire ``act`` with what they ask for as its value's ``asked``."""

    table: gr.HTML


def build() -> RunsPanel:
    """Place the panel."""
    parts.heading("Which runs were there?", READING)
    script = (ASSETS / "runs.js").read_text("utf-8")
    return RunsPanel(gr.HTML(parts.invitation(INVITATION, 60), js_on_load=script, elem_id="gl-runs"))


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
        return parts.invitation(INVITATION, 60)
    head = "".join(f"<th scope='col'>{name or '<span class=gl-unseen>actions</span>'}</th>" for name in HEADERS)
    base = _least(session.runs[session.pinned]) if session.pinned in session.runs else None
    rows = "".join(_row(number, session, base) for number in sorted(session.runs, reverse=True))
    table = f"<table class='gl-table gl-runs'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div class='gl-scroll'>{table}</div>"


def _row(number: int, session: Session, base: tuple[str, float, float] | None) -> str:
    record, run = session.runs[number], session.runs[number].run
    best, pinned = _least(record), session.pinned == number
    delta = best[2] - base[2] if best and base else None
    sign = "" if delta is None or pinned else f"{'+' if delta >= 0 else '−'}{three(abs(delta))}"
    removed = str(run.removed).replace("-", "–").replace(",", ", ") or "nothing"
    by = "" if run.choice is None else f" by {label_in('ghosted.criteria', run.choice.criterion)}"
    named = without_folders(run.experiment)
    cells = [
        named.model, named.text, removed + by,
        method_label(best[0]) if best else MISSING, three(best[1] if best else None),
        three(best[2] if best else None), "pinned" if pinned else sign,
    ]
    shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    source = "" if record.source == "live" else f" <small>{escape(record.source)}</small>"
    here = " aria-current='true'" if record is session.shown else ""
    return f"<tr{here}><th scope='row'>{number}{source}</th>{shown}<td>{_buttons(number, pinned)}</td></tr>"


def _buttons(number: int, pinned: bool) -> str:
    deeds = (("pin", "Unpin" if pinned else "Pin"), ("open", "Open"), ("delete", "Delete"))
    return "".join(
        f"<button type='button' class='gl-small' data-deed='{deed}' data-run='{number}' "
        f"aria-label='{said} run {number}'>{said}</button>" for deed, said in deeds
    )


def _least(record: Record) -> tuple[str, float, float] | None:
    """The method of the least damage with its perplexity and damage on the first scored text."""
    text = next(iter(record.run.dense_perplexity), None)
    scored = [(m.method, m.perplexity[text], m.damage[text]) for m in record.run.methods if text in m.damage]
    return min(scored, key=lambda each: each[2], default=None)
