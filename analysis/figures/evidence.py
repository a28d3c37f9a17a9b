"""Where did a model get worse, and how much text is enough? Loss along the text, and error against sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.figures.canvas import LINE, blank, short
from analysis.names import method_label
from analysis.palette import look
from analysis.speech import say
from ghosted.results.evidence import Evidence

BIN = 128
"""Tokens that share a point."""


def loss_lines(dense: Evidence, methods: Sequence[Evidence], text: str) -> go.Figure:
    """Draw how many nats more than the original each variant loses, along the scored tokens of one text."""
    figure = blank(max(340, 60 + 30 * len(methods)))
    base = binned(dense.texts[text].losses)
    for found in methods:
        if text not in found.texts or found.texts[text].losses is None:
            continue
        style, more = look(found.method), binned(found.texts[text].losses) - base
        figure.add_scatter(
            x=(np.arange(len(more)) * BIN + BIN / 2).tolist(), y=short(more), mode="lines",
            name=method_label(found.method), line={"color": style.colour, "dash": style.dash, "width": 2},
            hovertemplate=say("evidence.loss_hover", bin=BIN, at="%{x:,.0f}", more="%{y:.3g}")
            + "<extra>%{fullData.name}</extra>",
        )
    figure.add_hline(y=0, line={"color": LINE, "width": 1})
    figure.update_xaxes(title_text=say("evidence.loss_axis"))
    figure.update_yaxes(title_text=say("evidence.more_axis"))
    return figure


def binned(losses: np.ndarray) -> np.ndarray:
    """Return the mean of each ``BIN`` losses ``(T,)``; the last, shorter group stands alone."""
    values = losses.astype(np.float64)
    starts = np.arange(0, len(values), BIN)
    return np.add.reduceat(values, starts) / np.diff(np.r_[starts, len(values)])


def sequence_lines(sources: Sequence[Any]) -> go.Figure:
    """Draw the held-out error and its median against the number of calibration sequences; 1 is plain pruning."""
    figure = blank(max(340, 60 + 38 * len(sources)))
    ticks = sorted({size.sequences for source in sources for size in source.sizes})
    for source in sources:
        style, label = look(source.method), method_label(source.method)
        for value, said, dash in (("held_out", say("evidence.held_out"), style.dash),
                                  ("median", say("evidence.median"), "dot")):
            figure.add_scatter(
                x=[size.sequences for size in source.sizes], y=short([getattr(size, value) for size in source.sizes]),
                mode="lines+markers", name=f"{label}, {said}",
                line={"color": style.colour, "dash": dash, "width": 2}, marker={"symbol": style.symbol, "size": 6},
                hovertemplate=say("evidence.sequences_hover", count="%{x}", what=said, error="%{y:.3g}")
                + f"<extra>{label}</extra>",
            )
    figure.add_hline(y=1, line={"color": LINE, "dash": "dash", "width": 1.5})
    figure.update_xaxes(title_text=say("evidence.sequences_axis"), type="log", tickvals=ticks,
                        ticktext=[str(tick) for tick in ticks])
    figure.update_yaxes(title_text=say("evidence.error_axis"), rangemode="tozero")
    return figure
