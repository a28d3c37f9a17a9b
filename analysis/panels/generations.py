"""What do the models write, and how well do they predict? Columns of text, and the numbers under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis import tables
from analysis.columns import text_columns
from analysis.figures.downstream import downstream_lines
from analysis.panels import parts
from analysis.session import Session
from ghosted.results import Run

READING = (
    "All models continue the same prompt. The deeper a token's tint, the further the model's prediction is from the "
    "original's at that point (KL); the underlined token is the first that differs."
)
READING_NUMBERS = (
    "Perplexity is how many words the model hesitates between; damage is its logarithm relative to the original, so 0 "
    "means nothing was lost and 0.69 means twice as unsure."
)
READING_DOWNSTREAM = (
    "How far each surviving state is from the original's, block after block: where a line falls, the remaining blocks "
    "heal part of the damage; where it rises, they make it worse."
)
FORMULA = "Damage $= \\ln(\\text{perplexity} / \\text{perplexity of the original})$."
INVITATION = "Press Run: the original and every variant write here, side by side."
INVITATION_NUMBERS = "Press Run: perplexity and error of every method appear here."
INVITATION_DOWNSTREAM = "Press Run: the error after each surviving block appears here."


@dataclass(frozen=True)
class GenerationsPanel:
    """The panel's components."""

    columns: gr.HTML
    numbers: gr.HTML
    formula: gr.Markdown
    downstream: gr.Plot


def build_columns() -> gr.HTML:
    """Place the side-by-side texts."""
    parts.heading("What do the models write?", READING)
    return gr.HTML(parts.invitation(INVITATION, 110), elem_id="gl-columns")


def build(columns: gr.HTML) -> GenerationsPanel:
    """Place the numbers and the downstream error, and join them with the texts into one panel."""
    with gr.Row():
        with gr.Column(min_width=320, scale=7):
            parts.heading("What did it cost?", READING_NUMBERS)
            numbers = gr.HTML(parts.invitation(INVITATION_NUMBERS, 120), elem_id="gl-numbers")
            formula = parts.formula(FORMULA)
        with gr.Column(min_width=300, scale=4):
            parts.heading("Does it heal further down?", READING_DOWNSTREAM)
            downstream = parts.picture("downstream", INVITATION_DOWNSTREAM, 320)
    return GenerationsPanel(columns, numbers, formula, downstream)


def show_columns(panel: GenerationsPanel, run: Run) -> dict[Any, Any]:
    """Show the texts written so far."""
    return {panel.columns: text_columns(run.columns)} if run.columns else {}


def show_numbers(panel: GenerationsPanel, run: Run, session: Session) -> dict[Any, Any]:
    """Show the table with its protocol and, once measured, the error further down."""
    shown: dict[Any, Any] = {panel.numbers: tables.numbers_table(run) + tables.protocol_lines(run)}
    if any(method.downstream for method in run.methods):
        shown[panel.downstream] = parts.drawn(downstream_lines(run.methods))
    return shown
