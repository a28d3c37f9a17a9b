"""The whole run as one JSON object: what ``compare --json`` prints, and the record that the page reads back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from analysis.export.pictures import Figure
from analysis.portable import shareable
from analysis.record import Record
from ghosted.plain import to_plain
from ghosted.run import compare_json

NAME = "json"
SUFFIX = ".json"
FORMAT, VERSION = "ghosted-export", 1


def plain(record: Record, uploads: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the object: ``experiment``, ``compare``, ``columns`` and ``record``, none of them with a path in it.

    Args:
        record: the run.
        uploads: the texts that may be named by their sha256, sha256 to path.
    """
    experiment = shareable(record.run.experiment, uploads)
    safe = dataclasses.replace(record, run=dataclasses.replace(record.run, experiment=experiment))
    return {
        "format": FORMAT, "version": VERSION, "experiment": experiment.to_json(),
        "compare": to_plain(compare_json(safe.run)), "columns": [column.to_json() for column in safe.run.columns],
        "record": safe.to_json(),
    }


def write(record: Record, pictures: Mapping[str, Figure], uploads: Mapping[str, str] | None = None) -> bytes:
    """Return the file.

    Args:
        record: the run.
        pictures: not needed; the record draws them again.
        uploads: the texts that may be named by their sha256, sha256 to path.
    """
    return json.dumps(to_plain(plain(record, uploads)), ensure_ascii=True, allow_nan=False).encode()
