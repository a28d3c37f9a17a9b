"""How does W stretch and turn? The spectra of W, of its symmetric and antisymmetric part, and of M."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from analysis.figures.canvas import LINE, blank, short
from analysis.figures.operator import Portrait
from analysis.palette import ORANGE, TEAL, VIOLET


def eigenvalue_plane(picture: Portrait) -> go.Figure:
    """Draw the eigenvalues of W in the complex plane, with the unit circle; doing nothing is the point 1."""
    figure = blank(300)
    turn = np.linspace(0, 2 * np.pi, 91)
    figure.add_scatter(x=short(np.cos(turn)), y=short(np.sin(turn)), mode="lines", hoverinfo="skip",
                       line={"color": LINE, "width": 1, "dash": "dot"}, showlegend=False)
    figure.add_scatter(
        x=short(picture.eigenvalues.real), y=short(picture.eigenvalues.imag), mode="markers", showlegend=False,
        marker={"color": VIOLET, "size": 4, "opacity": 0.6}, hovertemplate="%{x:.3g} + %{y:.3g} i<extra></extra>",
    )
    figure.update_xaxes(title_text="real part")
    figure.update_yaxes(title_text="imaginary part", scaleanchor="x")
    return figure


def symmetric_line(picture: Portrait) -> go.Figure:
    """Draw how the eigenvalues of S spread over the line: a histogram, with doing nothing at 1."""
    counts, edges = np.histogram(picture.symmetric, bins=60)
    figure = blank(300, bargap=0)
    figure.add_bar(
        x=short((edges[:-1] + edges[1:]) / 2), y=counts.tolist(), width=float(edges[1] - edges[0]),
        marker={"color": TEAL}, showlegend=False, hovertemplate="about %{x:.3g}<br>%{y} eigenvalues<extra></extra>",
    )
    figure.add_vline(x=1, line={"color": LINE, "dash": "dash", "width": 1.5})
    figure.update_xaxes(title_text="eigenvalue of S (stretch)")
    figure.update_yaxes(title_text="how many")
    return figure


def rotation_rates(picture: Portrait) -> go.Figure:
    """Draw the rotation rates θ of A's pairs, largest first."""
    return _falling(picture.rotations, ORANGE, "pair", "θ (rotation rate)", log=False)


def singular_values(picture: Portrait) -> go.Figure:
    """Draw the singular values of M, largest first: how many directions the repair really needs."""
    return _falling(picture.singular, VIOLET, "direction", "singular value of M", log=True)


def _falling(values: np.ndarray, colour: str, rank: str, quantity: str, log: bool) -> go.Figure:
    figure = blank(300)
    figure.add_scatter(
        x=np.arange(1, len(values) + 1).tolist(), y=short(values), mode="lines", showlegend=False,
        line={"color": colour, "width": 2}, hovertemplate=f"{rank} %{{x}}<br>%{{y:.3g}}<extra></extra>",
    )
    positive = len(values) > 0 and float(np.min(values)) > 0
    figure.update_xaxes(title_text=rank)
    figure.update_yaxes(title_text=quantity, type="log" if log and positive else "linear")
    return figure
