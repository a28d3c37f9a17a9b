"""Compute what the page shows before anything was run, or the runs of the lessons, and write them into ``assets/``.

The text is the model's own, so nothing of anybody else's is in the files.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from analysis.precomputed import FILE
from analysis.record import Record
from analysis.settings import DEFAULT
from ghosted.experiment import Experiment

HELP = "make the runs that the page shows before anything was computed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the choice between the page's first run and those of the lessons."""
    parser.add_argument("--lessons", action="store_true", help="the lessons' runs instead of the page's first one")


def run(args: argparse.Namespace, on_event: Any) -> dict[str, Any]:
    """Run the experiments on generated text and write their records."""
    from ghosted.progress import drain
    from ghosted.run import run as run_experiment

    written, first = [], {FILE: dataclasses.replace(DEFAULT, text="generated")}
    for file, experiment in (_lessons() if args.lessons else first).items():
        found = drain(run_experiment(experiment), on_event)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(Record.of(found, "precomputed").to_json(), ensure_ascii=False, allow_nan=False)
        file.write_text(text + "\n", "utf-8")
        written.append({"file": file.name, "bytes": len(text.encode()) + 1, "experiment": experiment.to_json(),
                        "remove": str(found.removed), "seconds": sum(found.seconds.values())})
    return {"written": written}


def table(payload: dict[str, Any]) -> str:
    """Return the object for people."""
    return "\n".join(
        f"Wrote {each['file']} ({each['bytes'] / 1000:.0f} kB): blocks {each['remove']} removed, "
        f"{each['seconds']:.0f} s."
        for each in payload["written"]
    )


def _lessons() -> dict[Path, Experiment]:
    from analysis.lessons import RUNS, experiments

    return {RUNS / f"{name}.json": experiment for name, experiment in experiments().items()}
