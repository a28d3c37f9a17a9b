"""Texts by name or path: one file per source, and the windows that are cut from them.

A source module states ``NAME``, ``LABEL``, ``NOTE``, ``NEEDS_NETWORK`` and ``read(...)``, and ``ENDLESS = True`` where
there is always more of it; any other name is the path of a ``.txt`` or ``.jsonl`` file.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ghosted.errors import TextError
from ghosted.progress import CancelFlag, Steps
from ghosted.texts.windows import Slices, Windows, check_windows, pack, slices, token_ids

if TYPE_CHECKING:
    from ghosted.models import LoadedModel

__all__ = [
    "SOURCES", "Slices", "Text", "Windows", "check_windows", "pack", "read", "slices", "sources", "token_ids",
]

SOURCES = ("python-docs", "generated", "wikitext2", "c4", "ptb")
"""The texts that have a name, offline ones first."""


@dataclass(frozen=True)
class Text:
    """One text.

    Attributes:
        name: label: the source's name or the file's.
        digest: sha256 (hex) of the content.
        content: the text, ``None`` where it exists as tokens only.
        ids: its token ids, for text that a model has written.
        path_or_name: what the user gave.
    """

    name: str
    digest: str
    content: str | None
    ids: tuple[int, ...] | None
    path_or_name: str

    @classmethod
    def of(cls, content: str, name: str, path_or_name: str = "") -> Text:
        """Make a text of a string.

        Raises:
            TextError: there is nothing in it.
        """
        if not content.strip():
            raise TextError(f"The text {name} is empty.")
        return cls(name, hashlib.sha256(content.encode()).hexdigest(), content, None, path_or_name or name)


def sources() -> dict[str, ModuleType]:
    """Return the named sources' modules, in the order of :data:`SOURCES`."""
    import importlib

    return {name: importlib.import_module(f"ghosted.texts.{name.replace('-', '_')}") for name in SOURCES}


def read(
    name_or_path: str, *, model: LoadedModel | None = None, seed: int = 0, tokens_needed: int = 65_536,
    split: str = "train", cancel: CancelFlag | None = None,
) -> Steps[Text]:
    """Read a text.

    Args:
        name_or_path: one of :data:`SOURCES`, or a path.
        model: the model that writes the text where it is ``generated``.
        seed: of generated text.
        tokens_needed: how much of an endless text is needed.
        split: ``train`` or ``test``, for sources that have both.
        cancel: stops the work.

    Raises:
        TextError: missing, empty, not UTF-8 text, or not reachable.
    """
    name = name_or_path.strip()
    if name in SOURCES:
        return (yield from sources()[name].read(
            model=model, seed=seed, tokens_needed=tokens_needed, split=split, cancel=cancel
        ))
    from ghosted.texts import file

    if _is_path(name):
        return file.read(name)
    close = difflib.get_close_matches(name.lower(), SOURCES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose {', '.join(SOURCES)}, or give the path of a file."
    raise TextError(f"There is no text {name[:80]!r}; {hint}")


def _is_path(name: str) -> bool:
    if not name or "\0" in name or len(name) > 4096:
        return False
    looks_like_one = os.sep in name or "/" in name or name.startswith(("~", ".")) or bool(Path(name).suffix)
    return looks_like_one or Path(name).exists()
