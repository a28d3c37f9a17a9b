"""A text from a local file: ``.jsonl`` with a ``text`` field per line, anything else as plain UTF-8."""

from __future__ import annotations

import json
from pathlib import Path

from ghosted.errors import TextError
from ghosted.texts import Text

LARGEST = 1_000_000_000
"""Bytes; a larger file is asked to be split rather than read into memory."""


def read(path: str) -> Text:
    """Read a file; line ends become line feeds, so that the same text has the same sha256 everywhere.

    Raises:
        TextError: one sentence: missing, a folder, empty, too large, not UTF-8 text, or not JSON lines with ``text``.
    """
    where = Path(path).expanduser()
    try:
        if where.is_dir():
            raise TextError(f"{path} is a folder; give the path of a .txt or .jsonl file.")
        if not where.exists():
            raise TextError(f"There is no file {path}.")
        if not where.is_file():
            raise TextError(f"{path} is not an ordinary file.")
        if where.stat().st_size > LARGEST:
            raise TextError(f"The text {where.name} is larger than {LARGEST / 1e9:g} GB; give a part of it.")
        return parse(where.read_bytes(), where.name, path)
    except OSError as error:
        raise TextError(f"{path} cannot be read ({error.strerror}).") from error


def parse(data: bytes, name: str, path: str = "") -> Text:
    """Make a text of a file's bytes (an upload, too); its name tells JSON lines from plain text.

    Raises:
        TextError: as :func:`read`.
    """
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        content = "\0"
    if "\0" in content:
        raise TextError(f"The text {name} is not UTF-8 text (a binary file, or another encoding).")
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    if name.lower().endswith((".jsonl", ".ndjson")):
        content = _join(content, name)
    return Text.of(content, name, path)


def _join(lines: str, name: str) -> str:
    texts = []
    for number, line in enumerate(lines.split("\n"), 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise TextError(f'Line {number} of {name} is not a JSON object with a "text" field that holds a string.')
        texts.append(text)
    return "\n\n".join(texts)
