"""When is the recoverability map drawn? Once for a calibration: then it is kept with it, and on disk for later ones.

On disk it is keyed by the content of all that decides it: the model, both slices of text, the windows that were fitted
and the sketch.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ghosted import cache
from ghosted.errors import ResourceError
from ghosted.progress import CancelFlag, Steps
from ghosted.recoverability import COLUMNS, LEADING, recoverability_map
from ghosted.results import RecoverabilityMap

if TYPE_CHECKING:
    from ghosted.calibration import Calibration

KIND, VERSION, FILE = "maps", 1, "map.npz"


def drawn_map(calibration: Calibration, seed: int = 0, cancel: CancelFlag | None = None) -> Steps[RecoverabilityMap]:
    """Return the recoverability map of a calibration, drawn now if nobody has drawn it yet.

    It is fitted on the kept calibration windows, or on all of them where none are kept.

    Raises:
        ResourceError: its sums do not fit the free memory.
        TextError: there is no held-out text.
        Cancelled: ``cancel`` was set.
    """
    if calibration.ranges is None:
        windows = len(calibration.stores["calibration"]) or len(calibration.splits["calibration"])
        entry = cache.key_of([VERSION, list(calibration.identity), windows, COLUMNS, LEADING, seed])
        calibration.ranges = _restore(entry)
        if calibration.ranges is None:
            calibration.ranges = yield from recoverability_map(calibration, windows=windows, seed=seed, cancel=cancel)
            _save(entry, calibration.ranges)
    return calibration.ranges


def _restore(entry: str) -> RecoverabilityMap | None:
    return cache.Cache().read(KIND, entry, _read)


def _read(folder: Path) -> RecoverabilityMap:
    with np.load(folder / FILE) as kept:
        return RecoverabilityMap(**{f.name: kept[f.name] if kept[f.name].ndim else kept[f.name].item()
                                    for f in fields(RecoverabilityMap)})


def _save(entry: str, ranges: RecoverabilityMap) -> None:
    try:
        cache.Cache().put(KIND, entry, lambda folder: np.savez(folder / FILE, **asdict(ranges)))
    except ResourceError:  # a full disk is no reason to fail
        return
