"""What is run: model and text, how blocks are chosen, the methods, the prompt, and the two buttons."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from analysis import library, pickers
from analysis.names import choices
from analysis.panels import prompt
from analysis.settings import DEFAULT
from ghosted.experiment import DTYPES, FITS


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
        run = gr.Button("Run", variant="primary", elem_id="gl-run", min_width=120)
        stop = gr.Button("Stop", interactive=False, elem_id="gl-stop", min_width=80)
    plan = gr.HTML(quiet(pickers.run_line(DEFAULT)), elem_id="gl-plan")
    return Controls(run, stop, plan, **_model_and_text(), **_blocks_and_repairs(), **_prompt(), **_more())


def quiet(said: str) -> str:
    """Return a quiet line of text; nothing where there is nothing to say."""
    return f"<p class='gl-note'>{escape(said)}</p>" if said else ""


def buttons(panel: Controls, running: bool) -> dict[Any, Any]:
    """Return the updates of Run and Stop: just one of them can be pressed."""
    return {panel.run: gr.Button(interactive=not running), panel.stop: gr.Button(interactive=running)}


def _model_and_text() -> dict[str, gr.Component]:
    model = gr.Dropdown(
        library.model_choices(), value=DEFAULT.model, label="Model", allow_custom_value=True, filterable=True,
        elem_id="gl-model", info="From the list, or owner/name of the Hub, a folder, a .gguf file",
    )
    facts = gr.HTML(quiet(pickers.catalogue_line(DEFAULT.model)), elem_id="gl-facts")
    text = gr.Dropdown(
        library.text_choices(), value=DEFAULT.text, label="Calibration text", allow_custom_value=True,
        elem_id="gl-text", info="From the list, or the path of a .txt or .jsonl file",
    )
    about = gr.HTML(quiet(pickers.text_line(DEFAULT.text, DEFAULT.tokens)), elem_id="gl-about")
    upload = gr.UploadButton("Upload a text", file_types=[".txt", ".jsonl"], size="sm", elem_id="gl-upload")
    with gr.Row():
        tokens = _whole("tokens", "Tokens")
        window = _whole("window", "Window")
    return {"model": model, "facts": facts, "text": text, "about": about, "upload": upload, "tokens": tokens,
            "window": window}


def _blocks_and_repairs() -> dict[str, gr.Component]:
    with gr.Row():
        criterion = gr.Dropdown(choices("ghosted.criteria"), value=DEFAULT.criterion, label="Blocks are chosen by",
                                elem_id="gl-criterion", min_width=150, scale=3)
        blocks = gr.Number(DEFAULT.count, label="How many", precision=0, elem_id="gl-count", min_width=88, scale=1,
                           visible=DEFAULT.criterion != "manual")
    methods = gr.CheckboxGroup(
        choices("ghosted.operators"), value=list(DEFAULT.methods), label="Repairs to compare", elem_id="gl-methods",
    )
    return {"criterion": criterion, "count": blocks, "methods": methods}


def _prompt() -> dict[str, gr.Component]:
    written = prompt.build()
    with gr.Row():
        new = _whole("max_new_tokens", "New tokens")
        temperature = gr.Number(DEFAULT.temperature, label="Temperature", min_width=90, elem_id="gl-temperature")
    return {"prompt": written.prompt, "chat": written.chat, "max_new_tokens": new, "temperature": temperature}


def _more() -> dict[str, gr.Component]:
    with gr.Accordion("More settings", open=False, elem_id="gl-more"):
        with gr.Row():
            ridge = _line("ridge", "Ridge λ", "1e-6 or auto", value=f"{DEFAULT.ridge:g}")
            rank = _whole("rank", "Rank", "width / 8")
        with gr.Row():
            fit = gr.Dropdown(list(FITS), value=DEFAULT.fit, label="Several gaps", min_width=90, elem_id="gl-fit")
            distill = _whole("distill", "Distil, steps")
        with gr.Row():
            windows = _whole("windows", "Windows scored")
            seed = _whole("seed", "Seed")
        evaluate = _line("evaluate", "Texts to score", "what follows the calibration text")
        held_out = _line("held_out", "Held-out text", "what follows the calibration text")
        with gr.Row():
            dtype = gr.Dropdown(list(DTYPES), value=DEFAULT.dtype, label="Number format", min_width=90,
                                elem_id="gl-dtype")
            batch = _whole("batch", "Batch", "automatic")
        with gr.Row():
            calibration_window = _whole("calibration_window", "Calibration window", "as Window")
            revision = _line("revision", "Hub revision", "main")
    return {"ridge": ridge, "rank": rank, "fit": fit, "distill": distill, "windows": windows, "evaluate": evaluate,
            "held_out": held_out, "calibration_window": calibration_window, "dtype": dtype, "batch": batch,
            "seed": seed, "revision": revision}


def _whole(name: str, label: str, empty: str | None = None) -> gr.Number:
    return gr.Number(getattr(DEFAULT, name), label=label, precision=0, min_width=90, placeholder=empty,
                     elem_id=f"gl-{name.replace('_', '-')}")


def _line(name: str, label: str, empty: str, value: str = "") -> gr.Textbox:
    return gr.Textbox(value, label=label, placeholder=empty, max_lines=1, max_length=400, min_width=90,
                      elem_id=f"gl-{name.replace('_', '-')}")
