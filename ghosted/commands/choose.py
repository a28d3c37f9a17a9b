"""``choose``: which blocks would a criterion remove, and by what margin?"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.errors import InputError
from ghosted.progress import drain
from ghosted.results import Cost
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
    """Return the choice, what it cost, and the best candidates, best first."""
    sign = -1 if payload["higher_is_better"] else 1
    ranked = sorted(payload["candidates"], key=lambda c: sign * c["score"])[:10]
    cost, runner_up = Cost(**payload["cost"]), payload["runner_up"]
    lines = [f"remove {payload['remove']}   score {payload['score']:.5g}"]
    if runner_up:
        tie = "  (near tie: the margin is inside the spread over texts)" if runner_up["near_tie"] else ""
        lines.append(f"runner-up {runner_up['remove']}   score {runner_up['score']:.5g}{tie}")
    lines.append(f"cost {cost if any(vars(cost).values()) else 'nothing beside the calibrating pass'}")
    width = max(8, *(len(c["remove"]) for c in ranked))
    better = "higher" if payload["higher_is_better"] else "lower"
    return "\n".join([*lines, "", f"candidates ({better} is better)",
                      *(f"{c['remove']:>{width}}  {c['score']:.5g}" for c in ranked)])  # fmt: skip
