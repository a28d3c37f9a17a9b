"""How much is wrong where the cut was made? The residual boundary error of every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.figures.boundary import boundary_bars
from analysis.names import method_label
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record
from analysis.tables import best_of

PART = "boundary"
READING = (
    "How much of the error of plain pruning (the line at 1) each repair leaves. A diamond far from its bar: a few "
    "tokens own the error."
)
FORMULA = "$\\|\\hat x - X_\\text{post}\\|_F \\,/\\, \\|\\Delta\\|_F$ with $\\Delta = X_\\text{post} - X_\\text{pre}$"


@dataclass(frozen=True)
class BoundaryPanel:
    """The panel's components."""

    bars: gr.Plot
    formula: gr.Markdown


def build() -> BoundaryPanel:
    """Place the panel."""
    parts.heading("What is left at the boundary?", READING)
    bars = parts.picture("boundary", "Press Run: the error that each repair leaves appears here.", 330)
    return BoundaryPanel(bars, parts.formula(FORMULA))


def show(panel: BoundaryPanel, record: Record) -> dict[Any, Any]:
    """Draw the bars and put the best method's numbers into the formula."""
    run = record.run
    best, said = best_of(run), "."
    if best is not None:
        left = best.residual
        said = (
            f": ${three(left.held_out)}$ for {method_label(best.method)} on held-out tokens "
            f"(${three(left.calibration)}$ on calibration tokens, ${three(left.median)}$ for the median token)."
        )
    return {panel.bars: parts.drawn(boundary_bars(run.methods)), panel.formula: FORMULA + said}
