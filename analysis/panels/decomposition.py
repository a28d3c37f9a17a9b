"""What is W* made of? Its parts as heat maps to zoom into, their shares and spectra, and what LinearPatch can reach."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from analysis.figures import spectra
from analysis.figures.operator import CROP, HEIGHT, PARTS, Portrait, Region, operator_maps, pick, region
from analysis.matrices import MATRICES
from analysis.names import method_label
from analysis.numbers import percent, three
from analysis.panels import parts
from analysis.shares import families, shares
from ghosted.errors import InputError
from ghosted.results import Run

NAME, PART = "decomposition", "decomposition"
READING = (
    "The repair splits into a part that stretches (S, symmetric) and a part that turns (A, antisymmetric). Blue is "
    "negative, orange positive. The identity is taken off all maps but the first, where its diagonal is off the colour "
    "scale; M* is the sum of the two maps after it."
)
FORMULA = (
    "$W^* = I + M^* = S + A$, $S = (W^* + W^{*\\top})/2$, $A = (W^* - W^{*\\top})/2$, "
    "$\\|W^*\\|^2 = \\|S\\|^2 + \\|A\\|^2$."
)
REACH = (
    "LinearPatch's $W = Q\\,\\mathrm{diag}(d)\\,Q^\\top$ is symmetric: its eigenvalues are real, so it stretches along "
    "fixed directions and turns nothing."
)
CAUTION = (
    "A family's best operator is fitted for itself and is not this projection: the symmetric part of $W^*$ on its own "
    "ruins the model, the best symmetric map repairs it. Compare the error left (held-out), not the share."
)
RANK = (
    "The lower curve beside the singular values is the least error, on calibration tokens, that any operator of that "
    "rank leaves."
)
NO_RANK = "Tick low rank to see what the best operator of each rank leaves."
CAPTIONS = {"W": "W*, the operator", "M": "M* = W* − I, what it adds", "S": "S − I, what stretches",
            "A": "A, what turns"}
SPECTRA = (
    ("plane", "Eigenvalues of W*", spectra.eigenvalue_plane),
    ("line", "Eigenvalues of S", spectra.symmetric_line),
    ("rotations", "Rotation rates of A", spectra.rotation_rates),
    ("singular", "Singular values of M*, and rank", spectra.singular_values),
)
CHANNELS = ("From channel, first", "From channel, last", "To channel, first", "To channel, last")
HERO, PATCH = "ghosted", "linearpatch"
INVITATION = "Press Run with the method ghosted ticked: this picture of its operator appears here."
GONE = "Press Run to zoom: the whole operator is not at hand."
SCRIPT = Path(__file__).parents[2] / "assets" / "operator_zoom.js"
PRIVATE = parts.PRIVATE | {"trigger_mode": "always_last"}


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
    parts.heading("What is W* made of?", READING)
    with gr.Row(elem_classes="gl-operators"):
        method = gr.Radio([], label="Operator", visible=False, elem_id="gl-operator")
        gap = gr.Radio([], label="Removed blocks it stands for", visible=False, elem_id="gl-operator-gap")
    formula = parts.formula(FORMULA)
    with gr.Row(elem_classes="gl-shared", equal_height=False):
        shared, held = (gr.HTML(elem_id=f"gl-{name}", min_width=300) for name in ("shares", "families"))
    with gr.Row(elem_classes="gl-quad"):
        maps = {name: parts.captioned(f"operator-{name}", CAPTIONS[name], INVITATION, HEIGHT) for name in PARTS}
    said = gr.HTML(elem_id="gl-zoom-said")
    with gr.Row(elem_classes="gl-zoom", equal_height=False):
        channels = {label: gr.Number(label=label, precision=0, minimum=0, min_width=128) for label in CHANNELS}
        zoom = gr.Button("Zoom", size="sm", min_width=96, scale=0, elem_id="gl-zoom")
        whole = gr.Button("Whole operator", size="sm", min_width=130, scale=0, elem_id="gl-zoom-whole")
        box = gr.HTML("", html_template="<span></span>", js_on_load=SCRIPT.read_text("utf-8"), elem_classes="gl-box")
    with gr.Row(elem_classes="gl-quad"):
        spectra_ = {name: parts.captioned(f"spectrum-{name}", caption, INVITATION, spectra.HEIGHT)
                    for name, caption, _ in SPECTRA}
    reach = parts.formula(REACH)
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

    gr.on([panel.method.input, panel.gap.input], other, asked, outputs, **PRIVATE)
    gr.on([panel.zoom.click, *(number.submit for number in panel.channels.values())], zoom, asked, outputs, **PRIVATE)
    panel.whole.click(whole, [panel.method, panel.gap], outputs, **PRIVATE)
    panel.box.pick(box, [panel.method, panel.gap, panel.box], outputs, **PRIVATE)


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
        panel.gap: gr.Radio([(f"blocks {name}".replace("-", "–"), name) for name in gaps], value=shown.gap,
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
        return {panel.said: _note(GONE)}
    try:
        where = None if channels is None else region(*channels, picture.width)
    except InputError as wrong:
        return {panel.said: parts.problem(str(wrong))}
    if where is not None and MATRICES.get(picture.matrix) is None:
        return {panel.said: _note(GONE)}
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
    said = _note(_resolution(picture, where) + ("" if M is not None else f" {GONE}"))
    return {panel.maps[part]: parts.drawn(figure) for part, figure in figures.items()} | fields | {panel.said: said}


def draw(panel: DecompositionPanel, record: Any, picture: Portrait) -> dict[Any, Any]:
    """Draw one operator's shares and spectra beside LinearPatch's at the same gap, and fill in the formula."""
    patch = pick(record.portraits, PATCH, picture.gap) if picture.method != PATCH else None
    updates: dict[Any, Any] = {
        panel.formula: FORMULA + _numbers(picture), panel.shares: shares(picture),
        panel.families: families(picture, record.run), panel.reach: f"{_reach(picture, patch)} {CAUTION}",
    }
    return updates | {panel.spectra[name]: parts.drawn(figure(picture, patch)) for name, _, figure in SPECTRA}


def why_none(run: Run) -> str:
    """Return a sentence on why a run has no operator to show."""
    if not run.removed.gaps:
        return "Nothing is removed, so there is no operator."
    repairs = [method_label(m.method) for m in run.methods if m.method != "none" and not m.not_defined]
    if not repairs:
        return "No repair was fitted, so there is no operator; tick ghosted to see one."
    return (
        f"{'; '.join(repairs)}: no $W^*$, $S$ or $A$, as the repair is not linear in $x$ alone: it reads what the "
        "block before the gap computes, or the state normalised; tick ghosted to see an operator."
    )


def _numbers(picture: Portrait) -> str:
    said = (
        f" For {method_label(picture.method)}, blocks {picture.gap}: $\\|A\\|^2/\\|W^*\\|^2 = {three(picture.share)}$ "
        f"(so S has {percent(1 - picture.share)}), and of $M^*$ alone ${three(picture.share_M)}$."
    )
    return said + (f" Spectra computed in {picture.precision}." if picture.precision != "float64" else "")


def _reach(picture: Portrait, patch: Portrait | None) -> str:
    said = f"{REACH} Of $M^*$, $\\|\\mathrm{{diag}}(Q^\\top M^* Q)\\|^2/\\|M^*\\|^2 = "
    said += f"{three(picture.contained.get('rotated'))}$ has that form"
    said += ", with a cosine transform as $Q$ at this width." if picture.rotation == "cosine" else "."
    if patch is None and picture.method != PATCH:
        said += " Tick LinearPatch to see it on the same axes."
    if len(picture.errors):
        return f"{said} {RANK}"
    return f"{said} {NO_RANK}" if picture.method == HERO else said


def _resolution(picture: Portrait, where: Region | None) -> str:
    if where is None:
        step, how = picture.step, "Draw a box on a map, or give channels, to see single entries; two clicks go back."
        return (f"Each pixel averages {step} × {step} of the {picture.width:,} × {picture.width:,} entries. {how}"
                if step > 1 else f"Every entry is shown. {how}")
    down, across = (-(-len(side) // CROP) for side in (where.rows, where.columns))
    shown = f"Channels {where.rows[0]}–{where.rows[-1]} to {where.columns[0]}–{where.columns[-1]}: "
    return shown + ("every entry." if down == across == 1 else f"each pixel averages {down} × {across} entries.")


def _note(said: str) -> str:
    return f"<p class='gl-note' role='status'>{said}</p>"
