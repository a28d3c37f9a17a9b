"""What of an experiment means the same on every machine? Names do; files and folders do not.

Whatever leaves the page, a link or an export, names a text file by the sha256 of its content and a local model not at
all. Coming back, a file that is at hand takes its place again; one that is not is asked for.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from analysis.settings import DEFAULT
from analysis.speech import say
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment
from ghosted.results import Run
from ghosted.texts import SOURCES

LOCAL = "local"
"""Stands for a file or folder that only its author has."""
HASH = "sha256:"


def shareable(experiment: Experiment, uploads: Mapping[str, str] | None = None) -> Experiment:
    """Return the experiment without any path of this machine.

    What its choice of blocks does not use goes, too: named blocks where a criterion chooses.

    Args:
        experiment: any.
        uploads: the texts that may be named by their sha256, sha256 of the content to path; others become ``local``.
    """
    known = {path: digest for digest, path in (uploads or {}).items()}

    def text(name: str) -> str:
        if name in SOURCES or is_hash(name):
            return name
        return f"{HASH}{known[name]}" if name in known else LOCAL

    return dataclasses.replace(
        experiment, model=LOCAL if is_local_model(experiment.model) else experiment.model,
        text=text(experiment.text), held_out=experiment.held_out and text(experiment.held_out),
        evaluate=tuple(map(text, experiment.evaluate)),
        remove=experiment.remove if experiment.criterion == "manual" else "",
    )


def is_fixed(experiment: Experiment) -> bool:
    """Whether an experiment asked again means the same: a file or a folder may have changed meanwhile."""
    texts = (experiment.text, experiment.held_out or experiment.text, *experiment.evaluate)
    return all(name in SOURCES for name in texts) and not is_local_model(experiment.model)


def without_folders(experiment: Experiment) -> Experiment:
    """Return the experiment with each file and folder by its own name alone, as its owner has it somewhere else."""
    def text(name: str) -> str:
        return name if name in SOURCES or is_hash(name) else PurePath(name).name

    return dataclasses.replace(
        experiment, text=text(experiment.text), held_out=experiment.held_out and text(experiment.held_out),
        evaluate=tuple(map(text, experiment.evaluate)),
        model=PurePath(experiment.model).name if is_local_model(experiment.model) else experiment.model,
    )


def at_hand(experiment: Experiment, uploads: Mapping[str, str] | None = None) -> tuple[Experiment, list[str]]:
    """Put the files at hand in the place of their sha256, and ask for those that are not.

    Args:
        experiment: as :func:`shareable` leaves it.
        uploads: sha256 of the content to path.
    """
    notices: list[str] = []

    def text(name: str, role: str, instead: str) -> str | None:
        if name != LOCAL and not is_hash(name):
            return name
        if path := (uploads or {}).get(name.removeprefix(HASH).lower()):
            return path
        which = say("file.hash", digits=name.removeprefix(HASH)[:12]) if is_hash(name) else ""
        role = say(f"file.{role}")
        notices.append(say("file.text", role=role, which=which, instead=instead))
        return None

    changed: dict[str, Any] = {}
    until = say("file.calibration_instead", text=DEFAULT.text)
    changed["text"] = text(experiment.text, "calibration", until) or DEFAULT.text
    if experiment.held_out:
        changed["held_out"] = text(experiment.held_out, "held_out", say("file.held_out_instead"))
    kept = [text(name, "evaluation", say("file.evaluation_instead")) for name in experiment.evaluate]
    changed["evaluate"] = tuple(filter(None, kept))
    if experiment.model == LOCAL:
        changed["model"] = DEFAULT.model
        notices.append(say("file.model"))
    return dataclasses.replace(experiment, **changed), notices


def hashes(paths: Iterable[str]) -> dict[str, str]:
    """Return text files by the sha256 of their content, as it stands beside every perplexity.

    Files that cannot be read are left out.
    """
    found: dict[str, str] = {}
    for path in paths:
        try:
            state = os.stat(path)
            found[_digest(path, state.st_mtime_ns, state.st_size)] = path
        except (OSError, ValueError, GhostedError):
            continue
    return found


def is_hash(name: str) -> bool:
    """Whether a text is named by its sha256."""
    return re.fullmatch(HASH + r"[0-9a-fA-F]{64}", name) is not None


def is_local_model(name: str) -> bool:
    """Whether a model's name is a path: by its form, or because something lies there."""
    from ghosted.models import entries

    if entries.find(name):
        return False
    if name.startswith((".", "~", "/")) or "\\" in name or name.lower().endswith(".gguf") or name.count("/") > 1:
        return True
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def file_name(run: Run, *more: str) -> str:
    """Return what a run's file is called: the model, the removed blocks, and ``more``."""
    blocks = str(run.removed).replace(",", "_") or "nothing"
    model = run.model_label.partition(" (")[0] or "run"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(["ghosted", model, blocks, *more])).strip("-")[:120]


@lru_cache(maxsize=256)
def _digest(path: str, changed: int, size: int) -> str:
    """Hash a text once for each state of its file."""
    from ghosted.texts import file

    return file.read(path).digest
