"""What is W* made of? Its parts as heat maps to zoom into, their shares and spectra, and what LinearPatch can reach."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.figures import spectra
from analysis.figures.operator import CROP, HEIGHT, PARTS, Portrait, Region, operator_maps, pick, region
from analysis.matrices import MATRICES
from analysis.names import blocks_label, method_label
from analysis.numbers import percent, three
from analysis.panels import parts
from analysis.scripts import script
from analysis.shares import families, shares
from analysis.speech import say
from analysis.words import said
from ghosted.errors import InputError
from ghosted.results import Run

NAME, PART = "decomposition", "decomposition"
FORMULA = (
    "$W^* = I + M^* = S + A$, $S = (W^* + W^{*\\top})/2$, $A = (W^* - W^{*\\top})/2$, "
    "$\\|W^*\\|^2 = \\|S\\|^2 + \\|A\\|^2$."
)
PATCHED = "$W = Q\\,\\mathrm{diag}(d)\\,Q^\\top$"
SPECTRA = {
    "plane": spectra.eigenvalue_plane, "line": spectra.symmetric_line, "rotations": spectra.rotation_rates,
    "singular": spectra.singular_values,
}
SIDES = ("row_first", "row_last", "column_first", "column_last")
CHANNELS = tuple(said(f"operator.{side}", "en") for side in SIDES)
"""The fields of the part that is shown, by what they are called in English."""
HERO, PATCH = "ghosted", "linearpatch"


@dataclass(frozen=True)
class DecompositionPanel:
    """The panel's components; ``maps`` by the names of ``PARTS``, ``spectra`` by those of ``SPECTRA``.

    ``channels`` are the four numbers of the part that is shown, ``box`` what was drawn on a map with the mouse.
    """

    method: gr.Radio
    gap: gr.Radio
    formula: gr.Markdown
    shares: gr.HTML
    families: gr.HTML
    maps: dict[str, gr.Plot]
    said: gr.HTML
    channels: dict[str, gr.Number]
    zoom: gr.Button
    whole: gr.Button
    box: gr.HTML
    spectra: dict[str, gr.Plot]
    reach: gr.Markdown


def build() -> DecompositionPanel:
    """Place the panel."""
    parts.heading("operator")
    with gr.Row(elem_classes="gl-operators"):
        method = parts.worded(gr.Radio, [], words={"label": "operator.method"}, visible=False, elem_id="gl-operator")
        gap = parts.worded(gr.Radio, [], words={"label": "operator.gap"}, visible=False, elem_id="gl-operator-gap")
    formula = parts.formula(lambda: FORMULA)
    with gr.Row(elem_classes="gl-shared", equal_height=False):
        shared, held = (gr.HTML(elem_id=f"gl-{name}", min_width=300) for name in ("shares", "families"))
    with gr.Row(elem_classes="gl-quad"):
        maps = {name: parts.captioned(f"operator-{name}", f"operator.{name}", "operator.invitation", HEIGHT)
                for name in PARTS}
    said = gr.HTML(elem_id="gl-zoom-said")
    with gr.Row(elem_classes="gl-zoom", equal_height=False):
        channels = {label: parts.worded(gr.Number, words={"label": f"operator.{side}"}, precision=0, minimum=0,
                                        min_width=128) for label, side in zip(CHANNELS, SIDES, strict=True)}
        options = {"size": "sm", "scale": 0}
        zoom = parts.worded(gr.Button, words={"value": "operator.zoom"}, min_width=96, elem_id="gl-zoom", **options)
        whole = parts.worded(gr.Button, words={"value": "operator.whole"}, min_width=130, elem_id="gl-zoom-whole",
                             **options)
        box = gr.HTML("", html_template="<span></span>", js_on_load=script("operator_zoom"), elem_classes="gl-box")
    with gr.Row(elem_classes="gl-quad"):
        spectra_ = {name: parts.captioned(f"spectrum-{name}", f"operator.{name}", "operator.invitation", spectra.HEIGHT)
                    for name in SPECTRA}
    reach = parts.formula(reached)
    return DecompositionPanel(
        method, gap, formula, shared, held, maps, said, channels, zoom, whole, box, spectra_, reach,
    )


def wire(panel: DecompositionPanel, live: Any) -> None:
    """Let another operator, the zoom's fields and a box drawn on a map change what is shown."""
    outputs = [panel.formula, panel.shares, panel.families, panel.reach, panel.said, *panel.maps.values(),
               *panel.spectra.values(), *panel.channels.values()]
    asked = [panel.method, panel.gap, *panel.channels.values()]

    def noted(request: gr.Request, method: str, gap: str, channels: Sequence[Any] | None) -> Any:
        """Note what has been picked, for pictures still to be drawn of this record; and return the record."""
        live.sessions.of(request.session_hash).picked[NAME] = (method, gap, channels or [None] * len(CHANNELS))
        return live.shown_by(NAME, request.session_hash)

    def other(request: gr.Request, method: str, gap: str, *channels: float | None) -> dict[Any, Any]:
        return redraw(panel, noted(request, method, gap, channels), method, gap, channels)

    def zoom(request: gr.Request, method: str, gap: str, *channels: float | None) -> dict[Any, Any]:
        return rezoom(panel, noted(request, method, gap, channels), method, gap, channels)

    def whole(request: gr.Request, method: str, gap: str) -> dict[Any, Any]:
        return rezoom(panel, noted(request, method, gap, None), method, gap, None)

    def box(request: gr.Request, method: str, gap: str, drawn: str) -> dict[Any, Any]:
        channels = from_box(drawn)
        return rezoom(panel, noted(request, method, gap, channels), method, gap, channels)

    gr.on([panel.method.input, panel.gap.input], other, asked, outputs, **parts.LATEST)
    gr.on([panel.zoom.click, *(number.submit for number in panel.channels.values())], zoom, asked, outputs,
          **parts.LATEST)
    panel.whole.click(whole, [panel.method, panel.gap], outputs, **parts.LATEST)
    panel.box.pick(box, [panel.method, panel.gap, panel.box], outputs, **parts.LATEST)


def show(panel: DecompositionPanel, record: Any) -> dict[Any, Any]:
    """Draw the hero's operator at the first gap, or the first operator there is; or say why there is none."""
    kept = record.portraits
    if not kept:
        empty = dict.fromkeys((*panel.maps.values(), *panel.spectra.values()))
        empty |= dict.fromkeys((panel.shares, panel.families, panel.said), "")
        hidden = {panel.method: gr.Radio(visible=False), panel.gap: gr.Radio(visible=False)}
        return empty | hidden | {panel.formula: f"{FORMULA} {why_none(record.run)}"}
    shown = kept.get(HERO) or next(iter(kept.values()))
    methods = list(dict.fromkeys(picture.method for picture in kept.values()))
    gaps = list(dict.fromkeys(picture.gap for picture in kept.values()))
    pickers = {
        panel.method: gr.Radio([(method_label(name), name) for name in methods], value=shown.method,
                               visible=len(methods) > 1),
        panel.gap: gr.Radio([(say("page.blocks", blocks=blocks_label(name)), name) for name in gaps], value=shown.gap,
                            visible=len(gaps) > 1),
    }
    return pickers | draw(panel, record, shown) | draw_maps(panel, shown)


def redraw(panel: DecompositionPanel, record: Any, method: str, gap: str, channels: Sequence[Any]) -> dict[Any, Any]:
    """Draw another operator, the same part of it where it can be cut."""
    picture = record and pick(record.portraits, method, gap)
    if not picture:
        return gr.skip()
    try:
        maps = draw_maps(panel, picture, region(*channels, picture.width))
    except InputError:
        maps = draw_maps(panel, picture)
    return draw(panel, record, picture) | maps


def rezoom(
    panel: DecompositionPanel, record: Any, method: str, gap: str, channels: Sequence[Any] | None
) -> dict[Any, Any]:
    """Draw another part of the operator that is shown; all of it for ``None``."""
    picture = record and pick(record.portraits, method, gap)
    if not picture:
        return {panel.said: _note(say("operator.gone"))}
    try:
        where = None if channels is None else region(*channels, picture.width)
    except InputError as wrong:
        return {panel.said: parts.problem(str(wrong))}
    if where is not None and MATRICES.get(picture.matrix) is None:
        return {panel.said: _note(say("operator.gone"))}
    return draw_maps(panel, picture, where)


def from_box(drawn: str) -> tuple[float, ...] | None:
    """Return the four channels of a box that was drawn on a map; ``None`` for the whole operator."""
    box = json.loads(drawn or "null")
    return None if box is None else (*box["rows"], *box["columns"])


def draw_maps(panel: DecompositionPanel, picture: Portrait, where: Region | None = None) -> dict[Any, Any]:
    """Draw the heat maps, of a part if the whole operator is at hand, and write what is shown into the fields."""
    M = MATRICES.get(picture.matrix)
    where = where if M is not None else None
    rows, columns = (where.rows, where.columns) if where else (range(picture.width), range(picture.width))
    figures = operator_maps(picture, where, M)
    shown = (rows[0], rows[-1], columns[0], columns[-1])
    fields = {number: gr.Number(value, maximum=picture.width - 1)
              for number, value in zip(panel.channels.values(), shown, strict=True)}
    said = _note(_resolution(picture, where) + ("" if M is not None else " " + say("operator.gone")))
    return {panel.maps[part]: parts.drawn(figure) for part, figure in figures.items()} | fields | {panel.said: said}


def draw(panel: DecompositionPanel, record: Any, picture: Portrait) -> dict[Any, Any]:
    """Draw one operator's shares and spectra beside LinearPatch's at the same gap, and fill in the formula."""
    patch = pick(record.portraits, PATCH, picture.gap) if picture.method != PATCH else None
    updates: dict[Any, Any] = {
        panel.formula: FORMULA + _numbers(picture), panel.shares: shares(picture),
        panel.families: families(picture, record.run),
        panel.reach: f"{_reach(picture, patch)} {say('operator.caution')}",
    }
    return updates | {panel.spectra[name]: parts.drawn(figure(picture, patch)) for name, figure in SPECTRA.items()}


def why_none(run: Run) -> str:
    """Return a sentence on why a run has no operator to show."""
    if not run.removed.gaps:
        return say("operator.none_removed")
    repairs = [method_label(m.method) for m in run.methods if m.method != "none" and not m.not_defined]
    if not repairs:
        return say("operator.none_fitted")
    return say("operator.not_linear", methods="; ".join(repairs))


def reached() -> str:
    """Return what LinearPatch's operator is."""
    return say("operator.reach", form=PATCHED)


def _numbers(picture: Portrait) -> str:
    told = say(
        "operator.numbers", method=method_label(picture.method), blocks=picture.gap,
        share=f"$\\|A\\|^2/\\|W^*\\|^2 = {three(picture.share)}$", rest=percent(1 - picture.share),
        share_M=f"${three(picture.share_M)}$",
    )
    return told + (say("operator.precision", precision=picture.precision) if picture.precision != "float64" else "")


def _reach(picture: Portrait, patch: Portrait | None) -> str:
    share = three(picture.contained.get("rotated"))
    share = f"$\\|\\mathrm{{diag}}(Q^\\top M^* Q)\\|^2/\\|M^*\\|^2 = {share}$"
    told = say("operator.contained", reach=reached(), share=share)
    told += say("operator.by_cosine") if picture.rotation == "cosine" else "."
    if patch is None and picture.method != PATCH:
        told += say("operator.tick_patch")
    if len(picture.errors):
        return f"{told} {say('operator.rank')}"
    return f"{told} {say('operator.no_rank')}" if picture.method == HERO else told


def _resolution(picture: Portrait, where: Region | None) -> str:
    if where is None:
        step, how = picture.step, say("operator.draw")
        return (say("operator.averages", step=step, width=f"{picture.width:,}", how=how)
                if step > 1 else say("operator.every", how=how))
    down, across = (-(-len(side) // CROP) for side in (where.rows, where.columns))
    rows, columns = (f"{side[0]}–{side[-1]}" for side in (where.rows, where.columns))
    if down == across == 1:
        return say("operator.part_every", rows=rows, columns=columns)
    return say("operator.part_averages", rows=rows, columns=columns, down=down, across=across)


def _note(said: str) -> str:
    return f"<p class='gl-note' role='status'>{said}</p>"
