"""What does the page show before anything was computed? A run of the default model, made once and kept in ``assets/``.

``python -m ghosted precompute`` makes it again.
"""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path

from analysis.record import Record
from ghosted.errors import GhostedError

FILE = Path(__file__).parents[1] / "assets" / "precomputed" / "default.json"


@cache
def record() -> Record | None:
    """Return the precomputed record; ``None`` where its file is missing or of another version."""
    return read(FILE, "the page opens empty")


def read(file: Path, otherwise: str) -> Record | None:
    """Return a record computed beforehand; else ``None``, and the log says why and what happens ``otherwise``."""
    try:
        return Record.from_json(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, GhostedError) as reason:
        logging.getLogger(__name__).warning("%s: %s (python -m ghosted precompute)", otherwise, reason)
        return None
