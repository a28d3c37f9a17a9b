"""How does W stretch and turn? The spectra of W, of its symmetric and antisymmetric part, and of M.

LinearPatch's operator stands on the same axes where it is known: it is symmetric, so its eigenvalues are real and it
cannot turn a state at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.figures.canvas import LINE, blank, short
from analysis.figures.operator import Portrait, ranks
from analysis.names import method_label
from analysis.palette import BLUE, GREY, ORANGE, TEAL, look
from analysis.speech import say

HEIGHT = 320
BINS = 60


def eigenvalue_plane(picture: Portrait, patch: Portrait | None = None) -> go.Figure:
    """Draw the eigenvalues of W in the complex plane, with the unit circle; doing nothing is the point 1.

    Args:
        picture: the operator.
        patch: LinearPatch's at the same gap; its eigenvalues lie on the real axis.
    """
    figure = blank(HEIGHT)
    turn = np.linspace(0, 2 * np.pi, 91)
    figure.add_scatter(x=short(np.cos(turn)), y=short(np.sin(turn)), mode="lines", hoverinfo="skip",
                       line={"color": LINE, "width": 1, "dash": "dot"}, showlegend=False)
    upper = picture.eigenvalues
    both = np.concatenate([upper, upper[upper.imag > 0].conj()])
    hover = "%{x:.3g} + %{y:.3g} i<extra></extra>"
    figure.add_scatter(
        x=short(both.real), y=short(both.imag), mode="markers", name=method_label(picture.method), hovertemplate=hover,
        marker={"color": look(picture.method).colour, "size": 4.5, "opacity": 0.85}, showlegend=patch is not None,
    )
    if patch is not None:
        real = _thinned(np.sort(patch.symmetric))
        figure.add_scatter(
            x=short(real), y=np.zeros(len(real)).tolist(), mode="markers", name=_patch_name(patch),
            hovertemplate=say("operator.real_hover", x="%{x:.3g}") + "<extra></extra>",
            marker={"color": BLUE, "size": 8, "symbol": "line-ns-open", "line": {"width": 1.2}},
        )
    figure.add_scatter(x=[1], y=[0], mode="markers", showlegend=False,
                       hovertemplate=say("operator.identity") + "<extra></extra>",
                       marker={"color": GREY, "size": 13, "symbol": "cross-thin-open", "line": {"width": 2}})
    others = patch.symmetric if patch is not None else np.zeros(0)
    x, y = span(both.real, others, [1.0]), span(both.imag, [0.0])
    _say_beyond(figure, int(np.sum(_beyond(both.real, x) | _beyond(both.imag, y))) + int(np.sum(_beyond(others, x))))
    figure.update_xaxes(title_text=say("operator.real_axis"), range=x)
    figure.update_yaxes(title_text=say("operator.imaginary_axis"), range=y, scaleanchor="x")
    return figure


def symmetric_line(picture: Portrait, patch: Portrait | None = None) -> go.Figure:
    """Draw how the eigenvalues of S spread over the line, with doing nothing at 1; LinearPatch's as an outline."""
    values = np.concatenate([picture.symmetric, patch.symmetric if patch is not None else []])
    edges = np.linspace(*span(values, [1.0]), min(BINS, 2 + int(2 * len(picture.symmetric) ** 0.5)))
    middles = (edges[:-1] + edges[1:]) / 2
    figure = blank(HEIGHT, bargap=0)
    figure.add_bar(
        x=short(middles, 6), y=short(_percent(picture.symmetric, edges)), width=float(edges[1] - edges[0]),
        marker={"color": TEAL}, name="S", showlegend=patch is not None,
        hovertemplate=say("operator.line_hover", x="%{x:.3g}", y="%{y:.3g}") + "<extra></extra>",
    )
    if patch is not None:
        figure.add_scatter(
            x=short(middles, 6), y=short(_percent(patch.symmetric, edges)), mode="lines", name=_patch_name(patch),
            line={"color": BLUE, "width": 1.8, "shape": "hvh", "dash": look(patch.method).dash},
            hovertemplate=say("operator.patch_hover", x="%{x:.3g}", y="%{y:.3g}") + "<extra></extra>",
        )
    figure.add_vline(x=1, line={"color": LINE, "dash": "dash", "width": 1.5})
    _say_beyond(figure, int(_beyond(values, edges[[0, -1]].tolist()).sum()))
    figure.update_xaxes(title_text=say("operator.line_axis"), range=edges[[0, -1]].tolist())
    figure.update_yaxes(title_text=say("operator.percent_axis"))
    return figure


def rotation_rates(picture: Portrait, patch: Portrait | None = None) -> go.Figure:
    """Draw the rotation rates θ of A's pairs, largest first; LinearPatch's are all 0."""
    figure = blank(HEIGHT)
    pairs = 1 + ranks(picture.pairs)
    if picture.pairs:
        figure.add_scatter(
            x=pairs.tolist(), y=short(picture.rotations), mode="lines", name="A", showlegend=patch is not None,
            line={"color": ORANGE, "width": 2},
            hovertemplate=say("operator.pair_hover", pair="%{x}", rate="%{y:.3g}") + "<extra></extra>",
        )
    else:
        _say(figure, say("operator.no_turn"))
    if patch is not None:
        figure.add_scatter(x=[1, picture.width // 2], y=[0, 0], mode="lines", line=_patch_line(patch),
                           name=say("operator.patch_none", name=_patch_name(patch)),
                           hovertemplate=say("operator.patch_turns") + "<extra></extra>")
    figure.update_xaxes(title_text=say("operator.pair_axis"))
    figure.update_yaxes(title_text=say("operator.rate_axis"), rangemode="tozero")
    return figure


def singular_values(picture: Portrait, patch: Portrait | None = None) -> go.Figure:
    """Draw the singular values of M, largest first, and below them what the best repair of each rank leaves.

    The lower curve is of the gap, not of this operator's own truncation: the best operator of rank r is chosen by what
    states really do (:mod:`ghosted.operators.low_rank`).
    """
    has_errors = len(picture.errors) > 0
    figure = blank(HEIGHT)
    for drawn, line in [(picture, {"color": look(picture.method).colour, "width": 2})] + (
            [(patch, _patch_line(patch))] if patch is not None else []):
        name = method_label(drawn.method) if drawn is picture else _patch_name(drawn)
        figure.add_scatter(
            x=(1 + ranks(drawn.width)).tolist(), y=short(np.where(drawn.singular > 0, drawn.singular, np.nan)),
            mode="lines", name=name, line=line, showlegend=patch is not None,
            hovertemplate=say("operator.direction_hover", direction="%{x}", value="%{y:.3g}")
            + "<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title_text=say("operator.rank_axis"))
    figure.update_yaxes(title_text=say("operator.singular_axis"), type="log", dtick=1)
    if has_errors:
        figure.add_scatter(
            x=ranks(picture.width + 1).tolist(), y=short(picture.errors), mode="lines", yaxis="y2", showlegend=False,
            line={"color": GREY, "width": 2, "dash": look("low-rank").dash},
            hovertemplate=say("operator.rank_hover", rank="%{x}", error="%{y:.3g}") + "<extra></extra>",
        )
        axis = {key: value for key, value in figure.layout.yaxis.to_plotly_json().items() if key in _SHARED}
        figure.update_layout(
            xaxis={"anchor": "y2"}, yaxis={"domain": [0.54, 1.0]},
            yaxis2=axis | {"domain": [0.0, 0.42], "anchor": "x", "rangemode": "tozero",
                           "title": {"text": say("operator.error_axis"), "standoff": 8}},
        )
    return figure


_SHARED = ("gridcolor", "linecolor", "zeroline", "zerolinecolor", "automargin")


def span(*values: Any) -> list[float]:
    """Return from where to where an axis shows these numbers: all but far outliers, which would squeeze the rest.

    Far is beyond the middle 90 % by more than three quarters of what those span.
    """
    found = np.concatenate([np.asarray(each, dtype=float) for each in values])
    low, high = np.quantile(found, [0.05, 0.95])
    room = 0.75 * (high - low) or 0.1
    low, high = max(low - room, found.min()), min(high + room, found.max())
    edge = 0.05 * (high - low) or 0.1
    return [float(low - edge), float(high + edge)]


def _beyond(values: Any, limits: list[float]) -> np.ndarray:
    return (np.asarray(values) < limits[0]) | (np.asarray(values) > limits[1])


def _say_beyond(figure: go.Figure, count: int) -> None:
    if count:
        figure.add_annotation(x=1, y=1, xref="paper", yref="paper", xanchor="right", yanchor="top", showarrow=False,
                              text=say("operator.beyond", count=count), font={"size": 11})


def _percent(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return 100 * np.histogram(values, bins=edges)[0] / max(len(values), 1)


def _thinned(values: np.ndarray) -> np.ndarray:
    return values[ranks(len(values), 512)]


def _patch_name(patch: Portrait) -> str:
    return method_label(patch.method)


def _patch_line(patch: Portrait) -> dict[str, object]:
    style = look(patch.method)
    return {"color": style.colour, "dash": style.dash, "width": 1.8}


def _say(figure: go.Figure, text: str) -> None:
    figure.add_annotation(x=0.5, y=0.5, xref="paper", yref="paper", text=text, showarrow=False)
