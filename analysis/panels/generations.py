"""What do the models write? Columns of text, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.columns import text_columns
from analysis.panels import parts
from analysis.record import Record
from ghosted.results import Run

PART = "columns"
READING = (
    "All models continue the same prompt. The deeper a token's tint, the further the model's prediction is from the "
    "original's at that point (KL); the underlined token is the first that differs."
)
INVITATION = "Press Run: the original and every variant write here, side by side."


@dataclass(frozen=True)
class GenerationsPanel:
    """The panel's components."""

    columns: gr.HTML


def build() -> GenerationsPanel:
    """Place the side-by-side texts."""
    parts.heading("What do the models write?", READING)
    return GenerationsPanel(gr.HTML(parts.invitation(INVITATION, 110), elem_id="gl-columns"))


def show(panel: GenerationsPanel, record: Record) -> dict[Any, Any]:
    """Show the texts of a record."""
    return show_columns(panel, record.run)


def show_columns(panel: GenerationsPanel, run: Run) -> dict[Any, Any]:
    """Show the texts written so far."""
    return {panel.columns: text_columns(run.columns)} if run.columns else {}
