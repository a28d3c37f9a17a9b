"""``bench``: figures of speed and size, each a ratio measured within one run.

One file each in :mod:`ghosted.bench`, and in ``analysis.bench`` those that drive the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import machine
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.registry import gather, one_of

HELP = "measure speed and size as ratios within one run"
ORDER = 50
PACKAGES = ("ghosted.bench", "analysis.bench")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("figure", nargs="?", metavar="NAME", help="one figure; default: all but classroom")
    parser.add_argument("--model", default="smollm2-135m", metavar="NAME", help="model to measure")
    parser.add_argument("--tokens", type=int, metavar="N", help="tokens per measurement (default: the figure's own)")
    parser.add_argument("--window", type=int, default=512, metavar="N", help="tokens per window")
    parser.add_argument("--students", type=int, default=30, metavar="N", help="of classroom: how many")
    parser.add_argument("--minutes", type=float, default=3.0, metavar="M", help="of classroom: for how long")


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Measure one figure, or all."""
    chosen = gather(PACKAGES)
    if args.figure is not None:
        chosen = {args.figure: one_of(chosen, args.figure, "bench figure")}
    else:
        chosen = {name: module for name, module in chosen.items() if not getattr(module, "ONLY_BY_NAME", False)}
    if not 1 <= args.students <= 200 or not 0 < args.minutes <= 60:
        raise InputError("A class has 1 to 200 students, and works for up to 60 minutes.")
    figures = {}
    for name, module in chosen.items():
        tokens = getattr(module, "TOKENS", Experiment.tokens) if args.tokens is None else args.tokens
        experiment = Experiment(model=args.model, tokens=tokens, window=args.window)
        options = {option: getattr(args, option) for option in getattr(module, "OPTIONS", ())}
        figures[name] = module.measure(experiment, on_event, **options)
    return figures | {"machine": machine.describe()}


def table(payload: dict[str, Any]) -> str:
    """Return one line per figure."""
    lines = []
    for name, figure in payload.items():
        if name != "machine":
            low, high = figure["spread"]
            rest = ", ".join(f"{k} {v:.3g}" for k, v in figure.items() if isinstance(v, float) and k != "ratio")
            lines.append(f"{name:<12}{figure['ratio']:.3f}  ({low:.3f} to {high:.3f})  {rest}")
    return "\n".join([*lines, "", ", ".join(f"{k} {v}" for k, v in payload["machine"].items())])
