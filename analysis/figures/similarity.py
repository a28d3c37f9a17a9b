"""How alike are the states, by which cosine, and whose norms are out of all proportion?"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from analysis.figures.canvas import COLOURBAR, GRID, blank, short, square
from analysis.palette import BLUE, DIVERGING, GREY, ORANGE, TEAL, VIOLET
from analysis.speech import say
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
        hovertemplate=say("similarity.pair_hover", a="%{y}", b="%{x}", cosine="%{customdata:.3f}") + "<extra></extra>",
    )
    for gap in removed.gaps:
        low, high = gap.start - 0.5, gap.stop + 0.5
        figure.add_shape(type="rect", x0=low, x1=high, y0=low, y1=high, line={"color": VIOLET, "width": 2.5})
    square(figure, say("similarity.state"), say("similarity.state"))
    return figure


def influence_curve(similarity: Similarity, removed: RemovedBlocks) -> go.Figure:
    """Draw what each block changes: 1 - cosine of what enters and leaves it, alone and as a run of n blocks.

    The second line asks the same of a run of as many blocks as are removed, at each start: its lowest point is what
    the cosine criterion picks.
    """
    influence = similarity.block_influence
    figure = blank(420)
    figure.add_scatter(
        x=np.arange(similarity.blocks), y=short(influence), mode="lines+markers", name=say("similarity.one_block"),
        line={"color": GREY, "width": 1.5}, marker={"size": 6},
        hovertemplate=say("similarity.one_hover", block="%{x}", change="%{y:.3g}") + "<extra></extra>",
    )
    n = removed.count
    if n > 1:
        runs = 1.0 - np.diagonal(similarity.cosine, offset=n)
        figure.add_scatter(
            x=np.arange(len(runs)), y=short(runs), mode="lines+markers", name=say("similarity.run", count=n),
            line={"color": VIOLET, "width": 2, "dash": "dash"}, marker={"size": 6, "symbol": "diamond"},
            hovertemplate=say("similarity.run_hover", block="%{x}", more=n - 1, change="%{y:.3g}") + "<extra></extra>",
        )
    for gap in removed.gaps:
        figure.add_vrect(x0=gap.start - 0.5, x1=gap.stop - 0.5, fillcolor=VIOLET, opacity=0.13, line_width=0)
    figure.update_xaxes(title_text=say("similarity.block_axis"), gridcolor=GRID)
    figure.update_yaxes(title_text=say("similarity.change_axis"))
    if _spans_decades(influence):
        figure.update_yaxes(type="log", dtick="D2")
    return figure


def norm_curve(similarity: Similarity, removed: RemovedBlocks) -> go.Figure:
    """Draw the mean norm of a few states by position in the window, with every sink marked.

    A sink is a position whose norm is at least ten times the median of its state. It is marked on the line of the
    largest norm over all states, which each of them reaches up to.
    """
    norms, positions = similarity.norms, np.arange(similarity.norms.shape[1])
    figure = blank(420)
    top, sinks = norms.max(axis=0), similarity.sinks()
    for state, name, (colour, dash) in zip(*_states(similarity.blocks, removed), _LINES, strict=False):
        figure.add_scatter(
            x=positions, y=short(norms[state]), mode="lines", name=name,
            line={"color": colour, "width": 1.5, "dash": dash},
            hovertemplate=say("similarity.norm_hover", state=state, position="%{x}", norm="%{y:.3g}")
            + "<extra></extra>",
        )
    figure.add_scatter(
        x=positions, y=short(top), mode="lines", name=say("similarity.largest"),
        line={"color": GREY, "width": 1.5}, customdata=norms.argmax(axis=0),
        hovertemplate=say("similarity.largest_hover", position="%{x}", norm="%{y:.3g}", state="%{customdata}")
        + "<extra></extra>",
    )
    marked = np.flatnonzero(sinks.any(axis=0))
    if len(marked):
        times = (norms / np.maximum(np.median(norms, axis=1, keepdims=True), 1e-30))[:, marked].max(axis=0)
        figure.add_scatter(
            x=marked, y=short(top[marked]), mode="markers", name=say("similarity.sink_name"),
            marker={"symbol": "diamond-open", "size": 11, "color": ORANGE, "line": {"width": 2}},
            customdata=np.stack([sinks[:, marked].sum(axis=0), np.round(times, 1)], axis=1),
            hovertemplate=say("similarity.sink_hover", position="%{x}", states="%{customdata[0]}",
                              times="%{customdata[1]:,.4g}") + "<extra></extra>",
        )
    figure.update_xaxes(title_text=say("similarity.position_axis"), range=[-len(positions) / 50, len(positions)])
    figure.update_yaxes(title_text=say("similarity.norm_axis"), type="log", dtick=1)
    return figure


_LINES = ((VIOLET, "solid"), (TEAL, "dash"))


def _states(blocks: int, removed: RemovedBlocks) -> tuple[list[int], list[str]]:
    """Return the states to draw and their names: both sides of the first gap, or the middle where there is none."""
    if not removed.gaps:
        return [blocks // 2], [say("similarity.middle", state=blocks // 2)]
    gap = removed.gaps[0]
    return [gap.start, gap.stop], [say("similarity.before", state=gap.start), say("similarity.after", state=gap.stop)]


def two_cosines(similarity: Similarity, count: int) -> go.Figure:
    """Draw both cosines between the two sides of a run of ``count`` blocks over where it starts, maxima marked.

    Args:
        similarity: ``cosine`` averages each token's own; ``flattened`` takes all tokens as one long vector, so that
            tokens count by their norm.
        count: of blocks, 1 to L.
    """
    figure = blank(420)
    for flattened, name, colour, dash, symbol in ((False, say("similarity.per_token"), VIOLET, "solid", "star"),
                                                  (True, say("similarity.flat"), BLUE, "dashdot", "star-open")):
        values = np.diagonal(similarity.flattened if flattened else similarity.cosine, offset=count)
        best = similarity.best_start(count, flattened)
        picks = say("similarity.picks", name=name, run=run_name(best, count))
        figure.add_scatter(
            x=np.arange(len(values)), y=short(values, 6), mode="lines", name=picks,
            line={"color": colour, "width": 2, "dash": dash},
            hovertemplate=say("similarity.cosine_hover", name=name, block="%{x}", more=count - 1, cosine="%{y:.4f}")
            + "<extra></extra>",
        )
        figure.add_scatter(
            x=[best], y=short([values[best]], 6), mode="markers", showlegend=False,
            marker={"color": colour, "size": 13, "symbol": symbol, "line": {"width": 2, "color": colour}},
            hovertemplate=say("similarity.pick_hover", picks=picks, cosine="%{y:.4f}") + "<extra></extra>",
        )
    figure.update_xaxes(title_text=say("similarity.first_axis"))
    figure.update_yaxes(title_text=say("similarity.cosine_axis"))
    return figure


def run_name(start: int, count: int) -> str:
    """Return the name of a run of blocks for reading: ``12–16``, ``12``."""
    return f"{start}–{start + count - 1}" if count > 1 else str(start)


def _spans_decades(values: np.ndarray) -> bool:
    return bool(values.min() > 1e-6 and values.max() / values.min() > 30)
