"""What do the models write, and how well do they predict? Columns of text, and the numbers under them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from analysis import tables
from analysis.columns import legend, text_columns
from analysis.figures.downstream import downstream_lines
from analysis.panels import parts
from analysis.session import Session
from ghosted.results import Run

ASSETS = Path(__file__).parents[2] / "assets"

READING = (
    "All models continue the same prompt, one token each in turn; the underlined token is the first that differs from "
    "the original's (counted from 0). Point at a token, or walk with the arrow keys, to see what the models found "
    "likely there; a click pins it. Agreement is how often both models' most likely token is the same, tokens/s counts "
    "each model's own time on this machine after the prompt; KL and surprisal beside a name are means over its tokens."
)
READING_NUMBERS = (
    "Perplexity is how many words the model hesitates between; damage is its logarithm relative to the original, so 0 "
    "means nothing was lost and 0.69 means twice as unsure."
)
READING_DOWNSTREAM = (
    "How far each surviving state is from the original's, block after block: where a line falls, the remaining blocks "
    "heal part of the damage; where it rises, they make it worse."
)
FORMULA_COLUMNS = (
    "KL $= \\sum_v p(v) \\ln (p(v) / q(v))$ over all tokens $v$; surprisal $= -\\ln q(\\text{token written})$; $p$ is "
    "the original's prediction and $q$ the column's, both after the column's own text. A KL of 0 means the same "
    "prediction, a surprisal of 0.69 nats a probability of one half."
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
    columns = gr.HTML(
        parts.invitation(INVITATION, 110), html_template=f"{_tints()}<div class='gl-texts'>${{value}}</div>",
        js_on_load=(ASSETS / "columns.js").read_text("utf-8"), elem_id="gl-columns", apply_default_css=False,
    )
    parts.formula(FORMULA_COLUMNS)
    return columns


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
    return {panel.columns: text_columns(run.columns, run.experiment.max_new_tokens)} if run.columns else {}


def _tints() -> str:
    """Return the switch between the two tints, which the browser alone answers, and what they mean."""
    choices = (("kl", "KL from the original"), ("surprisal", "surprisal"))
    radios = "".join(
        f"<label><input type='radio' name='gl-tint' value='{value}'{' checked' * (value == 'kl')}> {label}</label>"
        for value, label in choices
    )
    return f"<fieldset class='gl-tints'><legend>Tint</legend>{radios}{legend()}</fieldset>"


def show_numbers(panel: GenerationsPanel, run: Run, session: Session) -> dict[Any, Any]:
    """Show the table with its protocol and, once measured, the error further down."""
    shown: dict[Any, Any] = {panel.numbers: tables.numbers_table(run) + tables.protocol_lines(run)}
    if any(method.downstream for method in run.methods):
        shown[panel.downstream] = parts.drawn(downstream_lines(run.methods))
    return shown
