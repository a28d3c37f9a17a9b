"""What several panels share: a numbered heading, the line on how to read a picture, a plot with its empty state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr
import plotly.graph_objects as go
from gradio.components.plot import PlotData

LATEX = [{"left": "$", "right": "$", "display": False}]
CONFIG = {"displayModeBar": False, "displaylogo": False, "scrollZoom": False}


def heading(title: str, reading: str) -> gr.HTML:
    """Place a panel's heading and, under it, one line on how to read it."""
    return gr.HTML(f"<h2 class='gl-h'>{escape(title)}</h2><p class='gl-read'>{escape(reading)}</p>")


def formula(text: str) -> gr.Markdown:
    """Place a line of text with KaTeX between dollar signs."""
    return gr.Markdown(text, latex_delimiters=LATEX, elem_classes="gl-formula")


@dataclass(frozen=True)
class Picture:
    """A plot and what stands in its place until there is something to draw."""

    plot: gr.Plot
    empty: gr.HTML

    def draw(self, figure: go.Figure) -> dict[Any, Any]:
        """Return the updates that show a figure instead of the empty state."""
        return {self.plot: gr.Plot(value=drawn(figure), visible=True), self.empty: gr.HTML(visible=False)}


def invitation(said: str, height: int) -> str:
    """Return the empty state of a panel: what to click to see something here, in the space it will take."""
    return f"<div class='gl-empty' style='min-height:{height}px'>{escape(said)}</div>"


def picture(name: str, said: str, height: int) -> Picture:
    """Place a plot that is hidden until it is drawn, and an invitation of the same height."""
    empty = gr.HTML(invitation(said, height))
    plot = gr.Plot(show_label=False, visible=False, elem_id=f"gl-plot-{name}", elem_classes="gl-plot")
    return Picture(plot, empty)


def drawn(figure: go.Figure) -> PlotData:
    """Return a figure as the page's plot data, without plotly's mode bar."""
    plot = figure.to_json()
    return PlotData(type="plotly", plot=f'{plot[:-1]},"config":{json.dumps(CONFIG)}}}')
