"""Where is the error? By position in the window, by channel, and by how much text the operator was fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from analysis.figures.canvas import LINE, blank, short, spans_decades
from analysis.names import method_label
from analysis.palette import look
from analysis.speech import language, say
from ghosted.results import BoundaryProfile

MOST_GROUPS = 96
"""Groups of channels that are drawn."""


def position_lines(profile: BoundaryProfile) -> go.Figure:
    """Draw each method's median error over all held-out windows against the position in the window."""
    starts, stops = profile.starts, [*profile.starts[1:], profile.window]
    places = [say("tokens.position", first=a) if b - a == 1 else say("tokens.position_range", first=a, last=b - 1)
              for a, b in zip(starts, stops, strict=True)]
    middle = [(a + b - 1) / 2 for a, b in zip(starts.tolist(), stops, strict=True)]
    lines = {name: each.positions for name, each in profile.methods.items()}
    figure = _lines(lines, middle, places, "tokens.hover_median")
    figure.update_xaxes(title_text=say("tokens.position_axis"))
    return figure


def channel_lines(profile: BoundaryProfile) -> go.Figure:
    """Draw each method's error per channel, from the channel that the removed blocks change most to the least.

    The first channels stand alone; further on more and more of them share a point.
    """
    order, starts = channel_groups(profile.change)
    stops = [*starts[1:].tolist(), len(order)]
    places = [say("tokens.channel", channel=order[a], first=_ordinal(a + 1)) if b - a == 1
              else say("tokens.channel_range", first=_ordinal(a + 1), last=_ordinal(b))
              for a, b in zip(starts, stops, strict=True)]
    middle = [((a + 1) * b) ** 0.5 for a, b in zip(starts.tolist(), stops, strict=True)]
    lines = {name: grouped(each.channels, profile.change) for name, each in profile.methods.items()}
    figure = _lines(lines, short(middle), places, "tokens.hover")
    figure.update_xaxes(title_text=say("tokens.channel_axis"), type="log")
    return figure


def channel_groups(change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the channels by falling change ``(C,)``, and where each group of them starts, finest at the front."""
    edges = np.geomspace(1, len(change) + 1, min(MOST_GROUPS, len(change)) + 1).round().astype(int)
    return np.argsort(-change, kind="stable"), np.unique(edges[:-1]) - 1


def grouped(relative: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the error of each group of channels together: √Σ(x̂ − x_post)² / √ΣΔ² over their channels."""
    order, starts = channel_groups(change)
    weight = change.astype(np.float64)[order] ** 2
    left = np.add.reduceat(np.nan_to_num(relative.astype(np.float64)[order]) ** 2 * weight, starts)
    whole = np.add.reduceat(weight, starts)
    return np.sqrt(np.divide(left, whole, out=np.full(len(whole), np.nan), where=whole > 0))


def size_lines(profile: BoundaryProfile) -> go.Figure:
    """Draw the error on held-out tokens against the calibration tokens of the fit; the line at 1 is plain pruning."""
    figure = blank(320)
    ticks = sorted({point.tokens for points in profile.sizes.values() for point in points})
    for method, points in profile.sizes.items():
        style, label = look(method), method_label(method)
        for value, said, more in (
            ("held_out", say("tokens.held_out"), {"line": {"color": style.colour, "dash": style.dash, "width": 2}}),
            ("median", say("tokens.median_token"), {"line": {"color": style.colour, "dash": "dot", "width": 2},
                                        "marker": {"symbol": "diamond-open", "size": 8}}),
        ):
            figure.add_scatter(
                x=[point.tokens for point in points], y=short([getattr(point, value) for point in points]),
                mode="lines+markers", name=f"{label}, {said}",
                hovertemplate=say("tokens.size_hover", count="%{x:,}", what=said, error="%{y:.3g}")
                + f"<extra>{label}</extra>",
                **({"marker": {"symbol": style.symbol, "size": 7}} | more),
            )
    figure.add_hline(y=1, line={"color": LINE, "dash": "dash", "width": 1.5})
    title = say("tokens.size_axis") + " (1k = 1,024)" * any(_thousands(n).endswith("k") for n in ticks)
    figure.update_xaxes(title_text=title, type="log", tickmode="array", tickvals=ticks,
                        ticktext=[_thousands(n) for n in ticks])
    figure.update_yaxes(title_text=say("tokens.error_left"), rangemode="tozero")
    return figure


def _lines(values: Mapping[str, Sequence[float]], x: list[float], places: list[str], hover: str) -> go.Figure:
    figure = blank(max(320, 60 + 38 * len(values)))  # a legend gets half of it at most, one line per method
    for name, y in values.items():
        style = look(name)
        figure.add_scatter(
            x=x, y=short(y), customdata=places, mode="lines+markers", name=method_label(name),
            line={"color": style.colour, "dash": style.dash, "width": 2},
            marker={"symbol": style.symbol, "size": [0 if at % 8 else 8 if not at else 5 for at in range(len(x))]},
            hovertemplate=say(hover, place="%{customdata}", error="%{y:.3g}") + "<extra>%{fullData.name}</extra>",
        )
    figure.update_yaxes(title_text=say("tokens.error_left"), rangemode="tozero")
    if spans_decades([value for y in values.values() for value in y]):
        figure.update_yaxes(type="log", rangemode="normal")
    return figure


def _ordinal(n: int) -> str:
    if language() == "de":
        return f"{n}"
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def _thousands(n: int) -> str:
    return f"{n / 1024:g}k" if n >= 1024 and n % 1024 == 0 else f"{n:,}"
