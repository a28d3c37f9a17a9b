"""The numbers as tables: a zip with one CSV per table and one per picture, whose rows are the plotted points."""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis import tables
from analysis.export.pictures import Figure, columns, rows
from analysis.names import method_label
from analysis.portable import shareable
from analysis.record import Record
from ghosted.results import MethodResult, Residual, Run

NAME = "csv"
SUFFIX = ".zip"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of every file in the zip, so that equal runs give equal files."""


def write(record: Record, pictures: Mapping[str, Figure], uploads: Mapping[str, str] | None = None) -> bytes:
    """Return the zip.

    Args:
        record: the run.
        pictures: the page's figures of it by name.
        uploads: the texts that may be named by their sha256, sha256 to path.
    """
    run = record.run
    settings = json.dumps(shareable(run.experiment, uploads).to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    files = {"README.txt": _readme(record), "settings.json": settings + "\n"}
    files |= {f"{name}.csv": table(found) for name, found in _tables(run).items() if found}
    for name, figure in pictures.items():
        points = rows(figure)
        files[f"figures/{name}.csv"] = table(points, columns(points))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, content.encode())
    return packed.getvalue()


def table(found: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None) -> str:
    """Return rows as CSV with a head; numbers in full precision, an empty cell where there is none.

    Text that a spreadsheet would take for a formula gets an apostrophe in front.

    Args:
        found: the rows.
        names: the columns; those of the rows by default.
    """
    names = list(names or dict.fromkeys(name for row in found for name in row))
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(names)
    lines.writerows([_cell(row.get(name)) for name in names] for row in found)
    return written.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, (list, dict)):
        value = json.dumps(value)
    if isinstance(value, str):
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return value


def _tables(run: Run) -> dict[str, list[dict[str, Any]]]:
    scored, choice = list(run.dense_perplexity), run.choice
    original = [{"method": "original", "text": text, "perplexity": run.dense_perplexity[text], "damage": 0.0}
                for text in scored]
    return {
        "methods": original + [row for m in run.methods for row in _method_rows(m, scored)],
        "gaps": [{"method": m.method, "gap": gap} | _residual(left)
                 for m in run.methods for gap, left in m.gaps.items()],
        "candidates": [{"criterion": choice.criterion, "remove": c.remove, "score": c.score}
                       for c in choice.candidates] if choice else [],
        "protocols": [{"name": name} | vars(protocol) for name, protocol in run.protocols.items()],
        "generations": [
            {"method": c.method, "token": at, "id": token, "text": _at(c.pieces, at), "kl": _at(c.kl, at),
             "surprisal": _at(c.surprisal, at)}
            for c in run.columns for at, token in enumerate(c.tokens)
        ],
    }


def _at(values: Sequence[Any], at: int) -> Any:
    return values[at] if at < len(values) else None


def _method_rows(method: MethodResult, scored: list[str]) -> list[dict[str, Any]]:
    fixed = _residual(method.residual or Residual(None, None, None)) | {
        "added_parameters": None if method.not_defined else method.added_parameters, "rank": method.rank,
        "dof": method.dof, "ridge": method.ridge, "condition": method.condition, "not_defined": method.not_defined,
    }
    return [
        {"method": method.method, "text": text, "perplexity": method.perplexity.get(text),
         "damage": method.damage.get(text)} | fixed for text in scored or [None]
    ]


def _residual(left: Residual) -> dict[str, Any]:
    return {"error_calibration": left.calibration, "error_held_out": left.held_out, "error_median": left.median}


def _readme(record: Record) -> str:
    run = record.run
    said = [
        "Ghosted Layers Explorer: the numbers of one run.", "",
        f"Model: {run.model_label}, {run.dtype}", f"Blocks: {run.removed.describe(run.blocks)}",
        f"Methods: {', '.join(method_label(m.method) for m in run.methods)}",
        f"Computed: {record.when} ({record.source})",
        "", *(tables.protocol_line(protocol) for protocol in run.protocols.values()),
        *(f"Warning: {warning}" for warning in run.warnings), "",
        "settings.json can be imported on the page. methods.csv: perplexity per scored text, damage in nats, errors at",
        "the boundary relative to plain pruning. figures/: one table per picture; each row is a plotted point, and",
        "customdata is what a hover shows besides. Text that begins like a formula has an apostrophe in front.",
    ]
    return "\n".join(said) + "\n"
