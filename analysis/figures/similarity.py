"""How alike are the states? The map of all pairs, and what each block changes."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from analysis.figures.canvas import COLOURBAR, GRID, blank, short, square
from analysis.palette import DIVERGING, GREY, VIOLET
from ghosted.removed import RemovedBlocks
from ghosted.results import Similarity

TICKS = np.array([-1.0, -0.5, 0.0, 0.5, 0.8, 1.0])


def angular(cosine: np.ndarray) -> np.ndarray:
    """Return 2/π · arcsin(cosine), from -1 to 1: colour follows the angle, as most cosines crowd near 1."""
    return 2 / np.pi * np.arcsin(np.clip(cosine, -1.0, 1.0))


def similarity_map(similarity: Similarity, removed: RemovedBlocks) -> go.Figure:
    """Draw the mean cosine of every pair of states, with the removed blocks' corner marked.

    Args:
        similarity: ``cosine`` is ``(L+1, L+1)``.
        removed: each gap from state i to state j is outlined.
    """
    states = np.arange(similarity.blocks + 1)
    figure = blank(440, margin={"l": 44, "r": 14, "t": 8, "b": 90})
    figure.add_heatmap(
        z=np.round(angular(similarity.cosine), 4).tolist(), customdata=np.round(similarity.cosine, 4).tolist(),
        x=states, y=states, zmin=-1, zmax=1, colorscale=list(DIVERGING),
        colorbar=COLOURBAR | {"tickangle": 0, "tickvals": angular(TICKS).tolist(),
                              "ticktext": [f"{tick:g}" for tick in TICKS]},
        hovertemplate="state %{y} and state %{x}<br>cosine %{customdata:.3f}<extra></extra>",
    )
    for gap in removed.gaps:
        low, high = gap.start - 0.5, gap.stop + 0.5
        figure.add_shape(type="rect", x0=low, x1=high, y0=low, y1=high, line={"color": VIOLET, "width": 2.5})
    square(figure, "state", "state")
    return figure


def influence_curve(similarity: Similarity, removed: RemovedBlocks) -> go.Figure:
    """Draw what each block changes: 1 - cosine of what enters and leaves it, alone and as a run of n blocks.

    The second line asks the same of a run of as many blocks as are removed, at each start: its lowest point is what
    the cosine criterion picks.
    """
    influence = similarity.block_influence
    figure = blank(420)
    figure.add_scatter(
        x=np.arange(similarity.blocks), y=short(influence), mode="lines+markers", name="one block alone",
        line={"color": GREY, "width": 1.5}, marker={"size": 6},
        hovertemplate="block %{x}<br>changes %{y:.3g}<extra></extra>",
    )
    n = removed.count
    if n > 1:
        runs = 1.0 - np.diagonal(similarity.cosine, offset=n)
        figure.add_scatter(
            x=np.arange(len(runs)), y=short(runs), mode="lines+markers", name=f"{n} blocks from here on",
            line={"color": VIOLET, "width": 2, "dash": "dash"}, marker={"size": 6, "symbol": "diamond"},
            hovertemplate=f"blocks %{{x}} to %{{x}} + {n - 1}<br>change %{{y:.3g}}<extra></extra>",
        )
    for gap in removed.gaps:
        figure.add_vrect(x0=gap.start - 0.5, x1=gap.stop - 0.5, fillcolor=VIOLET, opacity=0.13, line_width=0)
    figure.update_xaxes(title_text="block (first block of the run)", gridcolor=GRID)
    figure.update_yaxes(title_text="1 − cosine")
    if _spans_decades(influence):
        figure.update_yaxes(type="log", dtick="D2")
    return figure


def _spans_decades(values: np.ndarray) -> bool:
    return bool(values.min() > 1e-6 and values.max() / values.min() > 30)
