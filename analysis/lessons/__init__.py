"""What is taught, and in what order? Lessons as data: one file of ``assets/lessons`` each, in English and German.

A lesson is a list of steps. A step has a text with live numbers, may show a run that was computed beforehand, may point
at a panel, and may ask something; an answer is checked against numbers of the run that is shown, never against numbers
that were written down (:mod:`analysis.lessons.facts`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from analysis.settings import DEFAULT
from analysis.words import LANGUAGES
from ghosted.experiment import Experiment

FOLDER = Path(__file__).parents[2] / "assets" / "lessons"
RUNS = FOLDER / "runs"
KINDS = ("choice", "number", "act")
"""How a question is answered: by picking, by a number, or by doing something on the page."""

Said = Mapping[str, str]
"""A text by language."""


@dataclass(frozen=True)
class Option:
    """One answer to pick: what stands for it in the check, and its text."""

    value: str
    text: Said


@dataclass(frozen=True)
class Check:
    """What the right answer is.

    Attributes:
        fact: an expression of :mod:`analysis.lessons.facts`, evaluated on the run that is shown; ``chosen`` are the
            blocks that the controls remove; empty where the answer is a matter of definition.
        within: a number is right when it is off by at most this share of the fact.
        equals: for ``act``: what the fact must be; for ``choice``: the right option where the fact does not name it.
    """

    fact: str
    within: float | None = None
    equals: str | None = None


@dataclass(frozen=True)
class Question:
    """Something the learner answers before it is revealed.

    Attributes:
        kind: one of :data:`KINDS`.
        ask: the question.
        explain: what is said once it was answered; may hold live numbers, and where a number was asked for begins
            with it.
        check: of the answer.
        options: of ``choice``.
        unit: behind the field of ``number``.
        reads: whether the answer is to be read from the panels; else they are covered until it was given.
    """

    kind: str
    ask: Said
    explain: Said
    check: Check
    options: tuple[Option, ...] = ()
    unit: Said | None = None
    reads: bool = False


@dataclass(frozen=True)
class Step:
    """One page of a lesson.

    Attributes:
        title: of the step.
        text: Markdown with KaTeX between dollar signs and live numbers between double braces.
        run: the run that it shows, a file of ``assets/lessons/runs``; ``None`` leaves what is shown.
        panel: the panel that it points at.
        question: what it asks.
    """

    title: Said
    text: Said
    run: str | None = None
    panel: str | None = None
    question: Question | None = None


@dataclass(frozen=True)
class Lesson:
    """A lesson: its name in links, what it is called, how long it takes in minutes, and its steps."""

    name: str
    title: Said
    minutes: int
    steps: tuple[Step, ...]


@cache
def lessons() -> dict[str, Lesson]:
    """Return all lessons by name, in the order of their files."""
    read = (lesson_of(json.loads(file.read_text("utf-8"))) for file in sorted(FOLDER.glob("*.json")))
    return {lesson.name: lesson for lesson in read}


def experiments() -> dict[str, Experiment]:
    """Return the experiments of the lessons' runs by name: the page's default, on the model's own text."""
    data = json.loads((RUNS / "experiments.json").read_text("utf-8"))
    start = dataclasses.replace(DEFAULT, criterion="manual", text="generated")
    return {name: dataclasses.replace(start, **given | {"methods": tuple(given["methods"])})
            for name, given in data.items()}


def lesson_of(data: Mapping[str, Any]) -> Lesson:
    """Make a lesson of a file's data.

    Raises:
        ValueError: a text lacks a language, or a question makes no sense.
    """
    steps = tuple(
        Step(_said(step["title"]), _said(step["text"]), step.get("run"), step.get("panel"),
             _question(step["question"]) if "question" in step else None)
        for step in data["steps"]
    )
    return Lesson(data["name"], _said(data["title"]), int(data["minutes"]), steps)


def _question(data: Mapping[str, Any]) -> Question:
    if data["kind"] not in KINDS:
        raise ValueError(f"a question is answered by one of {', '.join(KINDS)}, not {data['kind']!r}")
    options = tuple(Option(each["value"], _said(each["text"])) for each in data.get("options", ()))
    if (data["kind"] == "choice") != bool(options):
        raise ValueError("only a choice has options")
    number = "{{" + data["check"]["fact"] + "}}"
    if data["kind"] == "number" and not all(text.startswith(number) for text in _said(data["explain"]).values()):
        raise ValueError(f"what explains a number begins with it: {number}")
    unit = _said(data["unit"]) if "unit" in data else None
    return Question(data["kind"], _said(data["ask"]), _said(data["explain"]), Check(**data["check"]), options, unit,
                    data.get("reads", False))


def _said(text: Any) -> Said:
    joined = {language: "".join(part) if isinstance(part := text[language], list) else part for language in LANGUAGES}
    if not all(joined.values()):
        raise ValueError(f"a text is empty in one language: {text}")
    return joined
