"""From the page's controls to an :class:`~ghosted.experiment.Experiment`, and what a visitor may ask for."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ghosted.errors import InputError
from ghosted.experiment import Experiment

PROMPT = "Photosynthesis is the process by which plants turn sunlight into"
DEFAULT = Experiment(
    criterion="best", count=5, methods=("none", "linearpatch", "replaceme", "ghosted", "best"), prompt=PROMPT, windows=8
)
"""What the page opens with; it scores half as many windows as the command line does, so that people wait less."""

DEFAULT_BLOCKS = 30
"""Blocks of the default model, so that the map can be drawn before anything is read."""

FIELDS = (
    "model", "text", "tokens", "window", "remove", "criterion", "count", "methods", "prompt", "max_new_tokens",
    "temperature",
)
"""The settings that have a control, in the order in which handlers receive their values."""


def experiment_from(values: dict[str, Any]) -> Experiment:
    """Turn the controls' values into an experiment.

    Args:
        values: by name of :data:`FIELDS`; numbers may arrive as floats or be missing.

    Raises:
        InputError: a value that makes no sense, as one sentence.
    """
    clean = dict(values)
    for name in ("tokens", "window", "count", "max_new_tokens"):
        clean[name] = _whole(name, values[name])
    if values["temperature"] is None:
        raise InputError("temperature is empty; write a number, 0 for greedy.")
    clean["temperature"] = float(values["temperature"])
    for name in ("model", "text", "remove", "prompt"):
        clean[name] = str(values[name] or "") if name == "prompt" else str(values[name] or "").strip()
    for name in ("model", "text"):
        if not clean[name]:
            raise InputError(f"No {name} is chosen; pick one from the list or type its name.")
    clean["methods"] = tuple(values["methods"] or ())
    if not clean["methods"]:
        raise InputError("No method is chosen; tick at least one, such as ghosted.")
    if clean["criterion"] != "manual":
        clean["remove"] = ""
    return Experiment(**clean, windows=DEFAULT.windows)


def refuse_paths(experiment: Experiment, uploads: Collection[str], known_texts: Collection[str]) -> None:
    """Refuse files of this machine where the page is open to others: only uploads, names and Hub ids are left.

    Raises:
        InputError: the model or the text is a path.
    """
    if experiment.text not in known_texts and experiment.text not in uploads:
        raise InputError("Files of the server cannot be read from this page; upload the text instead.")
    name = experiment.model
    if name.startswith((".", "~", "/", "\\")) or name.endswith(".gguf") or name.count("/") > 1 or Path(name).exists():
        raise InputError("Folders of the server cannot be read from this page; name a model of the list or of the Hub.")


def _whole(name: str, value: Any) -> int:
    label = name.replace("_", " ")
    if value is None:
        raise InputError(f"{label} is empty; write a whole number.")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{label} must be a whole number, not {str(value)[:40]}.") from None
    if not number.is_integer():
        raise InputError(f"{label} must be a whole number, not {number:g}.")
    return int(number)


__all__ = ["DEFAULT", "DEFAULT_BLOCKS", "FIELDS", "PROMPT", "experiment_from", "refuse_paths"]
