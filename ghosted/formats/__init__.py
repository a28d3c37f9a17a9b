"""How does a repaired model leave this program? In one of several formats, each one file, checked before it is there.

A format's module states ``NAME``, ``LABEL``, ``ORDER``, ``METHODS`` (which it can take, ``None`` for all),
``refuse(model)`` (raises :class:`~ghosted.errors.NotDefined` with the reason where it does not apply), ``size(model)``
in bytes and ``says(model)`` (what it takes to load it), all three before the fit, too, ``write(model, ghost, folder)``,
and ``LIMIT``: by what share the perplexity may differ after it was read again, ``0.0`` for the same logits to the last
bit, ``None`` where there is no model to read. Everything is written under a temporary name beside the target, read
again by a new process, compared, and only then renamed into place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ghosted.cache import file_sha256, staged
from ghosted.errors import InputError
from ghosted.formats._expected import look_ahead
from ghosted.formats._place import check_space, check_target, check_writable, disk, placed, prefix
from ghosted.ghost import FILE
from ghosted.progress import CancelFlag, Steps
from ghosted.registry import listing, members, pick

if TYPE_CHECKING:
    from ghosted.experiment import Experiment
    from ghosted.formats._expected import Shape
    from ghosted.repaired import Repaired
    from ghosted.workspace import Workspace

__all__ = [
    "Exported", "Foreseen", "check_method", "check_removes", "check_request", "check_space", "check_unchanged", "disk",
    "export", "foresee", "formats", "look_ahead", "prepare", "seal", "unseal",
]

PACKAGE = __name__
CHECK = "check.json"
"""Written last: what the round trip found, and the sha256 of every other file."""


@dataclass(frozen=True)
class Exported:
    """An export that is in its place.

    Attributes:
        path: its folder.
        format: which format.
        files: bytes by name.
        check: what the round trip found: ``logits`` (largest difference), ``perplexity`` (relative difference), …
    """

    path: str
    format: str
    files: dict[str, int]
    check: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return asdict(self) | {"bytes": sum(self.files.values())}


def formats() -> dict[str, ModuleType]:
    """Return all formats by name."""
    return members(PACKAGE)


def check_request(name: str, method: str, out: str | Path, overwrite: bool = False) -> Path:
    """Refuse what can be refused before anything is computed.

    Returns:
        ``out`` as it will be written: absolute, without ``~``.

    Raises:
        InputError: there is no such format, the target is taken, or the method cannot be in this format.
        ResourceError: the target cannot be written.
    """
    check_method(name, method)
    out = placed(out)
    check_target(out, overwrite)
    check_writable(out)
    return out


def prepare(
    experiment: Experiment, name: str, out: str | Path, overwrite: bool = False, workspace: Workspace | None = None
) -> None:
    """Refuse the export of an experiment before anything is computed, wherever that can be known.

    Raises:
        InputError, NotDefined, ResourceError, ModelError: as :func:`check_request` and :func:`look_ahead`, or the disk
            is too small.
    """
    from ghosted.repaired import method_of

    out = check_request(name, method_of(experiment), out, overwrite)
    if (foreseen := look_ahead(experiment, name, workspace)) is not None:
        check_space(out, foreseen.bytes)


def check_method(name: str, method: str) -> ModuleType:
    """Return a format's module; raises :class:`InputError` where there is none, or the method cannot be in it."""
    form = pick(PACKAGE, name, "export format")
    if form.METHODS is not None and method not in form.METHODS:
        raise InputError(f"{form.WHY_NOT} {listing(form.METHODS)} can; {method} cannot.")
    return form


def check_removes(blocks: object, criterion: str = "manual") -> None:
    """Raise :class:`InputError` where nothing is removed and no criterion is to choose: that is the base itself."""
    if criterion == "manual" and not str(blocks):
        raise InputError("Name the blocks to remove, such as 14-18, or a criterion with a count; with nothing "
                         "removed there is nothing to export.")  # fmt: skip


@dataclass(frozen=True)
class Foreseen:
    """What an export will be: its ``bytes``, and what it ``says`` of loading it."""

    bytes: int
    says: str


def foresee(name: str, model: Shape, unread: int = 0) -> Foreseen:
    """Say what an export will be, before anything is written; :func:`look_ahead` does so before the fit.

    Args:
        name: the format.
        model: from :func:`ghosted.repaired.repaired`, or what stands in for it.
        unread: bytes of memory that this process is still to take for the model.

    Raises:
        InputError: the method cannot be in this format, there is none of that name, or nothing is removed.
        NotDefined: the format does not apply to this model; the message says why.
        ResourceError: the memory is not enough to read it again.
    """
    from ghosted.formats import _round_trip

    form = check_method(name, model.method)
    check_removes(model.removed)
    form.refuse(model)
    if form.LIMIT is not None:
        _round_trip.check_memory(model, name, unread)
    return Foreseen(form.size(model), form.says(model))


def export(
    model: Repaired, name: str, out: str | Path, *, overwrite: bool = False, cancel: CancelFlag | None = None
) -> Steps[Exported]:
    """Write a repaired model, check it, and put it into its place.

    Args:
        model: from :func:`ghosted.repaired.repaired`.
        name: the format.
        out: the folder to make; an earlier export of ours is replaced only where ``overwrite`` says so.
        overwrite: see ``out``.
        cancel: stops the work; nothing is left behind.

    Raises:
        InputError: as :func:`check_request`.
        NotDefined: the format does not apply to this model; the message says why.
        ResourceError: the disk is full or not writable, or the memory is not enough to read it again.
        ModelError: what was written does not read back as the same model; nothing is left behind.
    """
    from ghosted.formats import _card, _round_trip
    from ghosted.models import background

    out = check_request(name, model.method, out, overwrite)
    form = pick(PACKAGE, name, "export format")
    size = foresee(name, model).bytes
    check_space(out, size)
    with disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with staged(out.parent, prefix(out)) as work:
            folder = work / "export"
            folder.mkdir()
            ghost = model.ghost(name)

            def write() -> None:
                form.write(model, ghost, folder)
                (folder / FILE).write_text(ghost.to_text(), "utf-8")
                code = folder / "modelling_ghosted.py"
                lines = len(code.read_text("utf-8").splitlines()) if code.is_file() else 0
                (folder / "README.md").write_text(_card.card(ghost, lines), "utf-8")

                for path in folder.iterdir():  # weights are written for their owner alone
                    path.chmod((folder / "README.md").stat().st_mode)

            yield from background.call(
                "writing the model", write, expected=2 + size / 5e8, cancel=cancel, folder=work
            )
            check = {"format": name}
            if form.LIMIT is not None:
                check |= yield from _round_trip.check(model, name, folder, work, form.LIMIT, cancel)
            seal(folder, check)
            files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
            _put(folder, out, work, overwrite)
    return Exported(str(out), name, files, check)


def seal(folder: Path, check: dict[str, Any]) -> None:
    """Write ``check.json``: the findings, and the checksum of every file."""
    hashes = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
    (folder / CHECK).write_text(json.dumps(check | {"sha256": hashes}, indent=1) + "\n", "utf-8")


def unseal(folder: Path) -> dict[str, Any]:
    """Return what the check of an export found, where every file is still as it was checked.

    Raises:
        InputError: the folder is no checked export, or was changed afterwards.
    """
    check = _read_check(folder)
    _refuse_changes(folder, check["sha256"], {path.name for path in folder.iterdir()} - {CHECK} | set(check["sha256"]))
    return check


def check_unchanged(folder: Path, reads: Callable[[str], bool]) -> None:
    """Refuse an export whose files are no longer those that were checked; one that was never checked passes.

    Args:
        folder: the export.
        reads: says of a file's name whether it is about to be read: a card may be rewritten.

    Raises:
        InputError: such a file was changed, added or removed.
    """
    if (folder / CHECK).is_file():
        hashes = _read_check(folder)["sha256"]
        _refuse_changes(folder, hashes, set(filter(reads, {*hashes, *(path.name for path in folder.iterdir())})))


def _read_check(folder: Path) -> dict[str, Any]:
    try:
        check = json.loads((folder / CHECK).read_text("utf-8"))
        return check | {"sha256": dict(check["sha256"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{folder} is no checked export; make one with python -m ghosted export.") from None


def _refuse_changes(folder: Path, hashes: dict[str, Any], names: set[str]) -> None:
    for name in sorted(names):
        path = folder / name
        if not path.is_file() or name not in hashes or file_sha256(path) != hashes[name]:
            raise InputError(f"{folder} was changed after its check ({name[:60]}); export it again.")


def _put(folder: Path, out: Path, work: Path, overwrite: bool) -> None:
    check_target(out, overwrite)  # somebody may have made it meanwhile
    if os.path.lexists(out) and any(out.iterdir()):
        os.rename(out, work / "replaced")
    elif out.is_dir():
        out.rmdir()
    os.rename(folder, out)
