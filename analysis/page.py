"""The page: places the panels in the order of the data and wires their events. No numbers are made here."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.events import Dependency
from starlette.middleware import Middleware

from analysis import library, panels, precomputed
from analysis.compressed import Compressed
from analysis.endpoints import Endpoints
from analysis.first_words import Speaking, respoken
from analysis.forms import Forms
from analysis.limits import ALONE, Limits
from analysis.live import Layout, Live
from analysis.opening import Opening
from analysis.panels import bus, controls, lesson, parts, share, status
from analysis.panels.parts import EACH, LATEST, PRIVATE, WATCHING
from analysis.previewing import SHOWN, Previewing, Source
from analysis.record import Record
from analysis.runner import RunFunction
from analysis.session import Session
from analysis.settings import DEFAULT
from analysis.sharing import Sharing
from analysis.speech import language, say, speaking
from analysis.teaching import Teaching
from ghosted.experiment import Experiment

ASSETS = Path(__file__).parents[1] / "assets"
TITLE = "Ghosted Layers Explorer"
DRAWN = ("similarity", "boundary", "decomposition", "scores", "map")
"""The parts of a run in the order in which they become known; the texts are followed on their own."""


class Page(gr.Blocks):
    """A page that opens and answers every event in its visitor's language.

    Attributes:
        language_of: visitor to language.
        shown: the texts that it opens with, by component, in the language that is spoken.
    """

    language_of: Callable[[str], str] = staticmethod(lambda visitor: "en")
    shown: Callable[[], dict[Any, Any]] = staticmethod(dict)

    @property
    def config(self) -> Any:
        """The page as it opens, in the language that is spoken here."""
        spoken = language()
        if spoken != "en" and spoken not in self._configs:
            words = {each._id: {name: text() for name, text in each.worded.items()}
                     for each in self.blocks.values() if hasattr(each, "worded")}
            for each, value in self.shown().items():
                words[each._id] = words.get(each._id, {}) | {"value": value}
            self._configs[spoken] = respoken(self._configs["en"], words)
        return self._configs[spoken]

    @config.setter
    def config(self, made: Any) -> None:
        self._configs = {"en": made}

    def get_api_info(self, *args: Any, **options: Any) -> Any:
        """Describe the endpoints, in English: they are described once for all."""
        with speaking("en"):
            return super().get_api_info(*args, **options)

    async def process_api(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Answer an event."""
        with speaking(self.language_of(options.get("session_hash") or "")):
            return await super().process_api(*args, **options)


def build_page(
    run_function: RunFunction | None = None, describe: Callable[[str], Any] | None = None, limits: Limits = ALONE,
    preview: Source | None = None, first: Callable[[], Record | None] = precomputed.record,
    measure: RunFunction | None = None, take: RunFunction | None = None, outlook: Callable[..., str] | None = None,
) -> Page:
    """Build the page.

    Args:
        run_function: ``run(experiment, cancel=flag)``; the library's by default.
        describe: model name to its facts; the library's by default.
        limits: what visitors may ask for.
        preview: experiment to what answers for another range at once; the library's by default, where it runs.
        first: what the page shows before anything was computed.
        measure: ``measure(asked, cancel=flag)`` of what the panel Evidence asks for; the library's by default.
        take: ``take(wanted, cancel=flag, limit=bytes)`` of a model that is exported; the library's by default.
        outlook: ``outlook(wanted, limit=bytes)``, what that will be; the library's by default.
    """
    # Gradio's own statistics, which nothing here shows, would be made anew after every event, of all events so far.
    os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "1000000000")
    os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "100")
    with Page(title=TITLE, fill_width=True, analytics_enabled=False, delete_cache=(3600, 86400)) as page:
        shown = first()
        layout = _place(shown)
        live = Live(layout, run_function or library.run, describe or library.describe, limits, shown,
                    measure or library.measure, take or library.take, outlook or library.outlook)
        finished = _wire_run(page, layout, live)
        live.forms = Forms(live)
        _wire_forms(layout, live.forms)
        opening = Opening(live)
        page.language_of = live.sessions.language
        _wire_opening(page, layout, opening, live)
        source = preview or (library.preview if run_function is None else _none)
        _wire_preview(layout, Previewing(live, opening, source), finished)
        for name, panel in layout.panels.items():
            if hasattr(panels.module(name), "wire"):
                panels.module(name).wire(panel, live)
        _wire_language(page, layout, opening)
        Endpoints(live).place()
    page.shown = partial(_first_texts, live)
    _fill(live)
    # A handler that waits for a run takes a place: were there too few, nobody's range change would be answered.
    page.queue(max_size=limits.watchers, default_concurrency_limit=limits.sessions)
    return page


def look_and_feel(limits: Limits = ALONE) -> dict[str, Any]:
    """Return what belongs to ``launch()``: theme with system fonts, style sheets, and nothing that phones home."""
    sans = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Liberation Sans", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "Liberation Mono", "monospace")
    theme = gr.themes.Base(primary_hue="violet", neutral_hue="zinc", font=sans, font_mono=mono, radius_size="sm")
    return {
        "theme": theme, "css_paths": sorted(ASSETS.glob("*.css")), "footer_links": ["settings"], "run_history": False,
        "enable_monitoring": False, "max_file_size": limits.upload, "max_threads": max(40, limits.watchers),
        "app_kwargs": {"middleware": [Middleware(Compressed), Middleware(Speaking)]},
    }


def _place(first: Record | None) -> Layout:
    placed: dict[str, Any] = {}
    with gr.Row(elem_classes="gl-head", equal_height=False):
        parts.worded(gr.HTML, words={"value": _head}, min_width=300)
        menu = lesson.place_menu()
        line = status.build(precomputed=first is not None)
    with gr.Row(elem_classes="gl-page", equal_height=False):
        with gr.Column(elem_classes="gl-side", elem_id="gl-side", min_width=280, scale=0):
            side = controls.build()
        with gr.Column(elem_classes="gl-main", elem_id="gl-main", min_width=320, scale=1):
            taught = lesson.build(menu)
            with gr.Row(elem_classes="gl-first", equal_height=True):
                for name in panels.FIRST:
                    with _frame(name, min_width=320):
                        placed[name] = panels.module(name).build()
                        if name == panels.FIRST[-1]:
                            line.notices.render()
            for name in panels.PANELS[len(panels.FIRST):]:
                with _frame(name):
                    placed[name] = panels.module(name).build()
            shared = share.build()
    return Layout(side, line, shared, bus.build(first.source if first is not None else "live"), taught, placed)


def _head() -> str:
    return f"<header class='gl-top'><h1>{TITLE}</h1><p>{say('page.lead')}</p></header>"


def _frame(name: str, **options: Any) -> gr.Column:
    # What no run fills says itself what it shows: it is neither precomputed nor of the past.
    own = [] if panels.module(name).PART else ["gl-own"]
    return gr.Column(elem_classes=["gl-panel", *own], elem_id=f"gl-panel-{name}", **options)


def _fill(live: Live) -> None:
    """Put the first record's texts, map and blocks into the page itself; pickers and pictures follow it."""
    if live.first is None:
        return
    for component, value in live.show(live.first, Session()).items():
        if isinstance(value, (str, int)):
            component.value = value
        elif isinstance(value, gr.components.Component):
            live.first_pickers[component] = value


def _first_texts(live: Live) -> dict[Any, Any]:
    """Return the texts that the page opens with in the language that is spoken here."""
    layout = live.layout
    shown = live.show(live.first, Session()) if live.first is not None else {}
    said = {each: value for each, value in shown.items() if isinstance(value, str)}
    return said | controls.told(layout.controls, DEFAULT) | {layout.lesson.menu: lesson.menu(language())}


def _wire_run(page: Page, layout: Layout, live: Live) -> list[Dependency]:
    finished = []
    side, line = layout.controls, layout.status.line
    started = side.run.click(live.start, layout.inputs(), [line, layout.bus, side.run, side.stop], **PRIVATE)
    for trigger in (started.then, layout.bus.resume):
        trigger(live.follow, None, [line, layout.bus, layout.generations.columns], **WATCHING)
        # One event per part and not one generator for all: what a generator has yielded is changed in place by its
        # next yield, and a plot that is still being mounted then loses its value.
        after = trigger
        for part in DRAWN:
            after = after(live.drawing(part), None, [*layout.outputs(part), layout.bus], **WATCHING).then
        ended = [side.run, side.stop, layout.runs.table, *share.shows(layout.share)]
        finished.append(after(live.finish, None, ended, **WATCHING))
    side.stop.click(live.stop, None, [line], **PRIVATE)
    page.unload(live.leave)
    return finished


def _wire_forms(layout: Layout, forms: Forms) -> None:
    side, blocks = layout.controls, layout.layer_map
    written = [blocks.first, blocks.last, blocks.remove, blocks.problem]
    # A person's choice only: a link that names a model of the Hub must not fetch anything.
    side.model.input(forms.describe, [side.model, side.tokens, blocks.remove], [side.facts, blocks.map, *written],
                     **LATEST)
    gr.on([side.text.change, side.tokens.change], forms.text, [side.text, side.tokens], [side.about], **LATEST)
    side.upload.upload(forms.upload, [side.upload], [side.text], **PRIVATE)
    side.criterion.change(forms.criterion, [side.criterion], [side.count], **PRIVATE)


def _none(experiment: Experiment) -> None:
    """Stand in for previews where the runs are not the library's."""


def _wire_preview(layout: Layout, previewing: Previewing, finished: list[Dependency]) -> None:
    inputs, side, map_ = layout.inputs(), layout.controls, layout.layer_map
    shown = [c for name in SHOWN for c in panels.components(layout.panels[name])]
    # Straight from the map, not by way of its forms: each hop through gradio takes longer than the numbers. The forms
    # follow, and with them the pictures.
    map_.map.pick(previewing.from_map, [map_.map, *inputs], [*shown, layout.bus], **EACH)
    changed = gr.on([map_.remove.change, side.methods.change], previewing.quick, inputs, [*shown, layout.bus], **EACH)
    drawn = changed.then(previewing.bars, None, [layout.boundary.bars], **PRIVATE)
    answered = drawn.then(previewing.rest, inputs, [*shown, layout.bus], **PRIVATE)
    for idle in (answered, *finished):
        idle.then(previewing.prepare, None, None, **PRIVATE)


def _wire_language(page: Page, layout: Layout, opening: Opening) -> None:
    worded = (each for each in page.blocks.values() if hasattr(each, "worded"))
    opening.worded = [each for each in worded if each is not layout.status.line]
    side, shared, runs = layout.controls, layout.share, layout.runs
    said = [*opening.worded, *layout.outputs(), layout.bus, side.plan, side.facts, side.about, runs.table,
            *share.followers(shared), *share.shows(shared)]
    layout.bus.language(opening.reword, layout.inputs(), list(dict.fromkeys(said)), **PRIVATE)


def _wire_opening(page: Page, layout: Layout, opening: Opening, live: Live) -> None:
    inputs, side = layout.inputs(), layout.controls
    everything = list(dict.fromkeys([*layout.outputs(), *inputs, layout.status.line, layout.bus, side.run, side.stop,
                                     side.facts, *share.followers(layout.share), *share.shows(layout.share)]))
    if live.first is None:  # an empty number opens as 0, which is a block
        blocks = layout.layer_map
        page.load(None, None, [blocks.first, blocks.last], js="() => [null, null]", **PRIVATE)
    opened = page.load(opening.open, None, everything, **PRIVATE)
    teaching = Teaching(opening, layout.lesson)
    told = [*everything, *panels.components(layout.lesson)]
    opened.then(teaching.open, [layout.lesson.bar], told, js=lesson.KEPT, **PRIVATE)
    for part in (layout.lesson.menu, layout.lesson.bar, layout.lesson.question):
        part.act(teaching.act, None, told, **EACH)
    layout.bus.near(opening.near, None, layout.outputs(), **EACH)
    layout.runs.table.act(opening.act, None, everything, **PRIVATE)
    share.wire(layout.share, Sharing(live, opening), everything)
    followers = [*share.followers(layout.share), layout.bus, side.plan]
    gr.on([each.change for each in inputs], opening.changed, inputs, followers, **LATEST)
