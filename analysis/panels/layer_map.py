"""Which blocks go? The layer map with its number and text forms, all three always the same choice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.map_value import found_value, inclusive, map_value, read, removed_of
from analysis.names import choices
from analysis.palette import DIVERGING
from analysis.panels import parts
from analysis.record import Record
from analysis.scripts import literal, script, words_in
from analysis.settings import DEFAULT, DEFAULT_BLOCKS
from analysis.speech import say
from analysis.words import catalogue
from ghosted import criteria
from ghosted.errors import InputError
from ghosted.removed import RemovedBlocks

PART = "similarity"
BY_A_PERSON = (
    "(text, map) => [document.activeElement?.closest('#gl-remove') ? text : null, "
    "JSON.stringify({...JSON.parse(map), typed: Date.now()})]"
)
"""Keeps the text form's changes by the page itself from coming back, late, as if somebody had written them; and says
when each was written, for they can arrive in another order."""

TOLD = "(name, map) => JSON.stringify({{...JSON.parse(map), {0}}})"
"""Tells the map, in the browser alone, what another control says."""

VIEWS = ("similarity", "before", "left", "after")
"""The pictures, by their numbers' name."""

SCRIPTS = ("selection", "state", "picture", "marks", "criteria", "hands")
"""The files of ``assets/layer_map``, in the order in which they are joined to one script."""

DASHES = ("6 3", "1.5 2.5", "9 3 2 3", "3 3", "12 4")
"""How the outlines of the criteria's own choices are told apart, on the map and in their legend."""


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
    parts.heading("layer_map")
    svg = layer_map(map_value(DEFAULT_BLOCKS, removed, criterion=DEFAULT.criterion, count=DEFAULT.count))
    with gr.Row(elem_classes="gl-range"):
        first, last = (
            parts.worded(gr.Number, block, words={"label": f"layer_map.{end}", "placeholder": "layer_map.none"},
                         precision=0, minimum=0, min_width=90)
            for block, end in ((gap and gap.start, "first"), (gap and gap.stop - 1, "last"))
        )
        remove = parts.worded(gr.Textbox, str(removed), words={"label": "layer_map.text"}, max_lines=1, max_length=400,
                              placeholder="3,12-17", min_width=150, elem_id="gl-remove")
    return LayerMap(svg, first, last, remove, gr.HTML(elem_id="gl-range-problem"))


def layer_map(value: str) -> gr.HTML:
    """Return the map as a component: an SVG drawn by ``assets/layer_map/*.js``, with a ``pick`` event."""
    scale = [[at, *(int(colour[i : i + 2], 16) for i in (1, 3, 5))] for at, colour in DIVERGING]
    views = "".join(
        f"<button type='button' role='radio' aria-checked='{str(not at).lower()}' data-view='{name}' "
        f"tabindex='{-1 if at else 0}'>{words_in('span', f'map.{name}')}</button>"
        for at, name in enumerate(VIEWS)
    )
    template = (
        f"<div class='gl-map' data-scale='{json.dumps(scale)}' data-dashes='{json.dumps(DASHES)}'>"
        f"{words_in('div', '', 'gl-map-views', aria_label='map.views', role='radiogroup')}{views}</div>"
        "<svg class='gl-map-svg' viewBox='0 0 400 480' tabindex='0' role='slider' aria-orientation='horizontal' "
        "aria-valuemin='0' aria-keyshortcuts='ArrowLeft ArrowRight Shift+ArrowLeft Shift+ArrowRight Home End Plus "
        "Insert Delete Backspace [ ]' aria-describedby='gl-map-help'></svg>"
        "<p class='gl-map-legend' aria-hidden='true'><span></span><i></i><span></span></p>"
        "<div class='gl-map-line'><p class='gl-map-says' aria-live='polite'></p><span>"
        f"{words_in('button', '', 'gl-map-add', aria_label='map.add', title='map.add', type='button')}+</button>"
        f"{words_in('button', '', 'gl-map-drop', aria_label='map.drop', title='map.drop', type='button')}"
        "\u2212</button></span></div>"
        "<p class='gl-map-hover' id='gl-map-help' aria-live='off'></p>"
        f"{words_in('div', '', 'gl-map-criteria', aria_label='map.criteria', role='group')}{''.join(_chips(True))}"
        f"<details><summary class='gl-map-more'></summary><div>{''.join(_chips(False))}</div></details></div></div>"
    )
    joined = script(*(f"layer_map/{name}" for name in SCRIPTS), words=("map.", "criteria."))
    return gr.HTML(value, html_template=template, js_on_load=joined, elem_id="gl-map", apply_default_css=False)


def accepted(panel: LayerMap, forms: dict[Any, Any]) -> bool:
    """Return whether the forms' updates carry a choice, rather than only what is wrong with what was written."""
    return any(part is not panel.problem for part in forms)


def criterion_of(value: str) -> str:
    """Return who chose what the map shows: a criterion whose button was pressed, else ``manual``."""
    name = read(value).get("criterion", "manual")
    return name if isinstance(name, str) and name in criteria.criteria() else "manual"


def from_map(panel: LayerMap, value: str) -> dict[Any, Any]:
    """Write what was picked on the map into the numbers, which are the active gap's, and the text."""
    now = read(value)
    return _forms(panel, removed_of(now["gaps"]), now.get("active", 0)) | {panel.problem: ""}


def from_numbers(panel: LayerMap, first: float | None, last: float | None, value: str) -> dict[Any, Any]:
    """Write the two numbers into the map, as its active gap, and into the text."""
    if first is None or last is None:
        return {panel.problem: ""}
    now = read(value)
    if not (math.isfinite(first) and math.isfinite(last)):
        raise InputError(say("refused.block"))
    others = [gap for at, gap in enumerate(now["gaps"]) if at != now.get("active", 0)]
    text = ",".join([f"{first:.0f}-{last:.0f}", *(f"{a}-{b}" for a, b in others)])
    return _try(panel, text, now, lambda removed: {panel.remove: str(removed)}, int(first))


def from_text(panel: LayerMap, text: str, value: str, settled: bool = True) -> dict[Any, Any]:
    """Write the text form into the map and the numbers; what the map shows already changes nothing.

    Args:
        panel: the panel.
        text: what was written.
        value: what the map showed then.
        settled: whether it still does; not where an earlier answer may be on its way to it.
    """
    now = read(value)
    now.pop("typed", None)
    return _try(panel, text, now, lambda removed: _forms(panel, removed, text=False), settled=settled)


def typed_at(value: str) -> float:
    """Return when the text form was written, in milliseconds of the browser's clock; 0 where it does not say."""
    try:
        at = read(value).get("typed", 0)
    except InputError:  # whoever follows the text says what is wrong
        return 0
    return at if isinstance(at, (int, float)) and math.isfinite(at) else 0


def resize(panel: LayerMap, blocks: int, text: str) -> dict[Any, Any]:
    """Draw an empty map for another model; a choice that does not fit it is dropped."""
    try:
        removed = RemovedBlocks.parse(text, blocks)
    except InputError:
        removed = RemovedBlocks()
    return {panel.map: map_value(blocks, removed), panel.problem: ""} | _forms(panel, removed)


def show(panel: LayerMap, record: Record) -> dict[Any, Any]:
    """Show a run's similarities and its blocks; what was picked since it was started stands."""
    run = record.run
    return {panel.map: found_value(run), panel.problem: ""} | _forms(panel, run.removed)


def show_ranges(panel: LayerMap, record: Record) -> dict[Any, Any]:
    """Add the recoverability map to what is shown, and leave the choice alone."""
    return {panel.map: found_value(record.run, choice=False)}


def set_range(panel: LayerMap, removed: RemovedBlocks, record: Record | None) -> dict[Any, Any]:
    """Choose blocks in all three forms, on the numbers of ``record`` where they are of the same model."""
    if record is None:
        value = map_value(DEFAULT_BLOCKS, removed)
    else:
        run = record.run
        value = map_value(run.blocks, removed, run.similarity, ranges=run.ranges, choice=run.choice)
    return {panel.map: value, panel.problem: ""} | _forms(panel, removed)


ALSO = {"map": show_ranges}
"""What the panel shows of further parts of a run."""


def wire(panel: LayerMap, live: Any) -> None:
    """Wire the map, its forms, and what the other controls tell it."""
    side, handlers = live.layout.controls, live.forms
    forms = [panel.first, panel.last, panel.remove, panel.problem]
    panel.map.pick(handlers.from_map, [panel.map], [*forms, side.criterion], **parts.EACH)
    gr.on([panel.first.input, panel.last.input], handlers.from_numbers, [panel.first, panel.last, panel.map],
          [panel.map, panel.remove, panel.problem, side.criterion], **parts.LATEST)
    # Not its input event: gradio fires that for typed letters only, not for what is deleted or pasted.
    panel.remove.change(handlers.from_text, [panel.remove, panel.map],
                        [panel.map, panel.first, panel.last, panel.problem, side.criterion], js=BY_A_PERSON,
                        **parts.EACH)
    for control, key in ((side.criterion, "criterion"), (side.count, "count")):
        for event, tells in ((control.change, f"{key}: name"), (control.input, f"{key}: name, follow: true")):
            event(None, [control, panel.map], [panel.map], js=TOLD.format(tells), **parts.PRIVATE)
    side.run.click(None, [side.criterion, panel.map], [panel.map], js=TOLD.format("asked: true"), **parts.PRIVATE)


def _chips(at_hand: bool) -> Iterator[str]:
    """Yield a button for each criterion of the registry, with a legend where its own choice is outlined."""
    outlined = 0
    for label, name in choices("ghosted.criteria"):
        if name == "manual" or criteria.reads_similarity(name) != at_hand:
            continue
        legend, known = "", ""
        if at_hand:
            legend = f"<svg width='20' height='8' aria-hidden='true'><path d='M1 4H19' stroke-dasharray='" \
                     f"{DASHES[outlined % len(DASHES)]}'/></svg>"
            known = f" data-outline='{outlined}'"
            outlined += 1
        key = f"criteria.{name}"
        said = words_in("span", key) if key in catalogue() else literal(label)
        yield (f"<button type='button' class='gl-chip' aria-pressed='false' data-criterion='{literal(name)}'{known}>"
               f"{legend}{said}</button>")


def _try(
    panel: LayerMap, text: str, now: dict[str, Any], forms: Any, first: int | None = None, settled: bool = True
) -> dict[Any, Any]:
    try:
        removed = RemovedBlocks.parse(text, now["blocks"])
    except InputError as error:
        return {panel.problem: parts.problem(str(error))}
    if settled and inclusive(removed) == now["gaps"]:
        return {panel.problem: ""}
    active = next((at for at, gap in enumerate(removed.gaps) if first in gap), 0)
    changed = {"gaps": inclusive(removed), "active": active, "criterion": "manual"}
    return {panel.map: json.dumps(now | changed), panel.problem: ""} | forms(removed)


def _forms(panel: LayerMap, removed: RemovedBlocks, active: int = 0, text: bool = True) -> dict[Any, Any]:
    gap = removed.gaps[active] if active < len(removed.gaps) else None
    numbers = {panel.first: gap.start if gap else None, panel.last: gap.stop - 1 if gap else None}
    return numbers | ({panel.remove: str(removed)} if text else {})
