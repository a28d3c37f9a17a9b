"""From the page's controls to an :class:`~ghosted.experiment.Experiment` and back, and what a visitor may ask for."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from analysis.speech import language, say, say_of
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.flags import names

PROMPT = "Photosynthesis is the process by which plants turn sunlight into"
DEFAULT = Experiment(
    criterion="best", count=5, methods=("none", "linearpatch", "replaceme", "ghosted", "best"), prompt=PROMPT, windows=8
)
"""What the page opens with; it scores half as many windows as the command line does, so that people wait less."""

DEFAULT_BLOCKS = 30
"""Blocks of the default model, so that the map can be drawn before anything is read."""

WHOLE = ("tokens", "window", "count", "max_new_tokens", "windows", "distill", "seed")
WHOLE_OR_EMPTY = ("calibration_window", "batch", "rank")
TEXT_OR_EMPTY = ("revision", "held_out")
FIELDS = (
    "model", "text", "tokens", "window", "remove", "criterion", "count", "methods", "prompt", "chat", "max_new_tokens",
    "temperature", "ridge", "rank", "fit", "distill", "windows", "evaluate", "held_out", "calibration_window", "dtype",
    "batch", "seed", "revision",
)
"""The settings, each with its control, in the order in which handlers receive their values."""


def values_of(experiment: Experiment) -> dict[str, Any]:
    """Return what each control holds for an experiment, by name of :data:`FIELDS`."""
    values = {name: getattr(experiment, name) for name in FIELDS}
    values |= {name: values[name] or "" for name in TEXT_OR_EMPTY}
    return values | {"methods": list(experiment.methods), "ridge": _written(experiment.ridge),
                     "evaluate": ", ".join(experiment.evaluate)}


def experiment_from(values: dict[str, Any]) -> Experiment:
    """Turn the controls' values into an experiment.

    Args:
        values: by name of :data:`FIELDS`; numbers may arrive as floats or be missing.

    Raises:
        InputError: a value that makes no sense, as one sentence.
    """
    clean = dict(values)
    clean |= {name: _whole(name, values[name]) for name in WHOLE}
    clean |= {name: None if values[name] in (None, "", 0) else _whole(name, values[name]) for name in WHOLE_OR_EMPTY}
    clean |= {name: str(values[name] or "").strip() for name in ("model", "text", "remove", *TEXT_OR_EMPTY)}
    clean |= {name: clean[name] or None for name in TEXT_OR_EMPTY}
    clean |= {"prompt": str(values["prompt"] or ""), "chat": bool(values["chat"])}
    clean |= {"temperature": _number("temperature", values["temperature"]), "ridge": _ridge(values["ridge"])}
    clean |= {"methods": tuple(map(str, values["methods"] or ()))}
    clean |= {"evaluate": tuple(names(str(values["evaluate"] or "")))}
    for name in ("model", "text"):
        if not clean[name]:
            raise InputError(say(f"refused.no_{name}"))
    if not clean["methods"]:
        raise InputError(say("refused.no_method"))
    if clean["criterion"] != "manual":
        clean["remove"] = ""
    return Experiment(**clean)


def refuse_paths(experiment: Experiment, uploads: Collection[str], known_texts: Collection[str]) -> None:
    """Refuse files of this machine where the page is open to others: only uploads, names and Hub ids are left.

    Raises:
        InputError: the model or a text is a path.
    """
    for text in (experiment.text, *experiment.evaluate, *filter(None, [experiment.held_out])):
        if text not in known_texts and text not in uploads:
            raise InputError(say("refused.server_file"))
    name = experiment.model
    if name.startswith((".", "~", "/", "\\")) or name.endswith(".gguf") or name.count("/") > 1 or Path(name).exists():
        raise InputError(say("refused.server_folder"))


def _whole(name: str, value: Any) -> int:
    label = _label(name)
    if value is None:
        raise InputError(say("refused.empty_whole", name=label))
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(say("refused.not_whole", name=label, given=str(value)[:40])) from None
    if not number.is_integer():
        raise InputError(say("refused.not_whole", name=label, given=f"{number:g}"))
    return int(number)


def _label(name: str) -> str:
    """Return what a setting is called in a sentence; in English as on the command line."""
    plain = name.replace("_", " ")
    return plain if language() == "en" else say_of("controls", name.removeprefix("max_"), plain)


def _number(name: str, value: Any) -> float:
    if value is None:
        raise InputError(say("refused.empty_number", name=_label(name)))
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(say("refused.not_number", name=_label(name), given=str(value)[:40])) from None


def _written(ridge: float | str) -> str:
    short = f"{ridge:g}" if not isinstance(ridge, str) else ridge
    return short if isinstance(ridge, str) or float(short) == ridge else repr(ridge)


def _ridge(value: Any) -> float | str:
    said = str(value if value is not None else "").strip() or "1e-6"
    if said == "auto":
        return said
    try:
        return float(said)
    except ValueError:
        raise InputError(say("refused.ridge", given=repr(said[:40]))) from None
