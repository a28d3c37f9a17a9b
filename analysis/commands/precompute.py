"""Compute what the page shows before anything was run, and write it into ``assets/``.

The text is the model's own, so nothing of anybody else's is in the file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from analysis.precomputed import FILE
from analysis.record import Record
from analysis.settings import DEFAULT

HELP = "make the run that the page shows before anything was computed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the experiment is the page's default on the model's own text."""


def run(args: argparse.Namespace, on_event: Any) -> dict[str, Any]:
    """Run the page's default experiment on generated text and write its record."""
    from ghosted.progress import drain
    from ghosted.run import run as run_experiment

    experiment = dataclasses.replace(DEFAULT, text="generated")
    found = drain(run_experiment(experiment), on_event)
    record = Record.of(found, "precomputed")
    FILE.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False)
    FILE.write_text(text + "\n", "utf-8")
    return {"file": FILE.name, "bytes": len(text.encode()) + 1, "experiment": experiment.to_json(),
            "remove": str(found.removed), "seconds": sum(found.seconds.values())}


def table(payload: dict[str, Any]) -> str:
    """Return the object for people."""
    return (
        f"Wrote {payload['file']} ({payload['bytes'] / 1000:.0f} kB): blocks {payload['remove']} removed, "
        f"{payload['seconds']:.0f} s."
    )
