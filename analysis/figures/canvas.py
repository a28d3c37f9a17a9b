"""The common ground of all figures: transparent, quiet, with an explicit height."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
TEXT = "#6b6b6b"
"""Text colour before the style sheet of the page takes over; 4.5:1 on white."""
GRID = "rgba(128,128,128,0.22)"
LINE = "rgba(128,128,128,0.65)"


def blank(height: int, **layout: Any) -> go.Figure:
    """Return an empty figure in the house style.

    Args:
        height: pixels; the width follows the container.
        **layout: further plotly layout settings.
    """
    figure = go.Figure()
    figure.update_layout(
        template="none", height=height, autosize=True,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": TEXT},
        margin={"l": 48, "r": 14, "t": 14, "b": 44},
        hoverlabel={"bgcolor": "#262626", "bordercolor": "#262626", "font": {"color": "#ffffff", "family": FONT}},
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        hovermode="closest",
    )
    axis = {"gridcolor": GRID, "linecolor": LINE, "zerolinecolor": LINE, "zeroline": False, "automargin": True,
            "exponentformat": "power",
            "title": {"standoff": 8}}
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    figure.update_layout(**layout)
    return figure


def square(figure: go.Figure, x: str, y: str) -> None:
    """Turn a heat map's axes into a square that hangs from the top, with the first row uppermost."""
    figure.update_xaxes(title_text=x, constrain="domain", showgrid=False)
    figure.update_yaxes(title_text=y, autorange="reversed", scaleanchor="x", constrain="domain", constraintoward="top",
                        showgrid=False)


def spans_decades(values: Any) -> bool:
    """Return whether numbers differ so much that a linear axis would press most of them together."""
    flat = np.asarray(values, dtype=float)
    flat = flat[np.isfinite(flat)]
    return bool(flat.size and flat.min() > 1e-6 and flat.max() / flat.min() > 30)


COLOURBAR = {"orientation": "h", "thickness": 8, "outlinewidth": 0, "y": 0, "yref": "container", "yanchor": "bottom",
             "len": 0.8, "nticks": 5}
"""A thin bar at the figure's foot, so that a square map gets the whole width of a narrow screen."""


def short(values: Any, digits: int = 4) -> list[float]:
    """Return numbers rounded to ``digits`` significant digits, so that a figure's JSON stays small."""
    flat = np.asarray(values, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(flat == 0, 0, np.floor(np.log10(np.abs(flat))))
    scale = 10.0 ** (digits - 1 - np.nan_to_num(size))
    return (np.round(flat * scale) / scale).tolist()


def averaged(matrix: np.ndarray, most: int = 128) -> np.ndarray:
    """Average a matrix down to at most ``most`` × ``most`` by equal blocks (the last of a side may be smaller)."""
    edges = [np.arange(0, side, -(-side // most)) for side in matrix.shape]
    if all(len(edge) == side for edge, side in zip(edges, matrix.shape, strict=True)):
        return np.asarray(matrix, dtype=np.float32)
    sizes = [np.diff(np.append(edge, side)) for edge, side in zip(edges, matrix.shape, strict=True)]
    summed = np.add.reduceat(matrix, edges[0], axis=0, dtype=np.float64)
    return (np.add.reduceat(summed, edges[1], axis=1) / np.outer(*sizes)).astype(np.float32)
