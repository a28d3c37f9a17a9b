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
from analysis.speech import say
from analysis.tables import best_of, left_line

PART = "boundary"
ERROR = "$\\|\\hat x - X_\\text{post}\\|_F \\,/\\, \\|\\Delta\\|_F$"
DELTA = "$\\Delta = X_\\text{post} - X_\\text{pre}$"


@dataclass(frozen=True)
class BoundaryPanel:
    """The panel's components."""

    numbers: gr.HTML
    bars: gr.Plot
    formula: gr.Markdown


def build() -> BoundaryPanel:
    """Place the panel."""
    parts.heading("boundary")
    numbers = gr.HTML("", elem_id="gl-left")
    bars = parts.picture("boundary", "boundary.invitation", 256)
    return BoundaryPanel(numbers, bars, parts.formula(formula))


def formula() -> str:
    """Return what the error is."""
    return say("boundary.formula", error=ERROR, delta=DELTA)


def show(panel: BoundaryPanel, record: Record) -> dict[Any, Any]:
    """Draw the bars and put the best method's numbers into the formula."""
    return told(panel, record) | {panel.bars: parts.drawn(boundary_bars(record.run.methods))}


def told(panel: BoundaryPanel, record: Record) -> dict[Any, Any]:
    """Return all but the picture, which takes longer to draw than its numbers to compute."""
    run = record.run
    best, said = best_of(run), "."
    if best is not None:
        left = best.residual
        said = say("boundary.best", left=f"${three(left.held_out)}$", method=method_label(best.method))
    if len(run.removed.gaps) > 1:
        said += say("boundary.gaps" if best is not None else "boundary.gaps_alone", count=len(run.removed.gaps))
    return {panel.numbers: left_line(record), panel.formula: formula() + said}
