"""What do the models write? Columns of text, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.columns import legend, text_columns
from analysis.panels import parts
from analysis.record import Record
from analysis.scripts import script, words_in
from analysis.speech import say
from ghosted.results import Run

PART = "columns"
KL = "$= \\sum_v p(v) \\ln (p(v) / q(v))$"


@dataclass(frozen=True)
class GenerationsPanel:
    """The panel's components."""

    columns: gr.HTML


def build() -> GenerationsPanel:
    """Place the side-by-side texts."""
    parts.heading("generations")
    columns = parts.invited(
        "generations.invitation", 110, html_template=f"{_tints()}<div class='gl-texts'>${{value}}</div>",
        js_on_load=script("columns", words="card."), elem_id="gl-columns", apply_default_css=False,
    )
    parts.formula(lambda: say("generations.formula", kl=KL))
    return GenerationsPanel(columns)


def show(panel: GenerationsPanel, record: Record) -> dict[Any, Any]:
    """Show the texts of a record."""
    return show_columns(panel, record.run)


def show_columns(panel: GenerationsPanel, run: Run) -> dict[Any, Any]:
    """Show the texts written so far."""
    return {panel.columns: text_columns(run.columns, run.experiment.max_new_tokens)} if run.columns else {}


def _tints() -> str:
    """Return the switch between the two tints, which the browser alone answers, and what they mean."""
    radios = "".join(
        f"<label><input type='radio' name='gl-tint' value='{value}'{' checked' * (value == 'kl')}> "
        f"{words_in('span', f'card.by_{value}')}</label>" for value in ("kl", "surprisal")
    )
    return f"<fieldset class='gl-tints'>{words_in('legend', 'card.tint')}{radios}{legend()}</fieldset>"
