"""How alike are the layers? The map of all pairs with its values, and what each block changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.figures.similarity import influence_curve, similarity_map
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record

PART = "similarity"
READING = (
    "Left: the mean cosine between any two states, coloured by angle. Right: what a block changes; low points are "
    "blocks, or runs of blocks, that barely turn the state, and the shaded ones are removed."
)
FORMULA = (
    "$\\cos(x_i, x_j)$ averaged over tokens, where $x_i$ is the state entering block $i$; block influence is "
    "$1 - \\cos(x_i, x_{i+1})$."
)


@dataclass(frozen=True)
class SimilarityPanel:
    """The panel's components."""

    map: gr.Plot
    curve: gr.Plot
    formula: gr.Markdown


def build() -> SimilarityPanel:
    """Place the panel."""
    parts.heading("How alike are the layers?", READING)
    with gr.Row():
        with gr.Column(min_width=300):
            similarity = parts.picture("similarity", "Press Run: the map of all pairs of states appears here.", 440)
        with gr.Column(min_width=300):
            curve = parts.picture("influence", "Press Run: what each block changes appears here.", 420)
    return SimilarityPanel(similarity, curve, parts.formula(FORMULA))


def show(panel: SimilarityPanel, record: Record) -> dict[Any, Any]:
    """Draw both pictures and put the removed runs' cosine into the formula."""
    run, similarity = record.run, record.run.similarity
    numbers = "; ".join(
        f"$\\cos(x_{{{gap.start}}}, x_{{{gap.stop}}}) = {three(float(similarity.cosine[gap.start, gap.stop]))}$"
        for gap in run.removed.gaps
    )
    said = f" Here {numbers} over {similarity.tokens:,} tokens." if numbers else f" Over {similarity.tokens:,} tokens."
    return {
        panel.map: parts.drawn(similarity_map(similarity, run.removed)),
        panel.curve: parts.drawn(influence_curve(similarity, run.removed)),
        panel.formula: FORMULA + said,
    }
