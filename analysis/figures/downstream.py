"""Does the error grow or fade on its way to the final norm? One line per method."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis.figures.canvas import blank, short
from analysis.names import method_label
from analysis.palette import look
from ghosted.results import MethodResult


def downstream_lines(methods: Sequence[MethodResult]) -> go.Figure:
    """Draw the relative error of every surviving state after the gap, in each method's colour and line style."""
    measured = [method for method in methods if method.downstream]
    figure = blank(max(320, 60 + 38 * len(measured)))  # a legend gets half of it at most, one line per method
    for method in measured:
        style = look(method.method)
        figure.add_scatter(
            x=[d.state for d in method.downstream], y=short([d.error for d in method.downstream]),
            customdata=short([d.cosine for d in method.downstream]), mode="lines+markers",
            name=method_label(method.method), line={"color": style.colour, "dash": style.dash, "width": 2},
            marker={"symbol": style.symbol, "size": 6},
            hovertemplate="state %{x}<br>error %{y:.3g}, cosine %{customdata:.3g}<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title_text="state")
    figure.update_yaxes(title_text="relative error", rangemode="tozero")
    return figure
