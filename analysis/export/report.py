"""One HTML file that shows a run without a network, a server or this program.

Everything is inside: the style, plotly.js once, the figures as data. The file's own policy forbids it to load anything,
and runs only the scripts that were written here, by their hash; what a model or a person wrote is text in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from analysis import code, tables
from analysis.columns import text_columns
from analysis.export.pictures import Figure
from analysis.portable import shareable, without_folders
from analysis.record import Record
from ghosted.experiment import Experiment

NAME = "report"
SUFFIX = ".html"
ASSETS = Path(__file__).parents[2] / "assets"
HEIGHT = 360
"""Pixels of a figure that does not say its own."""
LEAD = "One run of the Ghosted Layers Explorer, with everything that its page showed. This file needs no network."


def write(record: Record, pictures: Mapping[str, Figure], uploads: Mapping[str, str] | None = None) -> bytes:
    """Return the file.

    Args:
        record: the run.
        pictures: the page's figures of it by name.
        uploads: the texts that may be named by their sha256, sha256 to path.
    """
    run, named = record.run, without_folders(record.run.experiment)
    title = f"{run.model_label}, {run.removed.describe(run.blocks)}"
    styles = (*sorted(ASSETS.glob("*.css")), ASSETS / "report" / "report.css")
    style = "\n".join(path.read_text("utf-8") for path in styles)
    figures = "".join(_section(_title(name), _figure(name, figure)) for name, figure in pictures.items())
    scripts = (get_plotlyjs(), (ASSETS / "report" / "report.js").read_text("utf-8"))
    body = "".join((
        f"<header class='gl-top'><h1>{escape(title)}</h1><p>{LEAD}</p></header>",
        "<button type='button' id='gl-theme'>Dark or light</button>",
        f"<p class='gl-note'>{escape(_origin(record))} {tables.self_check(run)}</p>",
        _section("What to know", tables.notices(run)),
        _section("What do the models write?", _texts(record)),
        _section("What did it cost?", tables.numbers_table(run) + tables.protocol_lines(run) if run.methods else ""),
        f"<div class='gl-figures'>{figures}</div>",
        _section("Settings", _settings(shareable(run.experiment, uploads))),
        _section("The same run on the command line", f"<pre>{escape(code.command_line(named))}</pre>"),
        _section("The same run in Python", f"<pre>{escape(code.python_code(named))}</pre>"),
    ))
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_policy(scripts)}\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='referrer' content='no-referrer'>"
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main class='gl-report'>{body}</main>"
        + "".join(f"<script>{script}</script>" for script in scripts) + "</body></html>\n"
    ).encode("utf-8", "replace")


def _policy(scripts: tuple[str, ...]) -> str:
    """Nothing may be loaded; only these scripts run."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; " \
           "base-uri 'none'; form-action 'none'"


@cache
def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _section(title: str, inner: str) -> str:
    return f"<section class='gl-panel'><h2 class='gl-h'>{escape(title)}</h2>{inner}</section>" if inner else ""


def _figure(name: str, figure: Figure) -> str:
    """A figure as data that no parser of HTML can take for a tag; the report's script draws it."""
    said = json.dumps(_plain(figure), allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
    said = said.replace("&", "\\u0026")
    height = int(figure.get("layout", {}).get("height") or HEIGHT)
    return (
        f"<div class='gl-plot'><div style='height:{height}px' data-figure='{escape(name)}' data-testid='plotly' "
        f"role='img' aria-label='{escape(_title(name))}'></div><script type='application/json'>{said}</script></div>"
    )


def _plain(figure: Figure) -> Figure:
    """Without WebGL traces, which build functions from text; the policy forbids that."""
    flat = [trace | {"type": str(trace.get("type", "scatter")).removesuffix("gl")} for trace in figure.get("data", ())]
    return {"data": flat, "layout": figure.get("layout", {})}


def _texts(record: Record) -> str:
    run = record.run
    if not run.columns:
        return ""
    prompt = f"<p class='gl-read'>Prompt: <q class='gl-prompt'>{escape(run.experiment.prompt)}</q></p>"
    return prompt + text_columns(run.columns)


def _settings(experiment: Experiment) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{escape(name.replace('_', ' '))}</th><td>{escape(_said(value))}</td></tr>"
        for name, value in experiment.to_json().items()
    )
    return f"<div class='gl-scroll'><table class='gl-table gl-settings'><tbody>{rows}</tbody></table></div>"


def _said(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "–"
    return "–" if value in (None, "") else "yes" if value is True else "no" if value is False else str(value)


def _origin(record: Record) -> str:
    seconds = sum(record.run.seconds.values())
    took = f", in {seconds:.0f} s" if seconds else ""
    return f"Computed {record.when or 'at an unknown time'} ({record.source}){took}; {record.run.dtype}."


def _title(name: str) -> str:
    words = name.replace("-", " ").replace("_", " ")
    return words[:1].upper() + words[1:]
