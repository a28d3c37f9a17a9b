"""What did it cost? Perplexity, damage and error of every method, with the protocol of the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis import tables
from analysis.names import method_label
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record

PART = "scores"
READING = (
    "Perplexity is how many words the model hesitates between; damage is its logarithm relative to the original, so 0 "
    "means nothing was lost and 0.69 means twice as unsure."
)
FORMULA = "Damage $= \\ln(\\text{perplexity} / \\text{perplexity of the original})$"
INVITATION = "Press Run: perplexity and error of every method appear here."


@dataclass(frozen=True)
class ScoresPanel:
    """The panel's components."""

    numbers: gr.HTML
    formula: gr.Markdown


def build() -> ScoresPanel:
    """Place the panel."""
    parts.heading("What did it cost?", READING)
    numbers = gr.HTML(parts.invitation(INVITATION, 120), elem_id="gl-numbers")
    return ScoresPanel(numbers, parts.formula(f"{FORMULA}."))


def show(panel: ScoresPanel, record: Record) -> dict[Any, Any]:
    """Show the table with its protocol, and today's numbers in the formula."""
    run, said = record.run, "."
    text = next(iter(run.dense_perplexity), None)
    scored = [method for method in run.methods if text in method.damage]
    if scored:
        least = min(scored, key=lambda method: method.damage[text])
        said = (
            f", least for {method_label(least.method)}: $\\ln({three(least.perplexity[text])} / "
            f"{three(run.dense_perplexity[text])}) = {three(least.damage[text])}$."
        )
    return {panel.numbers: tables.numbers_table(run) + tables.protocol_lines(run), panel.formula: FORMULA + said}
