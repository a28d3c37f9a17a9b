"""``export``: write the repaired model as an adapter, a checkpoint, merged weights or a mergekit recipe."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.errors import InputError
from ghosted.progress import drain

HELP = "write the repaired model: adapter, checkpoint, merged weights or mergekit recipe, checked by reading it again"
ORDER = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, (*flags.MODEL, *flags.BLOCKS, *flags.REPAIR, *flags.CALIBRATION, *flags.SCORING))
    parser.add_argument("--format", metavar="F", help="adapter, checkpoint, merged or mergekit (default adapter)",
                        default="adapter")  # fmt: skip
    parser.add_argument("--out", metavar="DIR", help="the folder to make")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier export in that folder")


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Run the experiment of one method and export it.

    Raises:
        InputError: no blocks, no folder, or several methods were named, or the folder is taken.
        NotDefined: the format does not apply.
        ResourceError: the folder cannot be written, or disk or memory are not enough.
    """
    from ghosted import formats
    from ghosted.repaired import repaired

    flags.require_blocks(args, some=True)
    if not args.out:
        raise InputError("Name the folder to make, such as --out my-model.")
    if args.methods is None:
        raise InputError("Name the method to export, such as --method ghosted.")
    experiment = flags.experiment_from(args)
    formats.prepare(experiment, args.format, args.out, args.overwrite)
    model = drain(repaired(experiment), on_event)
    done = drain(formats.export(model, args.format, args.out, overwrite=args.overwrite), on_event)
    return done.to_json() | {"removed": str(model.removed), "method": model.method, "warnings": model.run.warnings}


def table(payload: dict[str, Any]) -> str:
    """Return the files with their sizes, and what the check found."""
    lines = [f"{payload['path']}: {payload['method']}, blocks {payload['removed'] or 'none'} removed"]
    lines += [f"  {name:<36}{size:>16,} bytes" for name, size in payload["files"].items()]
    check = payload["check"]
    if "logits" in check:
        lines.append(f"read again in a new process: logits differ by {check['logits']:.3g}, perplexity by "
                     f"{100 * check['perplexity']:.3g} %, no key missing, generation the same with its cache")
    return "\n".join([*lines, *(f"! {warning}" for warning in payload["warnings"])])
