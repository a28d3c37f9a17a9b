"""What did the class guess? The answers to each question, counted in this server's memory: no names, nothing kept."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from analysis.lessons import Question
from analysis.lessons.answers import number_of

MOST_ANSWERS = 2_000
"""Answers counted per question; after that the counts stand."""
MOST_KNOWN = 20_000
"""First answers whose browser is remembered, so that each counts once."""
BINS = 8


class Guesses:
    """First answers by question; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, list[str]] = {}
        self._counted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def add(self, question: str, visitor: str, given: str) -> None:
        """Count a visitor's first answer to a question; the visitor is a browser's random number, or a page's."""
        with self._lock:
            if (question, visitor) in self._counted or len(self._answers.get(question, ())) >= MOST_ANSWERS:
                return
            self._counted[question, visitor] = None
            while len(self._counted) > MOST_KNOWN:
                self._counted.popitem(last=False)
            self._answers.setdefault(question, []).append(given)

    def of(self, question: str) -> list[str]:
        """Return all counted answers to a question."""
        with self._lock:
            return list(self._answers.get(question, ()))


def bars(question: Question, answers: list[str], language: str) -> list[tuple[str, int]]:
    """Return a histogram of answers: label and count of each option, or of each of :data:`BINS` equal ranges."""
    if question.kind == "choice":
        counted = Counter(answers)
        return [(option.text[language], counted[option.value]) for option in question.options]
    numbers = [number for each in answers if (number := number_of(each)) is not None]
    if not numbers:
        return []
    low, high = min(numbers), max(numbers)
    if low == high:
        return [(f"{low:.3g}", len(numbers))]
    step = (high - low) / BINS
    places = Counter(min(int((number - low) / step), BINS - 1) for number in numbers)
    return [(f"{low + i * step:.3g} – {low + (i + 1) * step:.3g}", places[i]) for i in range(BINS)]
