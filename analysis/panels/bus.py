"""What is not seen: which panels show the past, where it came from, and whether there is a run to come back to.

The component's script (``assets/bus.js``) marks the panels and asks for the run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import gradio as gr

from analysis.scripts import script
from analysis.speech import language


def build(source: str = "") -> gr.HTML:
    """Place the component.

    ``resume`` fires where a run is to be come back to, ``near`` when panels come into sight, ``language`` where the
    page speaks another language than it did.
    """
    return gr.HTML(value({}, source=source, opening=True), html_template="<span hidden></span>", elem_id="gl-bus",
                   js_on_load=script("bus", words="bus."), apply_default_css=False)


def value(
    stale: dict[str, str], source: str = "live", preview: Collection[str] = (), resume: bool = False,
    drawn: Mapping[str, int] | None = None, opening: bool = False,
) -> str:
    """Return what the script reads.

    Args:
        stale: the reason by panel; ``all`` stands for every one.
        source: of the record that is shown, see :data:`analysis.record.SOURCES`.
        preview: the panels that show another range from states at hand.
        resume: whether to come back to a run.
        drawn: a number by panel; where it has changed, the script asks for the panel's pictures once it is near.
        opening: whether the answer that fills the controls is still to come; until then they take no input, for it
            would overwrite what somebody types.
    """
    return json.dumps({"stale": stale, "source": source, "preview": list(preview), "resume": resume,
                       "drawn": dict(drawn or {}), "opening": opening, "language": language()})
