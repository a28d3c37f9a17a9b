"""What does an uploaded adapter say? Its experiment, and the numbers that were measured when it was made.

Read are ``ghost.safetensors`` and a zip of the export's folder. Of a zip only the adapter's own two files are taken, by
their names and never by their paths, and no more of them than they may hold.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ghosted.adapter import WEIGHTS, Adapter
from ghosted.errors import InputError
from ghosted.ghost import FILE, LARGEST, Ghost

LARGEST_WEIGHTS = 2**31
"""Bytes; three gaps of a model of width 8,192 have less than half of it."""


def is_one(path: Path) -> bool:
    """Whether a file looks like an adapter: by its ending, or because it is a zip."""
    return path.suffix.lower() == ".safetensors" or zipfile.is_zipfile(path)


def read(path: Path) -> Ghost:
    """Return the record of an adapter whose file is whole.

    Raises:
        InputError: it is damaged, foreign, or no adapter.
    """
    if path.suffix.lower() == ".safetensors":
        return Adapter.read(path).ghost
    with _unpacked(path) as folder:
        return Adapter.read(folder).ghost


def summary(ghost: Ghost) -> str:
    """Return one sentence with the numbers that were recorded, each with what it was measured on."""
    removed = ghost.removed_blocks.describe(ghost.base.blocks)
    parts = [f"This adapter of {ghost.base.label} {removed}, {ghost.method}"]
    numbers = next((each for each in ghost.numbers if each.method == ghost.method), None)
    if numbers is not None and numbers.held_out is not None:
        parts.append(f"recorded held-out error {numbers.held_out:.3g}, median {numbers.median:.3g}")
    if numbers is not None:
        for text, value in numbers.perplexity.items():
            protocol = ghost.protocols.get(text, {})
            dense = ghost.dense_perplexity.get(text)
            than = "" if dense is None else f", the original {dense:.3g}"
            parts.append(f"perplexity {value:.3g}{than} ({protocol.get('text', text)}, {protocol.get('windows')} "
                         f"windows of {protocol.get('window')}, {protocol.get('dtype')})")  # fmt: skip
    return "; ".join(parts) + ". Press Run to compute them again."


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    limits = {FILE: LARGEST, WEIGHTS: LARGEST_WEIGHTS}
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                found = {PurePosixPath(each.filename).name: each for each in archive.infolist() if not each.is_dir()}
                for name, limit in limits.items():
                    if name not in found:
                        raise InputError(f"This zip holds no {name}: it is no adapter of ours.")
                    if found[name].file_size > limit:
                        raise InputError(f"The {name} in this zip is larger than {limit // 10**6:,} MB.")
                    with archive.open(found[name]) as stream:
                        _copy(stream, Path(folder) / name, limit)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
            raise InputError("This zip is damaged, or needs a password.") from error
        yield Path(folder)


def _copy(stream, target: Path, limit: int) -> None:
    """Copy at most ``limit`` bytes: what a zip says about its sizes may be wrong."""
    with open(target, "wb") as out:
        left = limit
        while chunk := stream.read(min(2**20, left + 1)):
            left -= len(chunk)
            if left < 0:
                raise InputError("A file in this zip is larger than it says.")
            out.write(chunk)
