"""What runs in the browser? The files of ``assets`` that a component's script is made of, with the words they say."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from analysis.words import LANGUAGES, catalogue, said

ASSETS = Path(__file__).parents[1] / "assets"


def script(*names: str, words: str | tuple[str, ...] = "") -> str:
    """Return files joined to one script.

    Args:
        names: of files of ``assets``, without ``.js``.
        words: what the keys of the catalogue that they say begin with; empty where they say nothing.
    """
    spoken = {key: [texts[each] for each in LANGUAGES] for key, texts in catalogue().items() if key.startswith(words)}
    head = f"const WORDS = {json.dumps(spoken, ensure_ascii=False)};\n" if words else ""
    files = ["words", *names] if words else list(names)
    return head + "".join((ASSETS / f"{name}.js").read_text("utf-8") for name in files)


def words_in(tag: str, key: str, kind: str = "", role: str = "", type: str = "", **attributes: str) -> str:
    """Return an element of a component's template whose words its script says in the page's language (``words.js``).

    Args:
        tag: of the element.
        key: of its text; empty where only attributes are said, and then the element stays open.
        kind: its classes.
        role: its role.
        type: its type.
        attributes: by name, the key of what the attribute says.
    """
    plain = {"class": kind, "role": role, "type": type, "data-words": key}
    for name, each in ((name.replace("_", "-"), each) for name, each in attributes.items()):
        plain |= {name: said(each, "en"), f"data-words-{name}": each}
    opened = "".join(f" {name}='{literal(value)}'" for name, value in plain.items() if value)
    return f"<{tag}{opened}>" + (f"{literal(said(key, 'en'))}</{tag}>" if key else "")


def literal(text: str) -> str:
    """Return text for an HTML template, in which braces, dollars, backticks and backslashes would be code."""
    return "".join(f"&#{ord(sign)};" if sign in "{}$`\\" else sign for sign in escape(text))
