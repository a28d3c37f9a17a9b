"""What does a model's name point at: the catalogue, the Hub, a folder or a ``.gguf``?

Decided from the name and the local disk alone, before anything is fetched.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from ghosted.errors import ModelError
from ghosted.models import entries

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Attributes:
        kind: ``offline``, ``hub``, ``folder`` or ``gguf``.
        where: Hub id or local path; the name itself for ``offline``.
        label: what people read.
    """

    kind: str
    where: str
    label: str

    @property
    def is_local(self) -> bool:
        """Whether the name is a path on this machine (which a public page must not accept)."""
        return self.kind in ("folder", "gguf")


def resolve(name: str, revision: str | None = None) -> Source:
    """Tell what a name points at; nothing is fetched.

    Raises:
        ModelError: it is none of these: catalogue name, ``owner/name``, existing folder, existing ``.gguf``.
    """
    name = name.strip()
    if not name or len(name) > 4096 or not name.isprintable():
        raise ModelError("No model is named; give a catalogue name, an owner/name id of the Hub, a folder or a .gguf.")
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ModelError(f"{revision[:60]!r} is not a revision of the Hub; give a branch, a tag or a commit.")
    if entry := entries.find(name):
        return Source("offline" if entry.offline else "hub", entry.source or entry.name, entry.label)
    path = Path(name).expanduser()
    if name.lower().endswith(".gguf"):
        if not path.is_file():
            raise ModelError(f"There is no file {_short(name)}; check the path to the .gguf.")
        return Source("gguf", str(path), f"{path.name} (GGUF, dequantised)")
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError:
        is_folder = is_file = False
    if is_folder:
        return Source("folder", str(path), path.resolve().name or name)
    if is_file:
        raise ModelError(f"{_short(name)} is a file but not a .gguf; give the folder that holds config.json.")
    if _HUB_ID.fullmatch(name) and ".." not in name and "--" not in name:
        return Source("hub", name, name)
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        raise ModelError(f"There is no model folder {_short(name)}.")
    raise ModelError(_bare(name))


def _bare(name: str) -> str:
    full = entries.BARE_NAMES.get(name.lower())
    if full:
        return f"The Hub wants a full owner/name id: did you mean {full}?"
    names = [entry.name for entry in entries.ENTRIES]
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {close[0]}?" if close else "give a full owner/name id of the Hub, a folder or a .gguf."
    return f"There is no model {_short(name)} in the catalogue; {hint}"


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:40]}…{name[-36:]}")
