"""What several panels share: a numbered heading, the line on how to read a picture, a plot with its empty state."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import gradio as gr
import plotly.graph_objects as go
from gradio.components.plot import PlotData

LATEX = [{"left": "$", "right": "$", "display": False}]
UNSEEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
"""Options of a listener that is no public endpoint and whose progress the page tells itself. Without the empty list
gradio tells every output of every listener, of each step of any of them, and copies all figures."""
PRIVATE = UNSEEN | {"queue": False}
"""Options of a listener that answers at once and is no public endpoint."""
WATCHING = UNSEEN | {"concurrency_limit": None}
"""Options of a listener that follows a job: many may wait at once."""
CONFIG = {"displayModeBar": False, "displaylogo": False, "scrollZoom": False}


def heading(title: str, reading: str) -> gr.HTML:
    """Place a panel's heading and, under it, one line on how to read it."""
    return gr.HTML(f"<h2 class='gl-h'>{escape(title)}</h2><p class='gl-read'>{escape(reading)}</p>")


def formula(text: str) -> gr.Markdown:
    """Place a line of text with KaTeX between dollar signs."""
    return gr.Markdown(text, latex_delimiters=LATEX, elem_classes="gl-formula")


def invitation(said: str, height: int) -> str:
    """Return the empty state of a panel: what to click to see something here, in the space it will take."""
    return f"<div class='gl-empty' style='min-height:{height}px'>{escape(said)}</div>"


def problem(said: str) -> str:
    """Return a sentence on what is wrong, as an alert beside the thing."""
    return f"<p class='gl-problem' role='alert'>{escape(said)}</p>"


def snippet(name: str, text: str) -> str:
    """Return code with its name and a button that copies it (``share.js``).

    Gradio's own code editor would weigh more than the rest of the page.
    """
    return (
        f"<section class='gl-code'><header><h3 class='gl-caption'>{name}</h3>"
        f"<button type='button' class='gl-copy-code' aria-label='Copy {name}'>Copy</button>"
        f"<span class='gl-copied' role='status'></span></header>"
        f"<pre tabindex='0' aria-label='{name}'>{escape(text)}</pre></section>"
    )


def picture(name: str, said: str, height: int) -> gr.Plot:
    """Place a plot, and an invitation of the same height until it is drawn.

    The style sheet swaps the two, so that an update carries nothing but the figure.
    """
    gr.HTML(invitation(said, height), elem_classes="gl-until-drawn")
    return gr.Plot(show_label=False, elem_id=f"gl-plot-{name}", elem_classes="gl-plot")


def captioned(name: str, caption: str, said: str, height: int, width: int = 200) -> gr.Plot:
    """Place a plot under its caption, in a column of its own at least ``width`` pixels wide."""
    with gr.Column(min_width=width):
        gr.HTML(f"<h3 class='gl-caption'>{caption}</h3>")
        return picture(name, said, height)


def drawn(figure: go.Figure) -> PlotData:
    """Return a figure as the page's plot data, without plotly's mode bar."""
    plot = figure.to_json()
    return PlotData(type="plotly", plot=f'{plot[:-1]},"config":{json.dumps(CONFIG)}}}')
