"""How alike are the layers? Every pair of states, what each block changes, the sinks, and which cosine picks what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
import numpy as np

from analysis.figures.similarity import influence_curve, norm_curve, run_name, similarity_map, two_cosines
from analysis.numbers import three
from analysis.panels import parts
from analysis.speech import say
from ghosted.removed import RemovedBlocks
from ghosted.results import Similarity

PART = "similarity"
COSINE, INFLUENCE = "$\\cos(x_i, x_j)$", "$1 - \\cos(x_i, x_{i+1})$"
FLATTENED = "$\\sum_t x_{i,t} \\cdot x_{j,t} \\,/\\, (\\|X_i\\|_F \\|X_j\\|_F)$"
PICTURES = {"similarity": ("map", 440), "influence": ("influence", 420), "norms": ("norms", 420),
            "cosines": ("cosines", 420)}
"""The pictures by name: what the catalogue calls them, and their height."""


@dataclass(frozen=True)
class SimilarityPanel:
    """The panel's components; pictures by the names of ``PICTURES``."""

    pictures: dict[str, gr.Plot]
    formula: gr.Markdown


def build() -> SimilarityPanel:
    """Place the panel."""
    parts.heading("similarity")
    with gr.Row(elem_classes="gl-quad"):
        pictures = {name: parts.captioned(name, f"similarity.{key}", f"similarity.{key}_empty", height)
                    for name, (key, height) in PICTURES.items()}
    return SimilarityPanel(pictures, parts.formula(formula))


def formula() -> str:
    """Return what the pictures show."""
    return say("similarity.formula", cosine=COSINE, influence=INFLUENCE)


def show(panel: SimilarityPanel, record: Any) -> dict[Any, Any]:
    """Draw all pictures and put the removed runs' cosines, the choices and the sinks into the formula."""
    similarity, removed = record.run.similarity, record.run.removed
    figures = {
        "similarity": similarity_map(similarity, removed), "influence": influence_curve(similarity, removed),
        "norms": norm_curve(similarity, removed), "cosines": two_cosines(similarity, count_of(removed)),
    }
    updates = {panel.pictures[name]: parts.drawn(figure) for name, figure in figures.items()}
    flattened = say("similarity.flattened", formula=FLATTENED)
    said = " ".join((formula(), gaps(similarity, removed), flattened, choices(similarity, count_of(removed)),
                     sinks(similarity)))
    return updates | {panel.formula: said}


def count_of(removed: RemovedBlocks) -> int:
    """Return how many blocks the two cosines choose: as many as are removed, one where none is."""
    return max(removed.count, 1)


def gaps(similarity: Similarity, removed: RemovedBlocks) -> str:
    """Return both cosines over each gap, in one sentence."""
    said = "; ".join(
        say("similarity.gap_flattened", flattened=f"${three(float(similarity.flattened[gap.start, gap.stop]))}$",
            cosine=f"$\\cos(x_{{{gap.start}}}, x_{{{gap.stop}}}) = "
                   f"{three(float(similarity.cosine[gap.start, gap.stop]))}$") for gap in removed.gaps
    )
    tokens = f"{similarity.tokens:,}"
    return say("similarity.here", gaps=said, tokens=tokens) if said else say("similarity.over", tokens=tokens)


def choices(similarity: Similarity, count: int) -> str:
    """Return which run of ``count`` blocks each cosine would choose, in one sentence."""
    blocks = say("similarity.block" if count == 1 else "similarity.blocks")
    per_token, flattened = (run_name(similarity.best_start(count, flat), count) for flat in (False, True))
    if per_token == flattened:
        return say("similarity.both", count=count, blocks=blocks, run=per_token)
    return say("similarity.differ", count=count, blocks=blocks, run=per_token, other=flattened)


def sinks(similarity: Similarity) -> str:
    """Return where the sinks are and how far out, in one sentence."""
    found = similarity.sinks()
    where = np.flatnonzero(found.any(axis=0))
    if not len(where):
        return say("similarity.no_sink")
    medians = np.median(similarity.norms, axis=1, keepdims=True)
    times = np.where(found, similarity.norms / np.where(medians > 0, medians, 1.0), 0.0)
    state, position = np.unravel_index(int(times.argmax()), times.shape)
    named = ", ".join(str(each) for each in where[:5])
    if len(where) > 5:
        named = say("similarity.more", positions=named, count=len(where) - 5)
    return say(
        "similarity.sink" if len(where) == 1 else "similarity.sinks", positions=named,
        states=int(found.any(axis=1).sum()), all=similarity.blocks + 1, times=f"${three(float(times.max()))}$",
        state=state, position=position,
    )
