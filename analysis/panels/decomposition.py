"""What is W* made of? Its symmetric and antisymmetric parts as heat maps with their shares, and their spectra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.figures import spectra
from analysis.figures.operator import Portrait, operator_map
from analysis.names import method_label
from analysis.numbers import percent, three
from analysis.panels import parts
from analysis.record import Record
from ghosted.results import Run

PART = "decomposition"
READING = (
    "The repair splits into a part that stretches (S, symmetric) and a part that rotates (A, antisymmetric). Blue is "
    "negative, orange positive; the identity is taken off so that its diagonal does not drown the rest, so the first "
    "picture is the sum of the other two."
)
FORMULA = "$W^* = S + A$, $S = (W^* + W^{*\\top})/2$, $A = (W^* - W^{*\\top})/2$, $W^* = I + M^*$."
MAPS = (("W", "W* − I, the whole repair"), ("S", "S − I, what stretches"), ("A", "A, what rotates"))
SPECTRA = (
    ("plane", "Eigenvalues of W*", spectra.eigenvalue_plane),
    ("line", "Eigenvalues of S", spectra.symmetric_line),
    ("rotations", "Rotation rates of A", spectra.rotation_rates),
    ("singular", "Singular values of M*", spectra.singular_values),
)
HERO = "ghosted"
INVITATION = "Press Run with the method ghosted ticked: this picture of its operator appears here."


@dataclass(frozen=True)
class DecompositionPanel:
    """The panel's components; pictures by the names of ``MAPS`` and ``SPECTRA``."""

    method: gr.Radio
    formula: gr.Markdown
    maps: dict[str, gr.Plot]
    spectra: dict[str, gr.Plot]


def build() -> DecompositionPanel:
    """Place the panel."""
    parts.heading("What is W* made of?", READING)
    method = gr.Radio([], label="Operator", visible=False, elem_id="gl-operator")
    formula = parts.formula(FORMULA)
    with gr.Row():
        maps = {name: _captioned(f"operator-{name}", caption, 360, 250) for name, caption in MAPS}
    with gr.Row():
        spectra_ = {name: _captioned(f"spectrum-{name}", caption, 300, 195) for name, caption, _ in SPECTRA}
    return DecompositionPanel(method, formula, maps, spectra_)


def show(panel: DecompositionPanel, record: Record) -> dict[Any, Any]:
    """Draw the hero's operator, or the first there is; or say why there is none."""
    run, portraits = record.run, record.portraits
    if not portraits:
        empty = dict.fromkeys((*panel.maps.values(), *panel.spectra.values()))
        return empty | {panel.method: gr.Radio(visible=False), panel.formula: f"{FORMULA} {why_none(run)}"}
    shown = HERO if HERO in portraits else next(iter(portraits))
    choices = [(method_label(name), name) for name in portraits]
    picker = gr.Radio(choices, value=shown, visible=len(choices) > 1)
    return {panel.method: picker} | draw(panel, portraits[shown])


def wire(panel: DecompositionPanel, live: Any) -> None:
    """Draw another operator of what is shown when it is picked."""

    def pick(name: str, request: gr.Request) -> dict[Any, Any]:
        record = live.record(request)
        picture = record.portraits.get(name) if record is not None else None
        return draw(panel, picture) if picture else gr.skip()

    outputs = [panel.formula, *panel.maps.values(), *panel.spectra.values()]
    panel.method.input(pick, [panel.method], outputs, api_visibility="private", show_progress="hidden", queue=False,
                       trigger_mode="always_last")


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


def draw(panel: DecompositionPanel, picture: Portrait) -> dict[Any, Any]:
    """Draw one operator's portrait and put its shares into the formula."""
    updates: dict[Any, Any] = {panel.formula: FORMULA + _numbers(picture)}
    for name, plot in panel.maps.items():
        updates[plot] = parts.drawn(operator_map(picture, name))
    for name, _, figure in SPECTRA:
        updates[panel.spectra[name]] = parts.drawn(figure(picture))
    return updates


def _numbers(picture: Portrait) -> str:
    said = (
        f" For {method_label(picture.method)}, blocks {picture.gap}: $\\|A\\|^2/\\|W^*\\|^2 = {three(picture.share)}$ "
        f"(so S has {percent(1 - picture.share)}), and of $M^*$ alone ${three(picture.share_M)}$."
    )
    if picture.step > 1:
        step, width = picture.step, picture.width
        said += f" Each pixel averages {step} × {step} of the {width} × {width} entries."
    return said


def _captioned(name: str, caption: str, height: int, width: int) -> gr.Plot:
    with gr.Column(min_width=width):
        gr.HTML(f"<h3 class='gl-caption'>{caption}</h3>")
        return parts.picture(name, INVITATION, height)
