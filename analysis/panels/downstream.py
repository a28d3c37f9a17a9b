"""Does the error heal further down? Error and cosine of every later state, up to the final norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.figures.downstream import downstream_cosine, downstream_lines
from analysis.names import method_label
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record
from analysis.tables import best_of
from ghosted.results import MethodResult, Run

PART = "scores"
READING = (
    "How far each surviving state is from the original's, block after block. Where the error falls, the remaining "
    "blocks heal part of the damage; where it rises, they make it worse. The longest states, such as sinks, own the "
    "error; the cosine counts every token the same: a small error with a low cosine is a repair of a few tokens only."
)
FORMULA = "For each state $i$: $\\|x'_i - x_i\\|_F \\,/\\, \\|x_i\\|_F$, and the mean over tokens of $\\cos(x'_i, x_i)$"
PICTURES = (
    ("error", "Relative error", downstream_lines), ("cosine", "Cosine with the original's state", downstream_cosine),
)
INVITATION = "Press Run: the error after each surviving block appears here."


@dataclass(frozen=True)
class DownstreamPanel:
    """The panel's components; pictures by the names of ``PICTURES``."""

    plots: dict[str, gr.Plot]
    formula: gr.Markdown


def build() -> DownstreamPanel:
    """Place the panel."""
    parts.heading("Does it heal further down?", READING)
    plots = {}
    with gr.Row():
        for name, caption, _ in PICTURES:
            plots[name] = parts.captioned(f"downstream-{name}", caption, INVITATION, 340, width=300)
    return DownstreamPanel(plots, parts.formula(f"{FORMULA}."))


def show(panel: DownstreamPanel, record: Record) -> dict[Any, Any]:
    """Draw both pictures and put the last state's numbers into the formula; or say that nothing was measured."""
    methods = record.run.methods
    if not any(method.downstream for method in methods):
        return dict.fromkeys(panel.plots.values()) | {panel.formula: f"{FORMULA}."}
    plots = {panel.plots[name]: parts.drawn(draw(methods)) for name, _, draw in PICTURES}
    return plots | {panel.formula: FORMULA + numbers(record.run)}


def numbers(run: Run) -> str:
    """Return what is left at the final norm, and whether the least boundary error gave the best model."""
    measured = [method for method in run.methods if method.downstream]
    least = best_of(run)
    shown = least if least in measured else measured[0]
    last = shown.downstream[-1]
    said = (
        f": at state {last.state}, which enters the final norm, ${three(last.error)}$ and ${three(last.cosine)}$ for "
        f"{method_label(shown.method)}"
    )
    text = next(iter(run.dense_perplexity), None)
    scored = [method for method in measured if text in method.damage]
    finest = min(scored, key=lambda method: method.damage[text], default=None)
    if least is None or finest is None or least not in scored or finest is least:
        return f"{said}."
    return (
        f"{said}. A small error is not all: {_left(least, text)} has the least at the boundary, but the better model "
        f"is that of {_left(finest, text)}."
    )


def _left(method: MethodResult, text: str) -> str:
    return (
        f"{method_label(method.method)} (error at the boundary ${three(method.residual.held_out)}$, cosine at the end "
        f"${three(method.downstream[-1].cosine)}$, perplexity ${three(method.perplexity[text])}$)"
    )
