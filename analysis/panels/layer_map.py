"""Which blocks go? The layer map with its number and text forms, all three always the same range."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from analysis.palette import DIVERGING
from analysis.panels import parts
from analysis.record import Record
from analysis.settings import DEFAULT, DEFAULT_BLOCKS
from ghosted.errors import InputError
from ghosted.removed import RemovedBlocks
from ghosted.results import Similarity

PART = "similarity"
READING = (
    "A cell is how alike two states are; removing blocks joins the two at the marked corner. Drag on the strip or pick "
    "a cell; arrow keys move the range, Shift extends it."
)
BY_A_PERSON = "(text, map) => [document.activeElement?.closest('#gl-remove') ? text : null, map]"
"""Keeps the text form's changes by the page itself from coming back, late, as if somebody had written them."""

ASSETS = Path(__file__).parents[2] / "assets"


@dataclass(frozen=True)
class LayerMap:
    """The panel's components: the map itself, its numbers, its text form, and the line for what cannot be read."""

    map: gr.HTML
    first: gr.Number
    last: gr.Number
    remove: gr.Textbox
    problem: gr.HTML


def build() -> LayerMap:
    """Place the panel."""
    removed = RemovedBlocks.parse(DEFAULT.remove)
    gap = removed.gaps[0] if removed.gaps else None
    parts.heading("Which blocks go?", READING)
    svg = layer_map(map_value(DEFAULT_BLOCKS, removed))
    with gr.Row(elem_classes="gl-range"):
        first, last = (
            gr.Number(block, label=label, precision=0, minimum=0, min_width=90, placeholder="none")
            for block, label in ((gap and gap.start, "First block"), (gap and gap.stop - 1, "Last block"))
        )
        remove = gr.Textbox(str(removed), label="Or as text", max_lines=1, max_length=400, placeholder="3,12-17",
                            min_width=150, elem_id="gl-remove")
    return LayerMap(svg, first, last, remove, gr.HTML(elem_id="gl-range-problem"))


def layer_map(value: str) -> gr.HTML:
    """Return the map as a component: an SVG drawn by ``assets/layer_map.js``, with a ``pick`` event."""
    scale = [[at, *(int(colour[i : i + 2], 16) for i in (1, 3, 5))] for at, colour in DIVERGING]
    template = (
        f"<div class='gl-map' data-scale='{json.dumps(scale)}'>"
        "<svg viewBox='0 0 400 424' tabindex='0' role='slider' aria-orientation='horizontal' aria-valuemin='0'></svg>"
        "<p class='gl-map-says'></p><p class='gl-map-hover' aria-hidden='true'></p></div>"
    )
    return gr.HTML(value, html_template=template, js_on_load=(ASSETS / "layer_map.js").read_text("utf-8"),
                   elem_id="gl-map", apply_default_css=False)


def map_value(blocks: int, removed: RemovedBlocks, similarity: Similarity | None = None) -> str:
    """Return what the map shows as JSON; the ``(L+1, L+1)`` cosine goes as base64 of 16-bit integers."""
    cosine = None
    if similarity is not None:
        scaled = np.round(np.nan_to_num(similarity.cosine) * 10_000).astype("<i2")
        cosine = base64.b64encode(scaled.tobytes()).decode()
    return json.dumps({"blocks": blocks, "gaps": _inclusive(removed), "cosine": cosine})


def accepted(panel: LayerMap, forms: dict[Any, Any]) -> bool:
    """Return whether the forms' updates carry a range, rather than only what is wrong with what was written."""
    return any(part is not panel.problem for part in forms)


def from_map(panel: LayerMap, value: str) -> dict[Any, Any]:
    """Write a range picked on the map into the numbers and the text."""
    gaps = json.loads(value)["gaps"]
    removed = RemovedBlocks.of(block for first, last in gaps for block in range(first, last + 1))
    return _forms(panel, removed) | {panel.problem: ""}


def from_numbers(panel: LayerMap, first: float | None, last: float | None, value: str) -> dict[Any, Any]:
    """Write the two numbers into the map and the text."""
    if first is None or last is None:
        return {panel.problem: ""}
    text = f"{first:.0f}-{last:.0f}"
    return _try(panel, text, value, lambda removed: {panel.remove: str(removed)})


def from_text(panel: LayerMap, text: str | None, value: str) -> dict[Any, Any]:
    """Write the text form into the map and the numbers; ``None``, or what the map shows already, changes nothing."""
    if text is None:
        return {panel.problem: gr.skip()}
    return _try(panel, text, value, lambda removed: _forms(panel, removed, text=False))


def resize(panel: LayerMap, blocks: int, text: str) -> dict[Any, Any]:
    """Draw an empty map for another model; a range that does not fit it is dropped."""
    try:
        removed = RemovedBlocks.parse(text, blocks)
    except InputError:
        removed = RemovedBlocks()
    return {panel.map: map_value(blocks, removed), panel.problem: ""} | _forms(panel, removed)


def show(panel: LayerMap, record: Record) -> dict[Any, Any]:
    """Show the similarities and, where a criterion chose, its blocks."""
    run = record.run
    shown = {panel.map: map_value(run.blocks, run.removed, run.similarity)}
    return shown | (_forms(panel, run.removed) | {panel.problem: ""} if run.choice is not None else {})


def set_range(panel: LayerMap, removed: RemovedBlocks, record: Record | None) -> dict[Any, Any]:
    """Choose blocks in all three forms, on the similarities of ``record`` where they are of the same model."""
    run = record.run if record is not None else None
    blocks = run.blocks if run else DEFAULT_BLOCKS
    value = map_value(blocks, removed, run and run.similarity)
    return {panel.map: value, panel.problem: ""} | _forms(panel, removed)


def _try(panel: LayerMap, text: str, value: str, forms: Any) -> dict[Any, Any]:
    now = json.loads(value)
    try:
        removed = RemovedBlocks.parse(text, now["blocks"])
    except InputError as error:
        return {panel.problem: f"<p class='gl-problem' role='alert'>{escape(str(error))}</p>"}
    if _inclusive(removed) == now["gaps"]:
        return {panel.problem: ""}
    return {panel.map: json.dumps(now | {"gaps": _inclusive(removed)}), panel.problem: ""} | forms(removed)


def _forms(panel: LayerMap, removed: RemovedBlocks, text: bool = True) -> dict[Any, Any]:
    gap = removed.gaps[0] if removed.gaps else None
    numbers = {panel.first: gap.start if gap else None, panel.last: gap.stop - 1 if gap else None}
    return numbers | ({panel.remove: str(removed)} if text else {})


def _inclusive(removed: RemovedBlocks) -> list[list[int]]:
    return [[gap.start, gap.stop - 1] for gap in removed.gaps]
