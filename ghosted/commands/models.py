"""``models``: which models are offered, and what does one of them need here?"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import models
from ghosted.errors import ResourceError
from ghosted.progress import Progress

HELP = "list the models, or say what one of them needs"
ORDER = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="catalogue name, owner/name, folder or .gguf")
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit on the Hub")


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Return the catalogue, or the facts of one model: from its config alone, nothing large is fetched.

    Raises:
        ModelError: the model cannot be found or used here.
        ResourceError: there is no network.
    """
    if args.name is None:
        return {"models": [entry.to_json() for entry in models.catalogue()]}
    on_event(Progress("reading about the model", 0, 1))
    facts = models.describe(args.name, args.revision, refuse_too_large=False)
    refusal = None
    try:
        facts.check_memory()
    except ResourceError as error:
        refusal = str(error)
    return {"models": [facts.to_json() | {"fits": refusal is None, "refusal": refusal}]}


def table(payload: dict[str, Any]) -> str:
    """Return the catalogue as a table, or the facts of one model as a list."""
    found = payload["models"]
    if len(found) == 1 and "fits" in found[0]:
        return _facts(found[0])
    wide = max(len(m["name"]) for m in found)
    lines = [f"{'model':<{wide}}  {'parameters':>10}  {'blocks':>6}  {'licence':<17}  note"]
    for m in found:
        gated = " Gated: accept its licence on the Hub first." if m["gated"] else ""
        lines.append(f"{m['name']:<{wide}}  {_count(m['parameters']):>10}  {m['blocks']:>6}  {m['licence']:<17}  "
                     f"{m['note']}{gated}")
    return "\n".join([*lines, "", "Any owner/name of the Hub, a local folder and a local .gguf work, too."])


def _facts(m: dict[str, Any]) -> str:
    download = "not known" if m["download_bytes"] is None else _bytes(m["download_bytes"])
    rows = [
        ("model", m["label"]),
        ("architecture", m["architecture"]),
        ("blocks", f"{m['blocks']} (0 to {m['blocks'] - 1})"),
        ("width C", f"{m['width']}"),
        ("vocabulary", f"{m['vocabulary']:,} tokens"),
        ("context", "no limit" if m["context"] is None else f"{m['context']:,} tokens"),
        ("parameters", f"{m['parameters']:,}"),
        ("weights", f"{_bytes(m['weights_bytes'])} in {m['dtype']}"),
        ("memory needed", f"about {_bytes(m['memory_bytes'])}"),
        ("to fetch", "nothing" if m["download_bytes"] == 0 else download),
        ("ready", "yes" if m["cached"] else "no; the first run fetches or converts it once"),
    ]
    lines = [f"{name:<14}{value}" for name, value in rows]
    return "\n".join(lines if m["fits"] else [*lines, "", m["refusal"]])


def _count(number: float) -> str:
    return f"{number / 1e9:.3g} B" if number >= 1e9 else f"{number / 1e6:.3g} M"


def _bytes(number: float) -> str:
    return f"{number / 1e9:.3g} GB" if number >= 1e9 else f"{number / 1e6:.3g} MB"
