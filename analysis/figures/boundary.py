"""What is left at the boundary? The ladder of operators: one pair of bars per method, the typical token as a marker."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis.figures.canvas import LINE, blank
from analysis.names import method_label
from analysis.numbers import three
from analysis.palette import look
from analysis.speech import say
from ghosted.results import MethodResult

LADDER = {
    "none": "", "scalar": "1", "diagonal": "C", "linearpatch-diag": "C", "linearpatch": "C", "low-rank": "2rC",
    "procrustes": "C²/2", "symmetric": "C²/2", "ghosted": "C²", "ghosted-weighted": "C²",
}
"""Repairs that are linear in the state, from the least free to the freest: how many numbers each may choose."""
BEYOND = {"replaceme": "C²", "replaceme-cosine": "C²", "normalised": "C²", "best": "C² + CF"}
"""Repairs that read more than the state; F is the width of the feed-forward branch."""
WIDEST = 1.6
"""The axis stops about here: one method that leaves three times the error would press all others together."""


def laddered(methods: Sequence[MethodResult]) -> tuple[list[MethodResult], int]:
    """Return the methods from the least free to the freest, and how many of them are linear in the state.

    A method without a rung of its own stands behind all others.
    """
    rungs = [*LADDER, *BEYOND]
    ordered = sorted(methods, key=lambda m: rungs.index(m.method) if m.method in rungs else len(rungs))
    return ordered, sum(m.method in LADDER for m in ordered)


def boundary_bars(methods: Sequence[MethodResult]) -> go.Figure:
    """Draw the residual boundary error of each method: held-out (solid), calibration (hatched), median (diamond).

    The line at 1 is plain pruning; a bar beyond it is worse than no repair. The dotted line divides the repairs that
    are linear in the state from those that read more.
    """
    methods, linear = laddered(methods)
    labels = [method_label(m.method) for m in methods]
    ticks = [_tick(m, label) for m, label in zip(methods, labels, strict=True)]
    colours = [look(m.method).colour for m in methods]
    parts = {
        part: [m.residual and getattr(m.residual, part) for m in methods]
        for part in ("calibration", "held_out", "median")
    }
    edge, cut = _edge([value for values in parts.values() for value in values if value is not None])
    # What solid, hatched and diamond mean stands above the figure: a legend would take a third of its height.
    figure = blank(max(220, 56 + 34 * len(methods)), barmode="group", bargap=0.26, bargroupgap=0.08, showlegend=False)
    figure.add_bar(
        orientation="h", y=labels, x=parts["held_out"], name=say("boundary.held_out"), legendrank=1,
        marker={"color": colours},
        hovertemplate=f"%{{y}}<br>{say('boundary.held_out')} %{{x:.3g}}<extra></extra>",
    )
    figure.add_bar(
        orientation="h", y=labels, x=parts["calibration"], name=say("boundary.calibration"), legendrank=2,
        marker={"color": "rgba(0,0,0,0)", "line": {"color": colours, "width": 1.5},
                "pattern": {"shape": "/", "fgcolor": colours, "size": 6, "solidity": 0.35}},
        hovertemplate=f"%{{y}}<br>{say('boundary.calibration')} %{{x:.3g}}<extra></extra>",
    )
    figure.add_scatter(
        y=labels, x=parts["median"], mode="markers", name=say("boundary.median"), legendrank=3,
        marker={"symbol": "diamond", "size": 11, "color": "#ffffff", "line": {"color": "#3a3a3a", "width": 1.8}},
        hovertemplate=f"%{{y}}<br>{say('boundary.median')} %{{x:.3g}}<extra></extra>",
    )
    if cut:
        _mark_cut(figure, edge, [(label, m.residual) for label, m in zip(labels, methods, strict=True) if m.residual])
    figure.add_vline(x=1, line={"color": LINE, "dash": "dash", "width": 1.5})
    if 0 < linear < len(methods):
        figure.add_shape(type="line", xref="paper", x0=0, x1=1, y0=linear - 0.5, y1=linear - 0.5,
                         line={"color": LINE, "dash": "dot", "width": 1.5})
    for method, label in zip(methods, labels, strict=True):
        if (said := _instead_of_bars(method)) is not None:
            figure.add_annotation(x=0, y=label, text=said, showarrow=False, xanchor="left", xshift=6)
    figure.update_yaxes(autorange="reversed", showgrid=False, tickmode="array", tickvals=labels, ticktext=ticks)
    figure.update_xaxes(title_text=say("boundary.error_left"), range=[0, edge], fixedrange=True)
    return figure


def _edge(values: Sequence[float]) -> tuple[float, bool]:
    """Return where the axis stops, and whether something lies beyond."""
    near = max((value for value in values if value <= WIDEST), default=1.0)
    cut = any(value > WIDEST for value in values)
    return (max(1.25, near * 1.1) if cut else max(1.05, near * 1.05)), cut


def _mark_cut(figure: go.Figure, edge: float, left: Sequence[tuple[str, object]]) -> None:
    beyond = [(label, r) for label, r in left if max(r.calibration or 0, r.held_out or 0, r.median or 0) > edge]
    figure.add_scatter(
        y=[label for label, _ in beyond], x=[edge * 0.988] * len(beyond), mode="markers", name=say("boundary.beyond"),
        cliponaxis=False, showlegend=False,
        marker={"symbol": "triangle-right", "size": 12, "color": "#ffffff", "line": {"color": "#3a3a3a", "width": 1.8}},
        customdata=[[three(r.held_out), three(r.calibration), three(r.median)] for _, r in beyond],
        hovertemplate=f"%{{y}}, {say('boundary.beyond')}<br>{say('boundary.held_out')} %{{customdata[0]}}, "
                      f"{say('boundary.calibration')} %{{customdata[1]}}, "
                      f"{say('boundary.median')} %{{customdata[2]}}<extra></extra>",
    )


def _tick(method: MethodResult, label: str) -> str:
    free = LADDER.get(method.method) or BEYOND.get(method.method)
    name = f"{label} · {free}" if free else label
    left = method.residual
    if left is None or left.held_out is None:
        return name
    return f"{name}<br><b>{three(left.held_out)}</b> | {three(left.calibration)} | {three(left.median)}"


def _instead_of_bars(method: MethodResult) -> str | None:
    if method.not_defined:
        return say("boundary.undefined")
    if method.residual is not None and method.residual.held_out is not None:
        return None
    if method.note and not method.gaps:
        return say("boundary.waits")
    several = method.residual is None and len(method.gaps) > 1
    return say("boundary.after_all" if several else "boundary.nothing")  # nothing was removed, or it changed nothing
