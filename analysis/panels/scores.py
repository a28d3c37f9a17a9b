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
from analysis.speech import say

PART = "scores"


@dataclass(frozen=True)
class ScoresPanel:
    """The panel's components."""

    numbers: gr.HTML
    formula: gr.Markdown


def build() -> ScoresPanel:
    """Place the panel."""
    parts.heading("scores")
    numbers = parts.invited("scores.invitation", 120, elem_id="gl-numbers")
    return ScoresPanel(numbers, parts.formula(lambda: say("scores.formula") + "."))


def show(panel: ScoresPanel, record: Record) -> dict[Any, Any]:
    """Show the table with its protocol, and today's numbers in the formula."""
    run, said = record.run, "."
    text = next(iter(run.dense_perplexity), None)
    scored = [method for method in run.methods if text in method.damage]
    if scored:
        least = min(scored, key=lambda method: method.damage[text])
        ratio = f"{three(least.perplexity[text])} / {three(run.dense_perplexity[text])}"
        numbers = f"$\\ln({ratio}) = {three(least.damage[text])}$"
        said = say("scores.least", method=method_label(least.method), numbers=numbers)
    shown = tables.numbers_table(run) + tables.protocol_lines(run)
    return {panel.numbers: shown, panel.formula: say("scores.formula") + said}
