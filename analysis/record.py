"""What does the page keep of a run? A :class:`Record`: all its numbers and texts, its operators as reduced pictures.

A record is what a panel draws from, what a table of runs lists, what is exported and read back, and what the page shows
before anything was computed. The operators themselves, C² numbers each, are not in it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from analysis.figures.operator import Portrait, portrait
from ghosted.errors import InputError
from ghosted.plain import from_plain, to_plain
from ghosted.results import Decomposition, Run, Similarity

FORMAT, VERSION = "ghosted-record", 1
SOURCES = ("live", "precomputed", "imported", "preview")


@dataclass(eq=False)
class Record:
    """One run as the page keeps it.

    Attributes:
        run: its numbers and texts; ``decompositions`` is empty.
        portraits: its operators, reduced to what is drawn, by name.
        source: ``live``, ``precomputed`` (shown before anything was computed), ``imported``, or ``preview`` (the
            boundary of another range, from states at hand).
        when: when it was computed, ISO 8601, UTC, to the second.
    """

    run: Run
    portraits: dict[str, Portrait] = field(default_factory=dict)
    source: str = "live"
    when: str = ""

    @classmethod
    def of(cls, run: Run, source: str = "live") -> Record:
        """Reduce a run, finished or not; what it holds already is shared, not copied."""
        portraits = {name: _portrait(found) for name, found in run.decompositions.items()}
        reduced = dataclasses.replace(run, decompositions={}, similarity=run.similarity and _reduced(run.similarity))
        return cls(reduced, portraits, source, datetime.now(UTC).isoformat(timespec="seconds"))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "format": FORMAT, "version": VERSION, "source": self.source, "when": self.when, "run": to_plain(self.run),
            "portraits": {name: picture.to_json() for name, picture in self.portraits.items()},
        }

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """Read what :meth:`to_json` wrote.

        Raises:
            InputError: it is something else, of another version, or damaged.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InputError("This file is no run of the Ghosted Layers Explorer; export one with Export, as JSON.")
        if data.get("version") != VERSION:
            raise InputError("This run was exported by another version of the Ghosted Layers Explorer; run it again.")
        portraits = data.get("portraits")
        if not isinstance(portraits, dict) or data.get("source") not in SOURCES:
            raise InputError("This run's file is damaged; export it again.")
        read = {str(name): Portrait.from_json(each) for name, each in portraits.items()}
        return cls(from_plain(Run, data.get("run")), read, data["source"], from_plain(str, data.get("when"), "when"))


_DRAWN: WeakKeyDictionary[Decomposition, Portrait] = WeakKeyDictionary()


def _portrait(found: Decomposition) -> Portrait:
    """Reduce an operator once, however many records are made of its run."""
    if found not in _DRAWN:
        _DRAWN[found] = portrait(found)
    return _DRAWN[found]


def _reduced(similarity: Similarity) -> Similarity:
    """Leave out the histogram, and keep the spread over texts as that of few groups of them."""
    return dataclasses.replace(
        similarity, histogram=np.zeros((0, 0, 0), dtype=np.int32), by_text=_grouped(similarity.by_text),
        angle_by_text=None if similarity.angle_by_text is None else _grouped(similarity.angle_by_text),
    )


def _grouped(by_text: np.ndarray, most: int = 4) -> np.ndarray:
    """Average ``(groups, ...)`` down to at most ``most`` groups of neighbours."""
    if len(by_text) <= most:
        return by_text
    return np.stack([part.mean(axis=0) for part in np.array_split(by_text, most)])
