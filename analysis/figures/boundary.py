"""What is left at the boundary? One pair of bars per method, and the typical token as a marker."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis.figures.canvas import LINE, blank
from analysis.names import method_label
from analysis.numbers import three
from analysis.palette import look
from ghosted.results import MethodResult


def boundary_bars(methods: Sequence[MethodResult]) -> go.Figure:
    """Draw the residual boundary error of each method: calibration (hatched), held-out (solid), median (diamond).

    The line at 1 is plain pruning; a bar beyond it is worse than no repair.
    """
    labels = [method_label(m.method) for m in methods]
    ticks = [_tick(m, label) for m, label in zip(methods, labels, strict=True)]
    colours = [look(m.method).colour for m in methods]
    parts = {
        part: [m.residual and getattr(m.residual, part) for m in methods]
        for part in ("calibration", "held_out", "median")
    }
    figure = blank(max(280, 90 + 40 * len(methods)), barmode="group", bargap=0.28, bargroupgap=0.08)
    # Horizontal groups are drawn from the bottom, so held-out is added first to stand below calibration.
    figure.add_bar(
        orientation="h", y=labels, x=parts["held_out"], name="held-out", legendrank=2,
        marker={"color": colours},
        hovertemplate="%{y}<br>held-out %{x:.3g}<extra></extra>",
    )
    figure.add_bar(
        orientation="h", y=labels, x=parts["calibration"], name="calibration", legendrank=1,
        marker={"color": "rgba(0,0,0,0)", "line": {"color": colours, "width": 1.5},
                "pattern": {"shape": "/", "fgcolor": colours, "size": 6, "solidity": 0.35}},
        hovertemplate="%{y}<br>calibration %{x:.3g}<extra></extra>",
    )
    figure.add_scatter(
        y=labels, x=parts["median"], mode="markers", name="median held-out token", legendrank=3,
        marker={"symbol": "diamond", "size": 11, "color": "#ffffff", "line": {"color": "#3a3a3a", "width": 1.8}},
        hovertemplate="%{y}<br>median token %{x:.3g}<extra></extra>",
    )
    figure.add_vline(x=1, line={"color": LINE, "dash": "dash", "width": 1.5})
    for method, label in zip(methods, labels, strict=True):
        if (said := _instead_of_bars(method)) is not None:
            figure.add_annotation(x=0, y=label, text=said, showarrow=False, xanchor="left", xshift=6)
    figure.update_yaxes(autorange="reversed", showgrid=False, tickmode="array", tickvals=labels, ticktext=ticks)
    figure.update_xaxes(title_text="error left", rangemode="tozero")
    return figure


def _tick(method: MethodResult, label: str) -> str:
    held_out = method.residual and method.residual.held_out
    return label if held_out is None else f"{label}<br><b>{three(held_out)}</b>"


def _instead_of_bars(method: MethodResult) -> str | None:
    if method.not_defined:
        return "not defined here"
    if method.residual is None or method.residual.held_out is None:  # nothing was removed, or it changed nothing
        return "nothing to repair"
    return None
