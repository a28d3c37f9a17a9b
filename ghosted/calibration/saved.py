"""Which part of a calibration is worth keeping on disk? The additive statistics: a few C × C matrices and the map.

Keyed by content: model fingerprint, dtype, batch, text and slice. States are not kept: they are large, and a forward
pass over the held-out windows gives those back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ghosted import cache, distributed
from ghosted.calibration import Calibration
from ghosted.errors import ResourceError
from ghosted.removed import gap_name
from ghosted.results import Similarity

KIND, VERSION = "calibrations", 3


def key(calibration_key: Sequence[Any], gaps: Sequence[range], needs: frozenset[str]) -> str:
    """Return the cache key of these statistics."""
    return cache.key_of([VERSION, list(calibration_key), [gap_name(g) for g in gaps], sorted(needs)])


def save(entry: str, calibration: Calibration, gaps: Sequence[range]) -> None:
    """Keep the similarity and the statistics of ``gaps``; a full disk is no reason to fail."""
    names = [gap_name(gap) for gap in gaps if gap_name(gap) in calibration.gaps]

    def write(folder: Path) -> None:
        tensors = {f"{n}/{k}": t.cpu() for n in names for k, t in calibration.gaps[n].sums.items()}
        similarity = calibration.similarity
        arrays = {f.name: getattr(similarity, f.name) for f in fields(Similarity) if f.name != "tokens"}
        tensors |= {f"similarity/{k}": torch.from_numpy(v).contiguous() for k, v in arrays.items()}
        save_file(tensors, folder / "statistics.safetensors")
        counts = {n: [calibration.gaps[n].tokens, calibration.gaps[n].sequences] for n in names}
        about = {"tokens": similarity.tokens, "counts": counts}
        (folder / "about.json").write_text(json.dumps(about), "utf-8")

    if not distributed.is_first():
        return
    try:
        cache.Cache().put(KIND, entry, write)
    except ResourceError:
        return


def restore(entry: str, calibration: Calibration, gaps: Sequence[range], needs: frozenset[str]) -> bool:
    """Fill an empty calibration from the cache, and tell whether there was anything."""
    found = cache.Cache().read(KIND, entry, _read)
    if not distributed.everywhere(found is not None):
        return False
    tensors, about = found
    arrays = {k.partition("/")[2]: v.numpy() for k, v in tensors.items() if k.startswith("similarity/")}
    calibration.similarity = Similarity(**arrays, tokens=about["tokens"])
    for gap in gaps:
        statistics = calibration.new_statistics(gap, needs)
        if gap_name(gap) in about["counts"]:
            statistics.tokens, statistics.sequences = about["counts"][gap_name(gap)]
            for name, total in statistics.sums.items():
                total.copy_(tensors[f"{gap_name(gap)}/{name}"])
            calibration.gaps[gap_name(gap)] = statistics
    return True


def _read(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return load_file(folder / "statistics.safetensors"), json.loads((folder / "about.json").read_text("utf-8"))
