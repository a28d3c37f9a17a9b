"""Is an answer right? It is checked against the run that is shown; what that run cannot tell is said to be unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from analysis.lessons import Question
from analysis.lessons.facts import Value, evaluate
from analysis.record import Record

Verdict = Literal["right", "wrong", "unknown", "unread"]
MOST = 40
"""Letters of an answer that are read."""


@dataclass(frozen=True)
class Answered:
    """An answer and what became of it.

    Attributes:
        given: as the learner gave it; for ``act`` the fact that was found.
        verdict: ``unknown`` where the shown run lacks the fact, ``unread`` where a number could not be read.
        fact: what the run says.
    """

    given: str
    verdict: Verdict
    fact: Value = None


def check(question: Question, given: str, record: Record | None, chosen: str = "") -> Answered:
    """Check an answer.

    Args:
        question: what was asked.
        given: the option's value, the number as it was typed, or anything for ``act``.
        record: the run that is shown.
        chosen: the blocks that the controls remove.
    """
    given, want = str(given)[:MOST].strip(), question.check
    value = chosen if want.fact == "chosen" else evaluate(want.fact, record) if want.fact else want.equals
    if question.kind == "number":
        number = number_of(given)
        if number is None:
            return Answered(given, "unread")
        if not isinstance(value, float):
            return Answered(given, "unknown")
        right = abs(number - value) <= (want.within or 0.0) * abs(value)
        return Answered(given, "right" if right else "wrong", value)
    if value is None:
        return Answered(given, "unknown")
    if question.kind == "choice":
        if given not in {option.value for option in question.options}:
            return Answered(given, "unread")
        expected = want.equals if want.equals is not None else str(value)
        return Answered(given, "right" if given == expected else "wrong", value)
    return Answered(str(value), "right" if str(value) == want.equals else "wrong", value)


def number_of(text: str) -> float | None:
    """Read a number as people type it, with a decimal point or comma and perhaps a unit; ``None`` if it is none."""
    clean = re.sub(r"[%×\s]", "", text)
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?", clean):  # as the page writes thousands
        clean = clean.replace(",", "")
    clean = clean.replace(",", ".")
    try:
        number = float(clean)
    except ValueError:
        return None
    return number if abs(number) < 1e12 else None
