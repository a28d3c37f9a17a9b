"""``push``: upload a checked export to the Hugging Face Hub."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from ghosted.errors import InputError

HELP = "upload a checked export to the Hugging Face Hub; asks before it overwrites"
ORDER = 55


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("repo", metavar="OWNER/NAME", help="where on the Hub")
    parser.add_argument("--from", dest="folder", metavar="DIR", help="the export's folder")
    parser.add_argument("--private", action="store_true", help="make a repository that only you can see")
    parser.add_argument("--yes", action="store_true", help="replace files that are there already without asking")


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Upload the folder.

    Raises:
        InputError: no folder was named, or it is no checked export.
        Cancelled: the answer was no.
    """
    from ghosted.publishing import push

    if not args.folder:
        raise InputError("Name the export's folder, such as --from my-model.")
    return push(args.repo, args.folder, agrees=lambda question: args.yes or _agrees(question), private=args.private)


def table(payload: dict[str, Any]) -> str:
    """Return what was uploaded."""
    return f"{payload['repo']}: {len(payload['files'])} files uploaded"


def _agrees(question: str) -> bool:
    """Ask on the terminal; where nobody can answer, the answer is no."""
    if not sys.stdin.isatty():
        raise InputError(f"{question} Say --yes to do so.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
