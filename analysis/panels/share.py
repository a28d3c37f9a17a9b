"""How is this view passed on? Copy its link, show its code, export it to a file, import one."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from analysis import code
from analysis.export import csv, report
from analysis.export import json as as_json
from analysis.link import Flags, address_of, query_of
from analysis.names import removes
from analysis.panels import controls, parts, take
from analysis.record import Record
from analysis.scripts import script, words_in
from analysis.settings import DEFAULT
from analysis.speech import say
from analysis.words import said
from ghosted.experiment import Experiment

FORMATS = {"csv": csv, "json": as_json, "report": report}
"""What can be exported, by name; each module has ``write`` and ``SUFFIX``."""
LONGEST = 6_000
"""Letters of a query that every server on the way passes on; a longer prompt stays out of the address."""
FETCH = (
    "(file) => { if (!file?.url) return; const a = document.createElement('a'); a.href = file.url; "
    "a.download = file.orig_name || ''; document.body.append(a); a.click(); a.remove(); }"
)
"""Downloads what was just written."""


@dataclass(frozen=True)
class SharePanel:
    """The panel's components."""

    link: gr.HTML
    csv: gr.Button
    json: gr.Button
    report: gr.Button
    file: gr.DownloadButton
    upload: gr.UploadButton
    shown: gr.HTML
    code: gr.HTML
    take: take.TakePanel


def build() -> SharePanel:
    """Place the panel."""
    with gr.Column(elem_classes="gl-panel", elem_id="gl-panel-share"):
        parts.heading("share")
        with gr.Row(elem_classes="gl-sharing"):
            link = _link()
            buttons = [_button(name) for name in FORMATS]
            upload = parts.worded(gr.UploadButton, words={"label": "share.import"}, size="sm", elem_id="gl-import",
                                  file_types=[".json", ".safetensors", ".zip"], min_width=110, scale=0)
        shown = parts.worded(gr.HTML, words={"value": lambda: note(say("share.invitation"))}, elem_id="gl-shown")
        with parts.worded(gr.Accordion, words={"label": "share.show_code"}, open=False, elem_id="gl-code"):
            shown_code = gr.HTML(code_html(DEFAULT))
        taking = take.build()
        file = gr.DownloadButton(visible=False)
    return SharePanel(link, *buttons, file, upload, shown, shown_code, taking)


def wire(panel: SharePanel, sharing: Any, everything: list[gr.Component]) -> None:
    """Wire the panel's own events.

    Args:
        panel: the panel.
        sharing: the handlers (:class:`analysis.sharing.Sharing`).
        everything: what an imported file may change.
    """
    for name in FORMATS:
        made = getattr(panel, name).click(sharing.exporting(name), None, [panel.file, *shows(panel)], **parts.UNSEEN)
        made.then(None, [panel.file], None, js=FETCH, **parts.UNSEEN)
    take.wire(panel.take, sharing.live, panel.shown)
    told = list(dict.fromkeys([*everything, panel.shown]))
    panel.upload.upload(sharing.imported, [panel.upload], told, **parts.UNSEEN)


def followers(panel: SharePanel) -> list[gr.Component]:
    """Return the components that follow the settings."""
    return [panel.link, panel.code]


def follow(
    panel: SharePanel, experiment: Experiment, uploads: Mapping[str, str] | None = None
) -> dict[Any, Any]:
    """Write the link and the code of an experiment.

    Args:
        panel: the panel.
        experiment: what the controls say.
        uploads: this visitor's texts, sha256 of the content to path.
    """
    paths = (uploads or {}).values()
    return {panel.link: link_value(experiment, uploads=uploads), panel.code: code_html(experiment, paths)}


def link_value(
    experiment: Experiment | None, flags: Flags | None = None, uploads: Mapping[str, str] | None = None
) -> str:
    """Return what the script writes into the address bar, as JSON.

    Args:
        experiment: what the controls say; ``None`` leaves the address as it is.
        flags: what the link says about the page; by default what the address says already is kept.
        uploads: this visitor's texts, sha256 of the content to path.
    """
    query, cut = None, False
    if experiment is not None:
        query = query_of(experiment, uploads)
        if cut := len(query) > LONGEST:
            query = query_of(dataclasses.replace(experiment, prompt=DEFAULT.prompt), uploads)
        query = "&".join(filter(None, (query, flags.query() if flags else "")))
    return json.dumps({"query": query, "cut": cut, "address": address_of("") if os.environ.get("SPACE_HOST") else ""})


def code_html(experiment: Experiment, uploads: Collection[str] = ()) -> str:
    """Return the code of an experiment.

    Args:
        experiment: what the controls say.
        uploads: paths of this visitor's uploads.
    """
    forms = (("share.command_line", code.command_line), ("share.python", code.python_code))
    return "".join(parts.snippet(say(name), write(experiment, uploads)) for name, write in forms)


def shows(panel: SharePanel) -> list[gr.Component]:
    """Return the components that follow the run that is shown."""
    return [panel.shown, *(getattr(panel, name) for name in FORMATS), *take.shows(panel.take)]


def show(panel: SharePanel, record: Record, method: str = "") -> dict[Any, Any]:
    """Say which run the exports hold, and let them be pressed.

    Args:
        panel: the panel.
        record: the run that is shown.
        method: what the visitor has picked to export as a model.
    """
    run = record.run
    if not run.model_label:
        return {panel.shown: note(say("share.invitation"))}
    holds = say("share.holds", model=run.model_label, removes=removes(run.removed, run.blocks),
                source=say(f"source.{record.source}"))
    shown: dict[Any, Any] = {panel.shown: note(holds, str(run.removed), record.when)}
    shown |= {getattr(panel, name): gr.Button(interactive=True) for name in FORMATS}
    return shown | take.show(panel.take, record, method)


def note(said: str, blocks: str = "", when: str = "") -> str:
    """Return a sentence under the buttons, another one for every run."""
    return f"<p class='gl-note' data-blocks='{escape(blocks)}' data-when='{escape(when)}'>{escape(said)}</p>"


def _button(name: str) -> gr.Button:
    return parts.worded(gr.Button, words={"value": f"share.{name}"}, size="sm", interactive=False,
                        elem_id=f"gl-export-{name}", min_width=110, scale=0)


def _link() -> gr.HTML:
    template = (
        f"<div class='gl-link'>{words_in('button', 'link.copy', 'gl-copy', type='button')}"
        "<span class='gl-copied' role='status'></span>"
        f"<input class='gl-link-text' type='text' readonly hidden aria-label='{said('link.label', 'en')}' "
        "data-words-aria-label='link.label'></div>"
    )
    belongs = f"const BELONGS = {json.dumps(controls.BELONGS)};\n"
    return gr.HTML(link_value(None), html_template=template, js_on_load=belongs + script("share", words="link."),
                   elem_id="gl-link", apply_default_css=False)
