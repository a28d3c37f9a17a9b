"""``plan``: what would a run with this model take here, in memory and time? From its config, no weights."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted import plan as plans
from ghosted.progress import Progress

HELP = "say what a run with a model takes here, from its config alone"
ORDER = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, ("model", "revision", "dtype", "batch", "methods", "tokens", "window"))
    parser.add_argument("--count", type=int, default=0, metavar="N", help="how many blocks go (default 0)")
    parser.epilog = f"Planned for without a network: {', '.join(plans.SHAPES)}."


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Return the plan.

    Raises:
        ModelError, ResourceError: the model's config cannot be had.
        InputError: a number out of range.
    """
    experiment = flags.experiment_from(args)
    on_event(Progress("reading about the model", 0, 1))
    return plans.plan(plans.facts_of(experiment.model, experiment.revision), experiment).to_json()


def table(payload: dict[str, Any]) -> str:
    """Return the plan as two short lists."""
    left = payload["blocks"] - payload["removed"]
    lines = [
        f"{payload['model']}: {payload['parameters'] / 1e9:.3g} billion parameters, {left} of {payload['blocks']} "
        f"blocks stay, C = {payload['width']:,}, {payload['dtype']}",
        f"{payload['tokens']:,} calibration tokens in windows of {payload['window']:,}; times are those of this "
        f"machine ({payload['device']})",
        "",
    ]
    lines += [f"{name.replace('_', ' '):<14}{value / 1e9:>10.2f} GB" for name, value in payload["bytes"].items()]
    lines += ["", *(f"{name:<14}{_time(value):>13}" for name, value in payload["seconds"].items())]
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
