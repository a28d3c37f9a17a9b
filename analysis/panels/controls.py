"""What is run: model and text, how blocks are chosen, the methods, the prompt, and the two buttons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import gradio as gr

from analysis import library, pickers
from analysis.names import choices
from analysis.panels import prompt
from analysis.panels.parts import worded
from analysis.settings import DEFAULT
from ghosted.experiment import DTYPES, FITS, Experiment

BELONGS = {
    "model": ("facts", "revision"), "text": ("about", "upload"), "criterion": ("count",), "prompt": ("preset", "chat"),
    "run": ("stop", "plan"), "lesson": ("lesson-menu",),
}
"""What goes with a control that a link hides, by the names that links use."""


@dataclass(frozen=True)
class Controls:
    """The panel's components, named as the settings they hold, and the buttons."""

    run: gr.Button
    stop: gr.Button
    plan: gr.HTML
    model: gr.Dropdown
    facts: gr.HTML
    text: gr.Dropdown
    about: gr.HTML
    upload: gr.UploadButton
    tokens: gr.Number
    window: gr.Number
    criterion: gr.Dropdown
    count: gr.Number
    methods: gr.CheckboxGroup
    prompt: gr.Textbox
    chat: gr.Checkbox
    max_new_tokens: gr.Number
    temperature: gr.Number
    ridge: gr.Textbox
    rank: gr.Number
    fit: gr.Dropdown
    distill: gr.Number
    windows: gr.Number
    evaluate: gr.Textbox
    held_out: gr.Textbox
    calibration_window: gr.Number
    dtype: gr.Dropdown
    batch: gr.Number
    seed: gr.Number
    revision: gr.Textbox


def build() -> Controls:
    """Place the panel."""
    with gr.Row(elem_classes="gl-buttons"):
        run = worded(gr.Button, words={"value": "controls.run"}, variant="primary", elem_id="gl-run", min_width=120)
        stop = worded(gr.Button, words={"value": "controls.stop"}, interactive=False, elem_id="gl-stop", min_width=80)
    plan = gr.HTML(quiet(pickers.run_line(DEFAULT)), elem_id="gl-plan")
    return Controls(run, stop, plan, **_model_and_text(), **_blocks_and_repairs(), **_prompt(), **_more())


def quiet(said: str) -> str:
    """Return a quiet line of text; nothing where there is nothing to say."""
    return f"<p class='gl-note'>{escape(said)}</p>" if said else ""


def buttons(panel: Controls, running: bool) -> dict[Any, Any]:
    """Return the updates of Run and Stop: just one of them can be pressed."""
    return {panel.run: gr.Button(interactive=not running), panel.stop: gr.Button(interactive=running)}


def told(panel: Controls, experiment: Experiment) -> dict[Any, Any]:
    """Return the updates of what is said of an experiment before it is run; of what only the library knows, none."""
    said = {panel.plan: pickers.run_line(experiment), panel.facts: pickers.catalogue_line(experiment.model),
            panel.about: pickers.text_line(experiment.text, experiment.tokens)}
    return {component: quiet(text) for component, text in said.items() if text}


def _model_and_text() -> dict[str, gr.Component]:
    model = worded(
        gr.Dropdown, library.model_choices(), words={"label": "controls.model", "info": "controls.model_info"},
        value=DEFAULT.model, allow_custom_value=True, filterable=True, elem_id="gl-model",
    )
    facts = gr.HTML(quiet(pickers.catalogue_line(DEFAULT.model)), elem_id="gl-facts")
    text = worded(
        gr.Dropdown, words={"label": "controls.text", "info": "controls.text_info", "choices": library.text_choices},
        value=DEFAULT.text, allow_custom_value=True, elem_id="gl-text",
    )
    about = gr.HTML(quiet(pickers.text_line(DEFAULT.text, DEFAULT.tokens)), elem_id="gl-about")
    upload = worded(gr.UploadButton, words={"label": "controls.upload"}, file_types=[".txt", ".jsonl"], size="sm",
                    elem_id="gl-upload")
    with gr.Row():
        tokens = _whole("tokens")
        window = _whole("window")
    return {"model": model, "facts": facts, "text": text, "about": about, "upload": upload, "tokens": tokens,
            "window": window}


def _blocks_and_repairs() -> dict[str, gr.Component]:
    with gr.Row():
        criterion = worded(
            gr.Dropdown, words={"label": "controls.criterion", "choices": partial(choices, "ghosted.criteria")},
            value=DEFAULT.criterion, elem_id="gl-criterion", min_width=150, scale=3,
        )
        blocks = worded(gr.Number, DEFAULT.count, words={"label": "controls.count"}, precision=0, elem_id="gl-count",
                        min_width=88, scale=1, visible=DEFAULT.criterion != "manual")
    methods = worded(
        gr.CheckboxGroup, words={"label": "controls.methods", "choices": partial(choices, "ghosted.operators")},
        value=list(DEFAULT.methods), elem_id="gl-methods",
    )
    return {"criterion": criterion, "count": blocks, "methods": methods}


def _prompt() -> dict[str, gr.Component]:
    written = prompt.build()
    with gr.Row():
        new = _whole("max_new_tokens", "new_tokens")
        temperature = worded(gr.Number, DEFAULT.temperature, words={"label": "controls.temperature"}, min_width=90,
                             elem_id="gl-temperature")
    return {"prompt": written.prompt, "chat": written.chat, "max_new_tokens": new, "temperature": temperature}


def _more() -> dict[str, gr.Component]:
    with worded(gr.Accordion, words={"label": "controls.more"}, open=False, elem_id="gl-more"):
        with gr.Row():
            ridge = _line("ridge", "ridge_empty", value=f"{DEFAULT.ridge:g}")
            rank = _whole("rank", empty="rank_empty")
        with gr.Row():
            fit = worded(gr.Dropdown, list(FITS), words={"label": "controls.fit"}, value=DEFAULT.fit, min_width=90,
                         elem_id="gl-fit")
            distill = _whole("distill")
        with gr.Row():
            windows = _whole("windows")
            seed = _whole("seed")
        evaluate = _line("evaluate", "text_empty")
        held_out = _line("held_out", "text_empty")
        with gr.Row():
            dtype = worded(gr.Dropdown, list(DTYPES), words={"label": "controls.dtype"}, value=DEFAULT.dtype,
                           min_width=90, elem_id="gl-dtype")
            batch = _whole("batch", empty="batch_empty")
        with gr.Row():
            calibration_window = _whole("calibration_window", empty="calibration_window_empty")
            revision = _line("revision", placeholder="main")
    return {"ridge": ridge, "rank": rank, "fit": fit, "distill": distill, "windows": windows, "evaluate": evaluate,
            "held_out": held_out, "calibration_window": calibration_window, "dtype": dtype, "batch": batch,
            "seed": seed, "revision": revision}


def _whole(name: str, label: str = "", empty: str = "") -> gr.Number:
    return worded(gr.Number, getattr(DEFAULT, name), words=_words(label or name, empty), precision=0, min_width=90,
                  elem_id=f"gl-{name.replace('_', '-')}")


def _line(name: str, empty: str = "", value: str = "", **options: Any) -> gr.Textbox:
    return worded(gr.Textbox, value, words=_words(name, empty), max_lines=1, max_length=400, min_width=90,
                  elem_id=f"gl-{name.replace('_', '-')}", **options)


def _words(label: str, empty: str) -> dict[str, str]:
    return {"label": f"controls.{label}"} | ({"placeholder": f"controls.{empty}"} if empty else {})
