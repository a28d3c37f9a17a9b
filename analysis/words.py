"""What does the page say in each language? One catalogue, ``assets/words.json``: a text by key and language."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "assets" / "words.json"
LANGUAGES = ("en", "de")


def said(key: str, language: str, **values: Any) -> str:
    """Return a text with its places filled.

    Args:
        key: of the catalogue.
        language: one of :data:`LANGUAGES`; any other is read as English.
        values: for the places of the text.

    Raises:
        KeyError: the catalogue has no such text.
    """
    return catalogue()[key][language if language in LANGUAGES else "en"].format(**values)


def language_of(asked: str, header: str = "") -> str:
    """Return the language of a visitor: what the link asks for, else the first that the browser wants and we have."""
    wanted = [asked, *(part.partition(";")[0] for part in header.split(","))]
    known = (each.strip().lower()[:2] for each in wanted)
    return next((each for each in known if each in LANGUAGES), "en")


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Return every text by key and language."""
    return json.loads(FILE.read_text("utf-8"))
