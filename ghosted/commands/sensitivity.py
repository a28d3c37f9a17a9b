"""``sensitivity``: error and perplexity against the number of calibration sequences, and against the source text."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.commands.compare import number
from ghosted.progress import drain
from ghosted.sensitivity import NEAR, SIZES, sensitivity

HELP = "measure how much calibration text is enough, and whether its source matters"
ORDER = 37


def whole_numbers(text: str) -> list[int]:
    """Read a comma-separated list of whole numbers."""
    return [int(part) for part in text.split(",") if part.strip()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    fields = ("remove", "methods", "ridge", "rank", "window", "calibration_window", "held_out", *flags.SCORING)
    flags.add_flags(parser, (*flags.MODEL, *fields))
    parser.add_argument("--calibration", "--texts", dest="texts", nargs="+", default=["python-docs"], metavar="TEXT",
                        help="calibration texts: names or paths (default python-docs)")  # fmt: skip
    parser.add_argument("--sequences", type=whole_numbers, default=list(SIZES), metavar="A,B",
                        help=f"sequences to fit on (default {','.join(map(str, SIZES))})")  # fmt: skip
    parser.set_defaults(methods=["ghosted"], remove="")


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Measure."""
    experiment = flags.experiment_from(args)
    found = drain(sensitivity(experiment, args.texts, args.sequences), on_event)
    return {"experiment": experiment.to_json(), "sources": [source.to_json() for source in found], "near": NEAR}


def table(payload: dict[str, Any]) -> str:
    """Return one block of lines per text and method."""
    lines = []
    for source in payload["sources"]:
        protocol = source["protocol"]
        lines.append(f"{source['text']}, {source['method']}")
        lines.append(f"{'sequences':>10}{'tokens':>10}{'held-out':>10}{'median':>10}{'perplexity':>12}")
        for size in source["sizes"]:
            lines.append(f"{size['sequences']:>10}{size['tokens']:>10,}{number(size['held_out']):>10}"
                         f"{number(size['median']):>10}{number(size['perplexity']):>12}")  # fmt: skip
        where = source["saturates"]
        lines.append("nothing to repair" if where is None else
                     f"saturates at {where} sequences: held-out error within "
                     f"{100 * (payload['near'] - 1):.0f} % of the largest's")  # fmt: skip
        lines.append(f"perplexity on {protocol['text']}: {protocol['windows']} windows of {protocol['window']}; dense "
                     f"{number(source['dense'])}, plain pruning {number(source['plain'])}")  # fmt: skip
        lines += [f"! {source['note']}"] if source["note"] else []
        lines.append("")
    return "\n".join(lines).rstrip()
