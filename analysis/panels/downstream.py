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
from analysis.speech import say
from analysis.tables import best_of
from ghosted.results import MethodResult, Run

PART = "scores"
ERROR, COSINE = "$\\|x'_i - x_i\\|_F \\,/\\, \\|x_i\\|_F$", "$\\cos(x'_i, x_i)$"
PICTURES = (("error", downstream_lines), ("cosine", downstream_cosine))


@dataclass(frozen=True)
class DownstreamPanel:
    """The panel's components; pictures by the names of ``PICTURES``."""

    plots: dict[str, gr.Plot]
    formula: gr.Markdown


def build() -> DownstreamPanel:
    """Place the panel."""
    parts.heading("downstream")
    plots = {}
    with gr.Row():
        for name, _ in PICTURES:
            plots[name] = parts.captioned(f"downstream-{name}", f"downstream.{name}", "downstream.invitation", 340,
                                          width=300)
    return DownstreamPanel(plots, parts.formula(lambda: formula() + "."))


def formula() -> str:
    """Return what is measured."""
    return say("downstream.formula", error=ERROR, cosine=COSINE)


def show(panel: DownstreamPanel, record: Record) -> dict[Any, Any]:
    """Draw both pictures and put the last state's numbers into the formula; or say that nothing was measured."""
    methods = record.run.methods
    if not any(method.downstream for method in methods):
        return dict.fromkeys(panel.plots.values()) | {panel.formula: formula() + "."}
    plots = {panel.plots[name]: parts.drawn(draw(methods)) for name, draw in PICTURES}
    return plots | {panel.formula: formula() + numbers(record.run)}


def numbers(run: Run) -> str:
    """Return what is left at the final norm, and whether the least boundary error gave the best model."""
    measured = [method for method in run.methods if method.downstream]
    least = best_of(run)
    shown = least if least in measured else measured[0]
    last = shown.downstream[-1]
    said = say("downstream.last", state=last.state, error=f"${three(last.error)}$", cosine=f"${three(last.cosine)}$",
               method=method_label(shown.method))
    text = next(iter(run.dense_perplexity), None)
    scored = [method for method in measured if text in method.damage]
    finest = min(scored, key=lambda method: method.damage[text], default=None)
    if least is None or finest is None or least not in scored or finest is least:
        return f"{said}."
    return f"{said}. " + say("downstream.not_all", least=_left(least, text), finest=_left(finest, text))


def _left(method: MethodResult, text: str) -> str:
    return say(
        "downstream.of", method=method_label(method.method), error=f"${three(method.residual.held_out)}$",
        cosine=f"${three(method.downstream[-1].cosine)}$", perplexity=f"${three(method.perplexity[text])}$",
    )
