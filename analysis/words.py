"""What does the page say in each language? One catalogue, ``assets/words/*.json``: a text by key and language.

A file holds the words of one subject. Places are written ``{name}``; other braces, as in formulas, are letters.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "assets" / "words"
LANGUAGES = ("en", "de")


def said(key: str, language: str, /, **values: Any) -> str:
    """Return a text with its places filled.

    Args:
        key: of the catalogue.
        language: one of :data:`LANGUAGES`; any other is read as English.
        values: for the places of the text.

    Raises:
        KeyError: the catalogue has no such text.
    """
    text = catalogue()[key][language if language in LANGUAGES else "en"]
    return re.sub(r"\{(\w+)\}", lambda place: str(values.get(place[1], place[0])), text) if values else text


def language_of(asked: str, header: str = "") -> str:
    """Return the language of a visitor: what the link asks for, else the first that the browser wants and we have."""
    wanted = [asked, *(part.partition(";")[0] for part in header.split(","))]
    known = (each.strip().lower()[:2] for each in wanted)
    return next((each for each in known if each in LANGUAGES), "en")


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Return every text by key and language.

    Raises:
        ValueError: two files have the same key.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        words = json.loads(path.read_text("utf-8"))
        if twice := found.keys() & words.keys():
            raise ValueError(f"{path.name} repeats {', '.join(sorted(twice))}")
        found |= words
    return found
