"""How much is wrong where the cut was made? The residual boundary error of every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.figures.boundary import boundary_bars, laddered
from analysis.names import method_label
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record
from analysis.tables import best_of, left_line
from ghosted.results import Run

PART = "boundary"
READING = (
    "How much of plain pruning's error (the line at 1) each repair leaves. Solid bar, first number: held-out text; "
    "hatched, second: calibration text; diamond, third: the median token, far away where a few tokens own the error."
)
FORMULA = "$\\|\\hat x - X_\\text{post}\\|_F \\,/\\, \\|\\Delta\\|_F$ with $\\Delta = X_\\text{post} - X_\\text{pre}$"
FREEDOM = "Behind a name: how many numbers that repair may choose, $C = {}$"


@dataclass(frozen=True)
class BoundaryPanel:
    """The panel's components."""

    numbers: gr.HTML
    bars: gr.Plot
    formula: gr.Markdown
    freedom: gr.Markdown


def build() -> BoundaryPanel:
    """Place the panel."""
    parts.heading("What is left at the boundary?", READING)
    numbers = gr.HTML("", elem_id="gl-left")
    bars = parts.picture("boundary", "Press Run: the error that each repair leaves appears here.", 256)
    formula = parts.formula(FORMULA)
    with gr.Accordion("How free is each repair?", open=False, elem_classes="gl-more"):
        freedom = parts.formula("")
    return BoundaryPanel(numbers, bars, formula, freedom)


def show(panel: BoundaryPanel, record: Record) -> dict[Any, Any]:
    """Draw the bars and put the best method's numbers into the formula."""
    run = record.run
    best, said = best_of(run), "."
    if best is not None:
        left = best.residual
        said = (
            f": ${three(left.held_out)}$ for {method_label(best.method)}, "
            f"${three(left.calibration)}$ on calibration tokens, ${three(left.median)}$ for the median one."
        )
    numbers = {panel.numbers: left_line(record)}
    shown = {panel.formula: f"{FORMULA}{said}", panel.freedom: _freedom(run)}
    return numbers | shown | {panel.bars: parts.drawn(boundary_bars(run.methods))}


def _freedom(run: Run) -> str:
    said = FREEDOM.format(f"{run.width:,}".replace(",", "{,}"))
    methods, linear = laddered(run.methods)
    names = {method.method for method in methods}
    said += ", $r$ its rank" * ("low-rank" in names)
    said += ", $F$ the width of the feed-forward branch" * ("best" in names)
    if linear < len(methods):
        said += "; below the dotted line, repairs that read more than the state"
    if len(run.removed.gaps) > 1:
        said += f". With {len(run.removed.gaps)} gaps this is the last boundary, all repairs in place"
    return f"{said}."
