"""The page: places the panels in the order of the data and wires their events. No numbers are made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from analysis import library
from analysis.live import Live, Panels
from analysis.panels import boundary, controls, decomposition, generations, layer_map, similarity, status
from analysis.runner import RunFunction, Runner
from analysis.session import Sessions
from analysis.settings import DEFAULT

ASSETS = Path(__file__).parents[1] / "assets"
TITLE = "Ghosted Layers Explorer"
LEAD = "Cut layers out of a language model, and see how far one linear map brings it back."
PRIVATE = {"api_visibility": "private", "show_progress": "hidden", "queue": False}
LATEST = PRIVATE | {"trigger_mode": "always_last"}


def build_page(
    run_function: RunFunction | None = None, describe: Callable[[str], Any] | None = None, local_paths: bool = True,
) -> gr.Blocks:
    """Build the page.

    Args:
        run_function: ``run(experiment, cancel=flag)``; the library's by default.
        describe: model name to its facts; the library's by default.
        local_paths: whether visitors may name files and folders of this machine.
    """
    live_parts = (Runner(run_function or library.run), Sessions(), describe or library.describe, local_paths)
    with gr.Blocks(title=TITLE, fill_width=True, analytics_enabled=False, delete_cache=(3600, 86400)) as page:
        panels = _place()
        live = Live(panels, *live_parts)
        _wire(page, panels, live)
    page.queue(max_size=64, default_concurrency_limit=40)
    return page


def look_and_feel() -> dict[str, Any]:
    """Return what belongs to ``launch()``: theme with system fonts, style sheet, and nothing that phones home."""
    sans = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Liberation Sans", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "Liberation Mono", "monospace")
    theme = gr.themes.Base(primary_hue="violet", neutral_hue="zinc", font=sans, font_mono=mono, radius_size="sm")
    return {
        "theme": theme, "css_paths": sorted(ASSETS.glob("*.css")), "footer_links": ["settings"], "run_history": False,
        "enable_monitoring": False, "max_file_size": "50mb",
    }


def _place() -> Panels:
    with gr.Row(elem_classes="gl-head", equal_height=False):
        gr.HTML(f"<header class='gl-top'><h1>{TITLE}</h1><p>{LEAD}</p></header>", min_width=300)
        line = status.build()
    with gr.Row(elem_classes="gl-page", equal_height=False):
        with gr.Column(elem_classes="gl-side", min_width=280, scale=0):
            side = controls.build()
        with gr.Column(elem_classes="gl-main", min_width=320, scale=1):
            with gr.Row(elem_classes="gl-first", equal_height=True):
                with gr.Column(elem_classes="gl-panel", min_width=320, scale=5):
                    blocks = layer_map.build()
                with gr.Column(elem_classes="gl-panel", min_width=320, scale=5):
                    left = boundary.build()
                    line.notices.render()
            with gr.Column(elem_classes="gl-panel"):
                columns = generations.build_columns()
            with gr.Column(elem_classes="gl-panel"):
                texts = generations.build(columns)
            with gr.Column(elem_classes="gl-panel"):
                parts = decomposition.build()
            with gr.Column(elem_classes="gl-panel"):
                alike = similarity.build()
    return Panels(side, line, blocks, left, texts, parts, alike)


def _wire(page: gr.Blocks, panels: Panels, live: Live) -> None:
    side, blocks = panels.controls, panels.layer_map
    watching = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": 40}

    started = side.run.click(live.start, panels.inputs(), [panels.status.line, side.run, side.stop], **PRIVATE)
    started.then(live.follow, None, [panels.status.line, panels.generations.columns], **watching)
    # One event per part and not one generator for all: what a generator has yielded is changed in place by its next
    # yield, and a plot that is still being mounted then loses its value.
    drawn = started
    for part, draw in (("similarity", live.similarity), ("boundary", live.boundary),
                       ("decomposition", live.decomposition), ("scores", live.scores), ("map", live.ranges)):
        drawn = drawn.then(draw, None, panels.outputs(part), **watching)
    drawn.then(live.finish, None, [side.run, side.stop], **watching)
    side.stop.click(live.stop, None, [panels.status.line], **PRIVATE)
    page.unload(live.leave)

    layer_map.wire(blocks, live)
    if not DEFAULT.remove:  # an empty number opens as 0, which is a block
        page.load(None, None, [blocks.first, blocks.last], js="() => [null, null]", **PRIVATE)

    forms = [blocks.map, blocks.first, blocks.last, blocks.remove, blocks.problem]
    side.model.change(live.describe, [side.model, blocks.remove], [side.facts, *forms], **LATEST)
    side.upload.upload(live.upload, [side.upload], [side.text], **PRIVATE)
    side.criterion.change(live.criterion, [side.criterion], [side.count], **PRIVATE)
    panels.decomposition.method.input(live.operator, [panels.decomposition.method],
                                      panels.decomposition_outputs(), **LATEST)
