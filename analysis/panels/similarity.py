"""How alike are the layers? Every pair of states, what each block changes, the sinks, and which cosine picks what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
import numpy as np

from analysis.figures.similarity import influence_curve, norm_curve, run_name, similarity_map, two_cosines
from analysis.numbers import three
from analysis.panels import parts
from ghosted.removed import RemovedBlocks
from ghosted.results import Similarity

PART = "similarity"
READING = (
    "The mean cosine between any two states, coloured by angle. What a block changes: low points are blocks, or runs "
    "of blocks, that barely turn the state, and the shaded ones are removed. A sink is a position whose state is so "
    "long that it owns every sum over tokens: the flattened cosine sees little else, per token it counts once."
)
FORMULA = (
    "$\\cos(x_i, x_j)$ averaged over tokens, where $x_i$ is the state entering block $i$; block influence is "
    "$1 - \\cos(x_i, x_{i+1})$."
)
FLATTENED = "Flattened: $\\sum_t x_{i,t} \\cdot x_{j,t} \\,/\\, (\\|X_i\\|_F \\|X_j\\|_F)$."
PICTURES = (
    ("similarity", "Cosine of every pair of states", "the map of all pairs of states", 440),
    ("influence", "What each block changes", "what each block changes", 420),
    ("norms", "How long states are, by position", "the norm of states by position", 420),
    ("cosines", "Per token or flattened: which run is chosen?", "what each of two cosines would choose", 420),
)


@dataclass(frozen=True)
class SimilarityPanel:
    """The panel's components; pictures by the names of ``PICTURES``."""

    pictures: dict[str, gr.Plot]
    formula: gr.Markdown


def build() -> SimilarityPanel:
    """Place the panel."""
    parts.heading("How alike are the layers?", READING)
    with gr.Row(elem_classes="gl-quad"):
        pictures = {name: parts.captioned(name, caption, f"Press Run: {what} appears here.", height)
                    for name, caption, what, height in PICTURES}
    return SimilarityPanel(pictures, parts.formula(FORMULA))


def show(panel: SimilarityPanel, record: Any) -> dict[Any, Any]:
    """Draw all pictures and put the removed runs' cosines, the choices and the sinks into the formula."""
    similarity, removed = record.run.similarity, record.run.removed
    figures = {
        "similarity": similarity_map(similarity, removed), "influence": influence_curve(similarity, removed),
        "norms": norm_curve(similarity, removed), "cosines": two_cosines(similarity, count_of(removed)),
    }
    updates = {panel.pictures[name]: parts.drawn(figure) for name, figure in figures.items()}
    said = " ".join((FORMULA, gaps(similarity, removed), FLATTENED, choices(similarity, count_of(removed)),
                     sinks(similarity)))
    return updates | {panel.formula: said}


def count_of(removed: RemovedBlocks) -> int:
    """Return how many blocks the two cosines choose: as many as are removed, one where none is."""
    return max(removed.count, 1)


def gaps(similarity: Similarity, removed: RemovedBlocks) -> str:
    """Return both cosines over each gap, in one sentence."""
    said = "; ".join(
        f"$\\cos(x_{{{gap.start}}}, x_{{{gap.stop}}}) = {three(float(similarity.cosine[gap.start, gap.stop]))}$ "
        f"(flattened ${three(float(similarity.flattened[gap.start, gap.stop]))}$)" for gap in removed.gaps
    )
    return f"Here {said} over {similarity.tokens:,} tokens." if said else f"Over {similarity.tokens:,} tokens."


def choices(similarity: Similarity, count: int) -> str:
    """Return which run of ``count`` blocks each cosine would choose, in one sentence."""
    blocks = "block" if count == 1 else "blocks"
    per_token, flattened = (run_name(similarity.best_start(count, flat), count) for flat in (False, True))
    if per_token == flattened:
        return f"For {count} {blocks} in a row both choose {per_token}."
    return f"For {count} {blocks} in a row the cosine per token chooses {per_token}, the flattened one {flattened}."


def sinks(similarity: Similarity) -> str:
    """Return where the sinks are and how far out, in one sentence."""
    found = similarity.sinks()
    where = np.flatnonzero(found.any(axis=0))
    if not len(where):
        return "No position's norm reaches ten times the median of its state: no sink."
    medians = np.median(similarity.norms, axis=1, keepdims=True)
    times = np.where(found, similarity.norms / np.where(medians > 0, medians, 1.0), 0.0)
    state, position = np.unravel_index(int(times.argmax()), times.shape)
    named = ", ".join(str(each) for each in where[:5]) + (f" and {len(where) - 5} more" if len(where) > 5 else "")
    places = "position" if len(where) == 1 else "positions"
    return (
        f"Sink at {places} {named}, in {int(found.any(axis=1).sum())} of {similarity.blocks + 1} states; the largest "
        f"has ${three(float(times.max()))}$ times the median norm of state {state}, at position {position}."
    )
