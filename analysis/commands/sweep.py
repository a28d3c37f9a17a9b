"""``sweep``: many evaluations from one YAML file, as a table like the papers', CSV, Markdown and one HTML report."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis import sweeps
from ghosted import distributed, flags
from ghosted.errors import InputError
from ghosted.progress import drain
from ghosted.sweep import Spec, sweep, write_whole
from ghosted.sweep_cost import cost

HELP = "run a table of experiments from a YAML file; goes on where it was stopped"
ORDER = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("spec", metavar="SPEC.yaml", help="the sweep; see assets/sweeps")
    parser.add_argument("--out", metavar="DIR", help="folder for finished cells and the table")
    parser.add_argument("--dry-run", action="store_true", help="show cells, memory and time; compute nothing")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cells at once (default 1)")
    parser.add_argument("--calibration", nargs="+", metavar="TEXT", help="calibration texts instead of the spec's")
    parser.add_argument("--evaluate", nargs="+", metavar="TEXT", help="scored texts instead of the spec's")
    parser.add_argument("--tasks", type=flags.names, metavar="A,B", help="tasks instead of the spec's")
    parser.add_argument("--limit", type=int, metavar="N", help="items per task instead of the spec's")
    parser.add_argument("--include-path", action="append", metavar="DIR", help="folder with task files")


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Run what is left of the sweep and write its table, or only say what it will take.

    Raises:
        InputError: the spec makes no sense, or no folder was named.
    """
    spec = Spec.read(args.spec, calibration=args.calibration, evaluate=args.evaluate, tasks=args.tasks,
                     limit=args.limit, include_path=args.include_path)  # fmt: skip
    if args.dry_run:
        return _planned(spec)
    if not args.out:
        raise InputError("Name a folder for the results, such as --out results, or give --dry-run.")
    outcomes = drain(sweep(spec, args.out, args.jobs), on_event)
    found, protocol = sweeps.rows(outcomes), sweeps.protocols(outcomes)
    folder, when = Path(args.out).expanduser(), datetime.datetime.now().astimezone().strftime("%Y-%m-%d")
    if distributed.is_first():
        write_whole(folder / "results.csv", sweeps.as_csv(found))
        write_whole(folder / "results.md", sweeps.as_markdown(found, protocol))
        write_whole(folder / "report.html", sweeps.as_html(spec.name, found, protocol, when))
    return {"name": spec.name, "cells": len(outcomes), "rows": found, "protocol": protocol,
            "failed": [f"{o.cell.describe()}: {o.failed}" for o in outcomes if o.failed],
            "files": ["results.csv", "results.md", "report.html"]}  # fmt: skip


def _planned(spec: Spec) -> dict[str, Any]:
    cells = []
    for cell in spec.cells():
        e, its = cell.experiment, cost(cell)
        cells.append({"model": e.model, "calibration": e.text, "criterion": cell.label, "by": e.criterion,
                      "count": e.count, "blocks": its.blocks, "methods": list(e.methods), "tokens": e.tokens,
                      "memory_bytes": its.memory_bytes, "seconds": its.seconds})  # fmt: skip
    return {"name": spec.name, "planned": cells}


def table(payload: dict[str, Any]) -> str:
    """Return the papers' table, or the plan."""
    if "planned" in payload:
        return _plan_table(payload)
    lines = [sweeps.as_text(payload["rows"]), "", *payload["protocol"], *(f"! {line}" for line in payload["failed"])]
    return "\n".join([*lines, "", f"{payload['cells']} cells; wrote {', '.join(payload['files'])}"])


def _plan_table(payload: dict[str, Any]) -> str:
    lines = [f"{'model':<30}{'blocks':>12}  {'criterion':<28}{'by':<18}{'methods':>8}{'memory':>10}{'time':>12}"]
    for c in payload["planned"]:
        memory = "–" if c["memory_bytes"] is None else f"{c['memory_bytes'] / 1e9:.1f} GB"
        time = "–" if c["seconds"] is None else _duration(c["seconds"])
        blocks = f"{c['count']} of {c['blocks'] or '?'}"
        lines.append(f"{c['model']:<30}{blocks:>12}  {c['criterion']:<28}{c['by']:<18}{len(c['methods']):>8}"
                     f"{memory:>10}{time:>12}")  # fmt: skip
    known = [c["seconds"] for c in payload["planned"] if c["seconds"] is not None]
    total = f", about {_duration(sum(known))} on this machine one after the other" if known else ""
    return "\n".join([*lines, "", f"{len(payload['planned'])} cells{total}; without what the criteria cost beside the "
                      "calibrating pass."])  # fmt: skip


def _duration(seconds: float) -> str:
    for name, unit, most in (("s", 1, 100), ("min", 60, 6000), ("h", 3600, 360_000)):
        if seconds < most:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:,.0f} days"
