"""``generate``: what the original, the pruned and the repaired models write, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.errors import InputError
from ghosted.progress import drain
from ghosted.run import run as run_experiment

HELP = "write with the original, the pruned and the repaired models"
ORDER = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, (*flags.MODEL, *flags.BLOCKS, *flags.REPAIR, *flags.CALIBRATION, *flags.GENERATION))


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Run the experiment up to the columns.

    Raises:
        InputError: no prompt was given, or neither blocks nor a criterion were named.
    """
    flags.require_blocks(args)
    if not (args.prompt or "").strip():
        raise InputError('Give the text to continue, such as --prompt "The river".')
    finished = drain(run_experiment(flags.experiment_from(args), parts=("columns",)), on_event)
    return {"columns": [column.to_json() for column in finished.columns], "warnings": finished.warnings}


def table(payload: dict[str, Any]) -> str:
    """Return each column as a paragraph."""
    parts = []
    for c in payload["columns"]:
        where = "" if c["diverges_at"] is None else f" (diverges at new token {c['diverges_at']})"
        kl = f", mean KL {sum(c['kl']) / len(c['kl']):.3g} nats" if c["kl"] and c["method"] != "original" else ""
        parts.append(f"— {c['method']}{where}{kl}\n{c.get('error') or c['text']}")
    return "\n\n".join(parts + [f"! {w}" for w in payload["warnings"]])
