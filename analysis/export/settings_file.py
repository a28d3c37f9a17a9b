"""What does an imported file say? An experiment, and the whole run where it was exported with it.

Read are our own exports (a run as JSON, or the zip's ``settings.json``), what ``compare --json`` prints, records, and
adapters (:mod:`analysis.export.adapter_file`).
Whatever else arrives gets one sentence: nothing of a file is believed before its type was checked.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from analysis.export import adapter_file
from analysis.export.json import FORMAT, VERSION
from analysis.portable import at_hand
from analysis.record import FORMAT as RECORD
from analysis.record import Record
from analysis.settings import DEFAULT
from ghosted import criteria, operators
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.ghost import Ghost
from ghosted.plain import from_plain

LARGEST = 20_000_000
"""Bytes; a run of ours has some hundred thousand."""
FOREIGN = "This file was not exported by the Ghosted Layers Explorer: it holds no experiment."


@dataclass(frozen=True, eq=False)
class Imported:
    """What a file holds.

    Attributes:
        experiment: its settings, with files that are at hand in their place.
        record: the run, where the file holds one.
        notices: one sentence for each file that is not at hand.
        said: what an adapter recorded when it was made.
    """

    experiment: Experiment
    record: Record | None
    notices: tuple[str, ...]
    said: str = ""


def read(path: str, uploads: Mapping[str, str] | None = None) -> Imported:
    """Read a file.

    Args:
        path: where it is.
        uploads: the texts at hand, sha256 of the content to path.

    Raises:
        InputError: it is too large, cannot be read, or is not one of ours.
    """
    where = Path(path)
    try:
        if adapter_file.is_one(where):
            return _of_adapter(adapter_file.read(where), uploads)
        if where.stat().st_size > LARGEST:
            raise InputError(f"This file is larger than {LARGEST // 1_000_000} MB; an export of this page never is.")
        data = where.read_bytes()
    except OSError as error:
        raise InputError(f"This file cannot be read ({error.strerror}).") from error
    return parse(data, uploads)


def parse(data: bytes, uploads: Mapping[str, str] | None = None) -> Imported:
    """Read a file's bytes; as :func:`read`."""
    try:
        found = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        said = f": {error}" if isinstance(error, InputError) else ""
        raise InputError(f"This file is not JSON as the page exports it{said or '.'}") from None
    if not isinstance(found, dict):
        raise InputError(FOREIGN)
    record = None
    if found.get("format") == FORMAT:
        if found.get("version") != VERSION:
            raise InputError("This file was exported by another version of the Ghosted Layers Explorer; run it again.")
        record, settings = Record.from_json(found.get("record")), found.get("experiment")
    elif found.get("format") == RECORD:
        record = Record.from_json(found)
        settings = record.run.experiment.to_json()
    else:
        settings = found.get("experiment", found)
    experiment, notices = at_hand(_experiment(settings), uploads)
    if record is not None:
        run = dataclasses.replace(record.run, experiment=experiment)
        record = dataclasses.replace(record, run=run, source="imported")
    return Imported(experiment, record, tuple(notices))


def _of_adapter(ghost: Ghost, uploads: Mapping[str, str] | None) -> Imported:
    experiment, notices = at_hand(_experiment(ghost.experiment), uploads)
    if not experiment.prompt:  # an export writes nothing
        experiment = dataclasses.replace(experiment, prompt=DEFAULT.prompt)
    return Imported(experiment, None, tuple(notices), adapter_file.summary(ghost))


def _experiment(settings: Any) -> Experiment:
    names = {field.name for field in dataclasses.fields(Experiment)}
    if not isinstance(settings, dict) or not names & settings.keys():
        raise InputError(FOREIGN)
    if unknown := next((name for name in settings if name not in names), None):
        raise InputError(f"There is no setting {unknown[:40]!r}; this file is of another version, or not of this page.")
    experiment = from_plain(Experiment, settings, "the settings")
    criteria.criterion(experiment.criterion)
    for name in experiment.methods:
        operators.method(name)
    if not experiment.methods:
        raise InputError("This file names no method; at least one is needed.")
    # compare --json names the blocks that its criterion chose, too: the criterion will choose them again.
    return dataclasses.replace(experiment, remove="") if experiment.criterion != "manual" else experiment


def _no_number(name: str) -> NoReturn:
    raise InputError(f"{name} is no number.")
