"""One table: the fields of :class:`~ghosted.experiment.Experiment` as command-line flags."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from ghosted.errors import InputError
from ghosted.experiment import Experiment

DEFAULTS = Experiment()


def names(text: str) -> list[str]:
    """Read a comma-separated list of names."""
    return [part.strip() for part in text.split(",") if part.strip()]


def ridge(text: str) -> float | str:
    """Read a ridge: a number, or ``auto``."""
    return text if text == "auto" else float(text)


_FLAGS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "model": (("--model",), {"metavar": "NAME", "help": "catalogue name, owner/name on the Hub, folder or .gguf"}),
    "revision": (("--revision",), {"metavar": "REV", "help": "revision on the Hub"}),
    "remove": (("--remove",), {"metavar": "BLOCKS", "help": "blocks to remove: 12-16, or 3,12-17; 0-based, inclusive"}),
    "criterion": (("--criterion",), {"metavar": "NAME", "help": "let a criterion choose the blocks"}),
    "count": (("--count",), {"type": int, "metavar": "N", "help": "how many blocks the criterion removes"}),
    "methods": (("--methods", "--method"), {"type": names, "metavar": "A,B", "help": "repairs to compare"}),
    "text": (("--calibration", "--text"), {"metavar": "TEXT", "help": "calibration text: a name or a path"}),
    "tokens": (("--tokens",), {"type": int, "metavar": "N", "help": "calibration tokens"}),
    "window": (("--window",), {"type": int, "metavar": "N", "help": "tokens per window"}),
    "calibration_window": (("--calibration-window",), {"type": int, "metavar": "N", "help": "where it differs"}),
    "held_out": (("--held-out",), {"metavar": "TEXT", "help": "held-out text; default: what follows the calibration"}),
    "evaluate": (("--evaluate",), {"nargs": "+", "metavar": "TEXT", "help": "texts to score by perplexity"}),
    "windows": (("--windows",), {"type": int, "metavar": "N", "help": "windows scored per text"}),
    "ridge": (("--ridge",), {"type": ridge, "metavar": "X", "help": "λ over mean(diag G); auto: by held-out error"}),
    "rank": (("--rank",), {"type": int, "metavar": "R", "help": "rank of the low-rank method"}),
    "fit": (("--fit",), {"metavar": "F", "help": "of several gaps: independent or sequential"}),
    "distill": (("--distill",), {"type": int, "metavar": "STEPS", "help": "train on the original's logits"}),
    "dtype": (("--dtype",), {"metavar": "D", "help": "auto, float32 or bfloat16"}),
    "batch": (("--batch",), {"type": int, "metavar": "N", "help": "windows per forward pass"}),
    "seed": (("--seed",), {"type": int, "metavar": "N", "help": "seed of sampling and generated text"}),
    "prompt": (("--prompt",), {"metavar": "TEXT", "help": "what the columns continue"}),
    "chat": (("--chat",), {"action": "store_true", "help": "wrap the prompt in the model's chat template"}),
    "temperature": (("--temperature",), {"type": float, "metavar": "T", "help": "0 is greedy"}),
    "max_new_tokens": (("--max-new-tokens",), {"type": int, "metavar": "N", "help": "tokens written per column"}),
}

MODEL = ("model", "revision", "dtype", "batch", "seed")
CALIBRATION = ("text", "tokens", "window", "calibration_window", "held_out")
BLOCKS = ("remove", "criterion", "count")
REPAIR = ("methods", "ridge", "rank", "fit", "distill")
SCORING = ("evaluate", "windows")
GENERATION = ("prompt", "chat", "temperature", "max_new_tokens")


def add_flags(parser: argparse.ArgumentParser, fields: Iterable[str]) -> None:
    """Add the flags of these fields; a flag that is not given keeps the experiment's default."""
    for field in fields:
        flags, options = _FLAGS[field]
        options = dict(options, dest=field, default=None)
        default = getattr(DEFAULTS, field)
        if default not in ("", None, False, (), 0) and "help" in options:
            shown = ",".join(default) if isinstance(default, tuple) else default
            options["help"] += f" (default {shown})"
        parser.add_argument(*flags, **options)


def require_blocks(args: argparse.Namespace, some: bool = False) -> None:
    """Raise :class:`InputError` unless blocks (an empty list only without ``some``) or a criterion were named."""
    named = args.remove if some else args.remove is not None
    if not named and args.criterion is None:
        raise InputError('Name the blocks to remove, such as --remove 14-18, or --criterion cosine --count 5.')


def experiment_from(args: argparse.Namespace) -> Experiment:
    """Build the experiment from parsed flags.

    Raises:
        InputError: a value is out of range, or both blocks and a criterion were given.
    """
    given = {k: v for k, v in vars(args).items() if k in _FLAGS and v is not None}
    for field in ("methods", "evaluate"):
        if field in given:
            given[field] = tuple(given[field])
    if given.get("remove") and given.get("criterion", "manual") != "manual":
        raise InputError("Give either --remove or --criterion with --count, not both.")
    if "methods" in given and not given["methods"]:
        raise InputError("Name at least one method after --methods.")
    return Experiment(**given)
