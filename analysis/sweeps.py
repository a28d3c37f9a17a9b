"""What does a sweep show? Its cells as rows, and the rows as text, Markdown, CSV and one HTML file.

The table is the papers': per model and number of removed blocks, a line per criterion and method with perplexities,
task accuracies, their average and what is retained of the original's. Figures are SVG; the file loads and runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from analysis.export.csv import table as csv_table
from analysis.names import method_label
from analysis.numbers import MISSING, three
from analysis.palette import look
from ghosted.results.evidence import protocol_sentence, same_protocol
from ghosted.sweep import Outcome

Row = dict[str, Any]
_FIXED = ("model", "calibration", "count", "criterion", "removed", "method")
STYLE = Path(__file__).parents[1] / "assets" / "sweeps" / "report.css"


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return a row per model's original, then one per cell and method, in the cells' order.

    Raises:
        InputError: two cells of one model scored a text by different protocols.
    """
    found: list[Row] = []
    dense: dict[tuple[str, str], dict[str, Any]] = {}
    for outcome in outcomes:
        e, result = outcome.cell.experiment, outcome.result
        if result is None:
            found.append(_row(outcome, "", {}, ()) | {"method": "failed", "note": outcome.failed})
            continue
        texts = list(result["protocol"]["texts"])
        for name, protocol in result["protocol"]["texts"].items():
            same_protocol(dense.setdefault((e.model, name), protocol), protocol)
        if not any(row["model"] == e.model and row["method"] == "dense" for row in found):
            found.append(_row(outcome, "", result["dense"], texts)
                         | {"method": "dense", "count": 0, "criterion": "", "removed": "", "calibration": ""})
        for method in result["methods"]:
            row = _row(outcome, result["experiment"]["remove"], method, texts) | {"method": method["method"]}
            found.append(row | ({"note": method["not_defined"]} if "not_defined" in method else {}))
    return found


def _row(outcome: Outcome, removed: str, scored: dict[str, Any], texts: Sequence[str]) -> Row:
    e = outcome.cell.experiment
    row: Row = {"model": e.model, "calibration": e.text.rpartition("/")[2], "count": e.count,
                "criterion": outcome.cell.label, "removed": removed, "method": ""}  # fmt: skip
    if "not_defined" in scored or not scored:
        return row
    for field, name in (("perplexity", "perplexity"), ("bits_per_byte", "bits/byte")):
        values = scored[field] if len(texts) > 1 else {text: scored[field] for text in texts}
        row |= {f"{name} {text}": values[text] for text in texts}
    for task, one in scored["tasks"].items():
        row |= {task: one["acc"], f"{task} stderr": one["stderr"]}
    if scored["tasks"]:
        row |= {"average": scored["average"], "retained": scored["retained"]}
    if "probe" in scored:
        row |= {"probe": scored["probe"]["accuracy"], "repetition": scored["probe"]["repetition"]}
    return row


def columns(found: Sequence[Row]) -> list[str]:
    """Return the columns that are shown: without spreads, bits per byte and notes."""
    names = dict.fromkeys(name for row in found for name in row if name not in (*_FIXED, "note"))
    return [name for name in names if not name.endswith(" stderr") and not name.startswith("bits/byte")]


def groups(found: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by title, the original's first in each."""
    dense = {row["model"]: row for row in found if row["method"] == "dense"}
    result: dict[str, list[Row]] = {}
    for row in found:
        if row["method"] != "dense":
            blocks = "block" if row["count"] == 1 else "blocks"
            title = f"{row['model']}, {row['count']} {blocks} removed, calibrated on {row['calibration']}"
            result.setdefault(title, [dense[row["model"]]] if row["model"] in dense else []).append(row)
    return result


def cells(row: Row, shown: Sequence[str]) -> list[str]:
    """Return a row's text: criterion, removed blocks, method, and the shown columns."""
    values = []
    for name in shown:
        value, spread = row.get(name), row.get(f"{name} stderr")
        said = f"{value:.1f} %" if name == "retained" and value is not None else three(value)
        values.append(said if spread is None else f"{said} ± {spread:.2f}")
    return [row["criterion"] or MISSING, row["removed"] or MISSING, row["method"], *values]


def as_text(found: Sequence[Row]) -> str:
    """Return the tables for a terminal."""
    shown, lines = columns(found), []
    for title, several in groups(found).items():
        grid = [["criterion", "removed", "method", *shown], *(cells(row, shown) for row in several)]
        widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
        lines += [title, ""]
        lines += ["  ".join(cell.ljust(w) if i < 3 else cell.rjust(w)
                            for i, (cell, w) in enumerate(zip(line, widths, strict=True))).rstrip()
                  for line in grid]  # fmt: skip
        lines += [f"! {row['criterion']}, {row['method']}: {row['note']}" for row in several if row.get("note")] + [""]
    return "\n".join(lines).rstrip()


def as_markdown(found: Sequence[Row], protocol: Sequence[str]) -> str:
    """Return the tables in Markdown, the protocols beneath."""
    shown, lines = columns(found), []
    for title, several in groups(found).items():
        head = ["criterion", "removed", "method", *shown]
        lines += [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * 3 + "---:|" * len(shown)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row, shown)) + " |" for row in several]
        lines.append("")
    return "\n".join([*lines, *(f"- {line}" for line in protocol), ""])


def as_csv(found: Sequence[Row]) -> str:
    """Return all rows in full precision."""
    return csv_table(found)


def protocols(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a sentence per scored text of each model and one on the tasks, each once."""
    lines: dict[str, None] = {}
    for outcome in outcomes:
        if outcome.result is None:
            continue
        e, said = outcome.cell.experiment, outcome.result["protocol"]
        lines[f"{e.model}: {e.tokens:,} calibration tokens in windows of {e.tokens_per_window}"] = None
        for p in said["texts"].values():
            lines[f"{e.model}: {protocol_sentence(p)}"] = None
        if "tasks" in said:
            about = said["tasks"]
            limit = f"first {about['limit']} items" if about["limit"] else "all items"
            lines[f"tasks: accuracy ± standard error, {limit}, zero-shot, {about['harness']}; retained: average in % "
                  "of the original's"] = None
    return list(lines)


def as_html(title: str, found: Sequence[Row], protocol: Sequence[str], when: str) -> str:
    """Return one file with tables and figures that loads and runs nothing."""
    shown, body = columns(found), []
    for name, several in groups(found).items():
        head = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in ("criterion", "removed", "method", *shown))
        lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row, shown)) + "</tr>"
                        for row in several)  # fmt: skip
        body.append(f"<h2>{escape(name)}</h2><div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{lines}"
                    "</tbody></table></div>")  # fmt: skip
        body += [bars(several, column) for column in shown if column.startswith("perplexity") or column == "retained"]
    said = "".join(f"<li>{escape(line)}</li>" for line in protocol)
    head = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta http-equiv='Content-Security-Policy' "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\"><meta name='viewport' "
        f"content='width=device-width, initial-scale=1'><title>{escape(title)}</title>"
        f"<style>{STYLE.read_text('utf-8')}</style></head>"
    )
    lead = f"A sweep of the Ghosted Layers Explorer, {escape(when)}. This file needs no network."
    return (f"{head}<body><h1>{escape(title)}</h1><p>{lead}</p>{''.join(body)}<h2>Protocol</h2><ul>{said}</ul></body>"
            "</html>\n")  # fmt: skip


def bars(several: Sequence[Row], column: str) -> str:
    """Return one bar per criterion and method, as SVG; perplexities on a logarithmic axis, the original as a line."""
    log = column.startswith("perplexity")
    drawn = [row for row in several if row["method"] != "dense" and isinstance(row.get(column), int | float)]
    dense = next((row.get(column) for row in several if row["method"] == "dense"), None)
    if not drawn:
        return ""
    scale = math.log10 if log else float
    values = [scale(row[column]) for row in drawn] + ([] if dense is None else [scale(dense)])
    low = min(values) - 0.05 * (max(values) - min(values) or 1) if log else 0.0
    span = (max(values) - low) or 1.0
    left, wide, step, top, parts = 300, 520, 18, 26, []
    height, criterion = top + step * len(drawn) + 8, None
    for number, row in enumerate(drawn):
        y, colour = top + step * number, look(row["method"]).colour
        length = max(1.0, wide * (scale(row[column]) - low) / span)
        fill = "class='ink'" if row["method"] == "none" else f"fill='{colour}'"
        name = f"{row['criterion']} · " if row["criterion"] != criterion else ""
        criterion = row["criterion"]
        parts.append(
            f"<text x='{left - 8}' y='{y + 12}' text-anchor='end'>"
            f"{escape((name + method_label(row['method']))[:48])}</text>"
            f"<rect x='{left}' y='{y + 2}' width='{length:.1f}' height='{step - 5}' {fill}/>"
            f"<text x='{left + length + 6:.1f}' y='{y + 12}'>{three(row[column])}</text>"
        )
    if dense is not None:
        x = left + wide * (scale(dense) - low) / span
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{top}' y2='{height - 6}' stroke='{look('original').colour}' "
                     "stroke-width='2' stroke-dasharray='4 3'/>")  # fmt: skip
    original = "" if dense is None else f"; dashed: the original, {three(dense)}"
    title = escape(f"{column}{', logarithmic' if log else ', %'}{original}")
    return (f"<svg viewBox='0 0 {left + wide + 80} {height}' width='{left + wide + 80}' role='img' "
            f"aria-label='{title}'><text x='0' y='14'>{title}</text>{''.join(parts)}</svg>")  # fmt: skip
