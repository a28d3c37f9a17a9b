"""What do the models write? Columns of text, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from analysis.columns import legend, text_columns
from analysis.panels import parts
from analysis.record import Record
from ghosted.results import Run

ASSETS = Path(__file__).parents[2] / "assets"

PART = "columns"
READING = (
    "The underlined token is the first that differs from the original's. Point at a token, or walk with the arrow "
    "keys, to see what the models found likely there; a click pins it."
)
FORMULA = (
    "KL $= \\sum_v p(v) \\ln (p(v) / q(v))$ over all tokens $v$; surprisal $= -\\ln q(\\text{token written})$; $p$ is "
    "the original's prediction and $q$ the column's, both after the column's own text. A KL of 0 means the same "
    "prediction, a surprisal of 0.69 nats a probability of one half. Tokens are counted from 0; agreement is how "
    "often both models' most likely token is the same; tokens/s counts each model's own time here after the prompt."
)
INVITATION = "Press Run: the original and every variant write here, side by side."


@dataclass(frozen=True)
class GenerationsPanel:
    """The panel's components."""

    columns: gr.HTML


def build() -> GenerationsPanel:
    """Place the side-by-side texts."""
    parts.heading("What do the models write?", READING)
    columns = gr.HTML(
        parts.invitation(INVITATION, 110), html_template=f"{_tints()}<div class='gl-texts'>${{value}}</div>",
        js_on_load=(ASSETS / "columns.js").read_text("utf-8"), elem_id="gl-columns", apply_default_css=False,
    )
    parts.formula(FORMULA)
    return GenerationsPanel(columns)


def show(panel: GenerationsPanel, record: Record) -> dict[Any, Any]:
    """Show the texts of a record."""
    return show_columns(panel, record.run)


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
