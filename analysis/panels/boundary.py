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
from analysis.tables import best_of, left_line

PART = "boundary"
READING = (
    "The share of plain pruning's error (the line at 1) that each repair leaves. Solid, first number: held-out text; "
    "hatched, second: calibration; diamond, third: the median token. Behind a name: how many numbers it may choose."
)
FORMULA = "$\\|\\hat x - X_\\text{post}\\|_F \\,/\\, \\|\\Delta\\|_F$ with $\\Delta = X_\\text{post} - X_\\text{pre}$"


@dataclass(frozen=True)
class BoundaryPanel:
    """The panel's components."""

    numbers: gr.HTML
    bars: gr.Plot
    formula: gr.Markdown


def build() -> BoundaryPanel:
    """Place the panel."""
    parts.heading("What is left at the boundary?", READING)
    numbers = gr.HTML("", elem_id="gl-left")
    bars = parts.picture("boundary", "Press Run: the error that each repair leaves appears here.", 256)
    return BoundaryPanel(numbers, bars, parts.formula(FORMULA))


def show(panel: BoundaryPanel, record: Record) -> dict[Any, Any]:
    """Draw the bars and put the best method's numbers into the formula."""
    return told(panel, record) | {panel.bars: parts.drawn(boundary_bars(record.run.methods))}


def told(panel: BoundaryPanel, record: Record) -> dict[Any, Any]:
    """Return all but the picture, which takes longer to draw than its numbers to compute."""
    run = record.run
    best, said = best_of(run), "."
    if best is not None:
        left = best.residual
        said = f": ${three(left.held_out)}$ for {method_label(best.method)}."
    if len(run.removed.gaps) > 1:
        said += f" With {len(run.removed.gaps)} gaps: the last boundary, all repairs in place."
    return {panel.numbers: left_line(record), panel.formula: f"{FORMULA}{said}"}
