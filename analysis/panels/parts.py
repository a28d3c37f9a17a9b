"""What several panels share: a numbered heading, the line on how to read a picture, a plot with its empty state."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import gradio as gr
import plotly.graph_objects as go
from gradio.components.plot import PlotData

from analysis.speech import say

LATEX = [{"left": "$", "right": "$", "display": False}]
UNSEEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
"""Options of a listener that is no public endpoint and whose progress the page tells itself. Without the empty list
gradio tells every output of every listener, of each step of any of them, and copies all figures."""
PRIVATE = UNSEEN | {"queue": False}
"""Options of a listener that answers at once and is no public endpoint."""
EACH = PRIVATE | {"trigger_mode": "multiple"}
"""Not ``always_last`` where an event has several listeners: gradio sends what was put off out as the whole event again,
and they never come to rest."""
LATEST = PRIVATE | {"trigger_mode": "always_last"}
WATCHING = UNSEEN | {"concurrency_limit": None}
"""Options of a listener that follows a job: many may wait at once."""
CONFIG = {"displayModeBar": False, "displaylogo": False, "scrollZoom": False}


def worded(make: Callable[..., Any], *values: Any, words: dict[str, str | Callable[[], Any]], **options: Any) -> Any:
    """Place a component some of whose properties are words; it keeps how to say them in another language.

    Args:
        make: the component's class.
        values: its positional arguments.
        words: by property, a key of the catalogue or what returns the property.
        options: its other arguments.
    """
    says = {name: text if callable(text) else partial(say, text) for name, text in words.items()}
    component = make(*values, **{name: text() for name, text in says.items()}, **options)
    component.worded = says
    return component


def reworded(component: Any) -> dict[str, Any]:
    """Return the update that says a component's words as is spoken here."""
    return {"__type__": "update", **{name: text() for name, text in component.worded.items()}}


def joined(said: dict[Any, Any], shown: dict[Any, Any]) -> dict[Any, Any]:
    """Return updates of words and of what is shown as one; a component that both change keeps its words."""
    both = {component: {"__type__": "update", **value.constructor_args, **said[component]}
            for component, value in shown.items() if component in said and isinstance(value, gr.blocks.Block)}
    return said | shown | both


def heading(name: str) -> gr.HTML:
    """Place a panel's heading and, under it, one line on how to read it: ``name.title`` and ``name.reading``."""
    def said() -> str:
        title, reading = escape(say(f"{name}.title")), escape(say(f"{name}.reading"))
        return f"<h2 class='gl-h'>{title}</h2><p class='gl-read'>{reading}</p>"

    return worded(gr.HTML, words={"value": said})


def caption(key: str) -> gr.HTML:
    """Place the heading of a picture or of a part of a panel."""
    return worded(gr.HTML, words={"value": lambda: f"<h3 class='gl-caption'>{say(key)}</h3>"})


def formula(text: str | Callable[[], str]) -> gr.Markdown:
    """Place a line of text, by its key, with KaTeX between dollar signs."""
    return worded(gr.Markdown, words={"value": text}, latex_delimiters=LATEX, elem_classes="gl-formula")


def invitation(said: str, height: int) -> str:
    """Return the empty state of a panel: what to click to see something here, in the space it will take."""
    return f"<div class='gl-empty' style='min-height:{height}px'>{escape(said)}</div>"


def invited(key: str, height: int, **options: Any) -> gr.HTML:
    """Place HTML that starts with the empty state of a panel."""
    return worded(gr.HTML, words={"value": lambda: invitation(say(key), height)}, **options)


def problem(said: str) -> str:
    """Return a sentence on what is wrong, as an alert beside the thing."""
    return f"<p class='gl-problem' role='alert'>{escape(said)}</p>"


def snippet(name: str, text: str) -> str:
    """Return code with its name and a button that copies it (``share.js``).

    Gradio's own code editor would weigh more than the rest of the page.
    """
    return (
        f"<section class='gl-code'><header><h3 class='gl-caption'>{name}</h3>"
        f"<button type='button' class='gl-copy-code' aria-label='{say('page.copy_what', name=name)}'>"
        f"{say('page.copy')}</button>"
        f"<span class='gl-copied' role='status'></span></header>"
        f"<pre tabindex='0' aria-label='{name}'>{escape(text)}</pre></section>"
    )


def picture(name: str, key: str, height: int) -> gr.Plot:
    """Place a plot, and an invitation of the same height until it is drawn.

    The style sheet swaps the two, so that an update carries nothing but the figure.
    """
    invited(key, height, elem_classes="gl-until-drawn")
    return gr.Plot(show_label=False, elem_id=f"gl-plot-{name}", elem_classes="gl-plot")


def captioned(name: str, key: str, invitation_key: str, height: int, width: int = 200) -> gr.Plot:
    """Place a plot under its caption, in a column of its own at least ``width`` pixels wide."""
    with gr.Column(min_width=width):
        caption(key)
        return picture(name, invitation_key, height)


def drawn(figure: go.Figure) -> PlotData:
    """Return a figure as the page's plot data, without plotly's mode bar."""
    plot = figure.to_json()
    return PlotData(type="plotly", plot=f'{plot[:-1]},"config":{json.dumps(CONFIG)}}}')
