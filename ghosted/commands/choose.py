"""``choose``: which blocks would a criterion remove, and by what margin?"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.errors import InputError
from ghosted.progress import drain
from ghosted.run import run as run_experiment

HELP = "let a criterion choose the blocks to remove"
ORDER = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, ("criterion", "count", *flags.MODEL, *flags.CALIBRATION))


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Return the choice as JSON.

    Raises:
        InputError: no criterion or no count was given.
    """
    args.methods = ["none"]
    if args.criterion is None or args.count is None:
        raise InputError("Name a criterion and a count, such as --criterion cosine --count 5.")
    if args.criterion == "manual":
        raise InputError("The criterion manual chooses nothing; take --criterion cosine.")
    return drain(run_experiment(flags.experiment_from(args), parts=()), on_event).choice.to_json()


def table(payload: dict[str, Any]) -> str:
    """Return the best candidates, best first."""
    sign = -1 if payload["higher_is_better"] else 1
    ranked = sorted(payload["candidates"], key=lambda c: sign * c["score"])[:10]
    lines = [f"remove {payload['remove']}   score {payload['score']:.4f}"]
    if payload["runner_up"]:
        tie = "  (near tie)" if payload["runner_up"]["near_tie"] else ""
        lines.append(f"runner-up {payload['runner_up']['remove']}   score {payload['runner_up']['score']:.4f}{tie}")
    return "\n".join([*lines, "", *(f"{c['remove']:>8}  {c['score']:.4f}" for c in ranked)])
