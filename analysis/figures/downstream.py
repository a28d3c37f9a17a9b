"""Does the error grow or fade on its way to the final norm? One line per method: relative error, and cosine."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis.figures.canvas import blank, short, spans_decades
from analysis.names import method_label
from analysis.palette import look
from analysis.speech import say
from ghosted.results import MethodResult


def downstream_lines(methods: Sequence[MethodResult]) -> go.Figure:
    """Draw the relative error of every surviving state after the gap, in each method's colour and line style."""
    figure = _lines(methods, "error")
    figure.update_yaxes(title_text=say("downstream.error_axis"), rangemode="tozero")
    if spans_decades([d.error for method in methods for d in method.downstream]):
        figure.update_yaxes(type="log", dtick="D2", rangemode="normal")
    return figure


def downstream_cosine(methods: Sequence[MethodResult]) -> go.Figure:
    """Draw the mean cosine per token between every surviving state after the gap and the original's; 1 is unharmed."""
    figure = _lines(methods, "cosine")
    figure.update_yaxes(title_text=say("downstream.cosine_axis"))
    return figure


def _lines(methods: Sequence[MethodResult], value: str) -> go.Figure:
    measured = [method for method in methods if method.downstream]
    figure = blank(max(320, 60 + 38 * len(measured)))  # a legend gets half of it at most, one line per method
    for method in measured:
        style = look(method.method)
        figure.add_scatter(
            x=[d.state for d in method.downstream], y=short([getattr(d, value) for d in method.downstream]),
            customdata=[[*short([d.error, d.cosine])] for d in method.downstream], mode="lines+markers",
            name=method_label(method.method), line={"color": style.colour, "dash": style.dash, "width": 2},
            marker={"symbol": style.symbol, "size": 6},
            hovertemplate=say("downstream.hover", state="%{x}", error="%{customdata[0]:.3g}",
                              cosine="%{customdata[1]:.3g}") + "<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title_text=say("downstream.state"))
    return figure
