"""Can an export appear where it was asked for? Tried, not guessed, before anything is computed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ghosted.errors import InputError, ResourceError
from ghosted.ghost import FILE

SPARE = 1.02
"""What else than its numbers an export takes: headers, tokenizer, card."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def placed(out: str | Path) -> Path:
    """Return a folder's path absolute and without ``~``; a link that it is itself is left as it is.

    Raises:
        InputError: it is no path.
    """
    if not isinstance(out, str | Path) or not str(out).strip() or "\0" in str(out):
        raise InputError("Name the folder to make, such as my-model.")
    try:
        path = Path(out).expanduser()
        return path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{str(out)[:200]} is no folder that can be made ({reason}); name another folder.") from error


def check_target(out: Path, overwrite: bool) -> None:
    """Raise :class:`InputError` unless a folder may appear at ``out``."""
    with disk(out):
        if not os.path.lexists(out) or (out.is_dir() and not out.is_symlink() and not any(out.iterdir())):
            return
        if not overwrite:
            raise InputError(f"{out} is there already; name another folder, or say --overwrite (in a script "
                             "overwrite=True) to replace an export.")  # fmt: skip
        if out.is_symlink() or not (out / FILE).is_file():
            raise InputError(f"{out} is not an export of this program (it has no {FILE}), so it is not overwritten.")


def check_writable(out: Path) -> None:
    """Make the temporary folder that an export is written in, in the nearest folder there is, and remove it again.

    Raises:
        ResourceError: it cannot be made; the message says why and what to do.
    """
    with disk(out):
        if not (parent := _nearest(out)).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "")
        os.rmdir(tempfile.mkdtemp(prefix=prefix(out), dir=parent))  # no lock is taken: some file systems never give one


def check_space(out: Path, needed: int) -> None:
    """Raise :class:`ResourceError` where the disk of ``out`` has no room for ``needed`` bytes of numbers."""
    with disk(out):
        free = shutil.disk_usage(_nearest(out)).free
    if (takes := needed * SPARE) > free:
        unit, name = next((each for each in ((1e9, "GB"), (1e6, "MB")) if takes >= each[0]), (1e3, "kB"))
        both = ((f"{takes / unit:,.{digits}f}", f"{free / unit:,.{digits}f}") for digits in range(1, 10))
        needs, has = next((pair for pair in both if pair[0] != pair[1]), (f"{takes / unit}", f"{free / unit}"))
        raise ResourceError(f"This export takes {needs} {name} of disk and {has} {name} are free; free some space or "
                            "name a folder on another disk.")  # fmt: skip


def prefix(out: Path) -> str:
    """Return how the names of temporary folders beside ``out`` begin."""
    return f".{out.name}.ghosted-"


@contextmanager
def disk(out: Path) -> Iterator[None]:
    """Turn what the disk says into one sentence."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        code = getattr(error, "errno", None)
        if isinstance(error, SafetensorError) and "os error 28" in str(error):
            code = errno.ENOSPC
        reason = os.strerror(code) if code else str(error).splitlines()[0][:120]
        advice = "free some space or name a folder on another disk" if code in _FULL else "name another folder"
        raise ResourceError(f"{out} cannot be written ({reason}); {advice}.") from error


def _nearest(out: Path) -> Path:
    """Return the nearest thing above ``out`` that is there already."""
    return next((each for each in out.parents if os.path.lexists(each)), out)
