"""What did this browser answer before? It keeps its answers (``assets/lesson.js``) and tells them as the page opens."""

from __future__ import annotations

import json
import re

from analysis.lessons import lessons
from analysis.lessons.answers import MOST

LONGEST = 20_000
"""Letters that are read."""

Kept = dict[tuple[str, int], str | None]
"""By lesson and step, from 0: what was answered, ``None`` where the panels were uncovered without an answer."""


def kept(text: str) -> Kept:
    """Read the answers that a browser kept, ``{"cut.2": "30"}``; what is none of a question is left out."""
    try:
        data = json.loads(text) if len(text) <= LONGEST else {}
    except (TypeError, ValueError, RecursionError):
        data = {}
    found: Kept = {}
    for key, given in data.items() if isinstance(data, dict) else ():
        name, _, step = key.partition(".")
        if name not in lessons() or not re.fullmatch(r"[1-9]\d?", step, re.ASCII):
            continue
        index = int(step) - 1
        asks = index < len(lessons()[name].steps) and lessons()[name].steps[index].question is not None
        if asks and (given is None or isinstance(given, str)):
            found[name, index] = given and given[:MOST]
    return found


def browser(token: str, otherwise: str) -> str:
    """Return the random number that a browser has given itself; ``otherwise`` for one that has none."""
    return token if re.fullmatch(r"[0-9a-f]{32}", token) else otherwise
