"""What is run: model and text, how blocks are chosen, the methods, the prompt, and the two buttons."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from analysis import library
from analysis.names import choices
from analysis.numbers import count
from analysis.settings import DEFAULT


@dataclass(frozen=True)
class Controls:
    """The panel's components, named as the settings they hold, and the buttons."""

    model: gr.Dropdown
    facts: gr.HTML
    text: gr.Dropdown
    upload: gr.UploadButton
    tokens: gr.Number
    window: gr.Number
    criterion: gr.Dropdown
    count: gr.Number
    methods: gr.CheckboxGroup
    prompt: gr.Textbox
    max_new_tokens: gr.Number
    temperature: gr.Number
    run: gr.Button
    stop: gr.Button


def build() -> Controls:
    """Place the panel."""
    with gr.Row(elem_classes="gl-buttons"):
        run = gr.Button("Run", variant="primary", elem_id="gl-run", min_width=120)
        stop = gr.Button("Stop", interactive=False, elem_id="gl-stop", min_width=80)
    model = gr.Dropdown(
        library.model_choices(), value=DEFAULT.model, label="Model", allow_custom_value=True, filterable=True,
        elem_id="gl-model", info="From the list, or owner/name of the Hub, a folder, a .gguf file",
    )
    facts = gr.HTML(elem_id="gl-facts")
    text = gr.Dropdown(
        library.text_choices(), value=DEFAULT.text, label="Calibration text", allow_custom_value=True,
        elem_id="gl-text", info="From the list, or the path of a .txt or .jsonl file",
    )
    upload = gr.UploadButton("Upload a text", file_types=[".txt", ".jsonl"], size="sm", elem_id="gl-upload")
    with gr.Row():
        tokens = gr.Number(DEFAULT.tokens, label="Tokens", precision=0, min_width=90)
        window = gr.Number(DEFAULT.window, label="Window", precision=0, min_width=90)
    with gr.Row():
        criterion = gr.Dropdown(choices("ghosted.criteria"), value=DEFAULT.criterion, label="Blocks are chosen by",
                                elem_id="gl-criterion", min_width=150, scale=3)
        blocks = gr.Number(DEFAULT.count, label="How many", precision=0, elem_id="gl-count", min_width=88, scale=1,
                           visible=DEFAULT.criterion != "manual")
    methods = gr.CheckboxGroup(
        choices("ghosted.operators"), value=list(DEFAULT.methods), label="Repairs to compare", elem_id="gl-methods",
    )
    prompt = gr.Textbox(DEFAULT.prompt, label="Prompt", lines=3, max_lines=6, elem_id="gl-prompt")
    with gr.Row():
        new = gr.Number(DEFAULT.max_new_tokens, label="New tokens", precision=0, min_width=90)
        temperature = gr.Number(DEFAULT.temperature, label="Temperature", min_width=90)
    return Controls(model, facts, text, upload, tokens, window, criterion, blocks, methods, prompt, new, temperature,
                    run, stop)


def facts_line(facts: Any) -> str:
    """Return what is known of a model before it is fetched, as one quiet line."""
    said = [f"{facts.blocks} blocks", f"width {facts.width}", f"{count(facts.parameters)} parameters"]
    if facts.download_bytes and not facts.cached:
        said.append(f"{facts.download_bytes / 1e6:,.0f} MB to fetch")
    return f"<p class='gl-note'>{escape(', '.join(said))}</p>"


def buttons(panel: Controls, running: bool) -> dict[Any, Any]:
    """Return the updates of Run and Stop: just one of them can be pressed."""
    return {panel.run: gr.Button(interactive=not running), panel.stop: gr.Button(interactive=running)}
