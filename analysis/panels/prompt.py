"""What do the models continue? The prompt as free text, examples of several kinds, and the chat template."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import gradio as gr

from analysis.panels.parts import PRIVATE, worded
from analysis.settings import DEFAULT

PROMPTS = Path(__file__).parents[2] / "assets" / "prompts.json"


@dataclass(frozen=True)
class Preset:
    """An example: what it is called, the prompt, and whether it is meant as a message."""

    label: str
    text: str
    chat: bool


@dataclass(frozen=True)
class PromptControls:
    """The panel's components; ``prompt`` and ``chat`` are named as the settings they hold."""

    preset: gr.Dropdown
    prompt: gr.Textbox
    chat: gr.Checkbox


@cache
def presets() -> tuple[Preset, ...]:
    """Return the examples of ``assets/prompts.json``."""
    return tuple(Preset(**each) for each in json.loads(PROMPTS.read_text("utf-8")))


def build() -> PromptControls:
    """Place the controls and join them: an example is written by the browser itself, at once."""
    texts = [each.text for each in presets()]
    # Interactive is said because gradio makes what is only an output read-only.
    preset = worded(gr.Dropdown, [(each.label, each.text) for each in presets()],
                    words={"label": "controls.preset"}, interactive=True,
                    value=DEFAULT.prompt if DEFAULT.prompt in texts else None, elem_id="gl-preset")
    prompt = worded(gr.Textbox, DEFAULT.prompt, words={"label": "controls.prompt"}, lines=3, max_lines=6,
                    interactive=True, elem_id="gl-prompt")
    chat = worded(gr.Checkbox, DEFAULT.chat, words={"label": "controls.chat", "info": "controls.chat_info"},
                  interactive=True, elem_id="gl-chat")
    spoken = json.dumps([each.text for each in presets() if each.chat])
    preset.input(None, [preset], [prompt, chat], js=f"(text) => [text, {spoken}.includes(text)]", **PRIVATE)
    # A prompt that somebody types is no example any more.
    prompt.input(None, None, [preset], js="() => null", **PRIVATE)
    return PromptControls(preset, prompt, chat)
