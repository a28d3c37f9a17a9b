"""What is not seen: which panels are stale, and whether there is a run to come back to.

The component's script (``assets/bus.js``) marks the panels and asks for the run.
"""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr

ASSETS = Path(__file__).parents[2] / "assets"


def build() -> gr.HTML:
    """Place the component; its event ``resume`` fires once where there is a run to come back to."""
    return gr.HTML(value({}), html_template="<span hidden></span>", js_on_load=(ASSETS / "bus.js").read_text("utf-8"),
                   elem_id="gl-bus", apply_default_css=False)


def value(stale: dict[str, str], resume: bool = False) -> str:
    """Return what the script reads: the reason by panel (``all`` for every one), and whether to come back to a run."""
    return json.dumps({"stale": stale, "resume": resume})
