"""``bench``: figures of speed and size, each a ratio measured within one run.

One file each in :mod:`ghosted.bench`, and in ``analysis.bench`` those that drive the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import machine
from ghosted.experiment import Experiment
from ghosted.registry import gather, one_of

HELP = "measure speed and size as ratios within one run"
ORDER = 50
PACKAGES = ("ghosted.bench", "analysis.bench")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("figure", nargs="?", metavar="NAME", help="one figure; default: all")
    parser.add_argument("--model", default="smollm2-135m", metavar="NAME", help="model to measure")
    parser.add_argument("--tokens", type=int, metavar="N", help="tokens per measurement (default: the figure's own)")
    parser.add_argument("--window", type=int, default=512, metavar="N", help="tokens per window")


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Measure one figure, or all."""
    chosen = gather(PACKAGES)
    if args.figure is not None:
        chosen = {args.figure: one_of(chosen, args.figure, "bench figure")}
    figures = {}
    for name, module in chosen.items():
        tokens = getattr(module, "TOKENS", Experiment.tokens) if args.tokens is None else args.tokens
        experiment = Experiment(model=args.model, tokens=tokens, window=args.window)
        figures[name] = module.measure(experiment, on_event)
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
