"""Which lesson is open? Its step above the panels: what to look at, a question, and what became of the answer.

The buttons fire ``act`` with what they ask for (``assets/lesson.js``); the handlers are in :mod:`analysis.teaching`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from analysis.glossary import explained, sheet
from analysis.lessons import Lesson, Question, lessons
from analysis.lessons.answers import Answered
from analysis.lessons.facts import filled, seen
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record
from analysis.scripts import script
from analysis.words import said

KEPT = "() => [window.ghostedAnswers?.() ?? '']"
"""Tells the answers that this browser keeps."""


@dataclass(frozen=True)
class LessonPanel:
    """The panel's components: the menu of lessons, the line with the buttons, a step's text, question and verdict."""

    menu: gr.HTML
    bar: gr.HTML
    text: gr.Markdown
    question: gr.HTML
    verdict: gr.Markdown


def place_menu() -> gr.HTML:
    """Place the menu, which belongs to the page's head."""
    return gr.HTML(menu("en"), js_on_load=script("lesson", "terms"), elem_id="gl-lesson-menu", min_width=110)


def build(menu: gr.HTML) -> LessonPanel:
    """Place the panel; it is seen while a lesson is open."""
    deeds = script("lesson")
    with gr.Column(elem_classes="gl-panel gl-own gl-lesson", elem_id="gl-lesson"):
        bar = gr.HTML("", js_on_load=deeds, elem_id="gl-lesson-bar")
        text = gr.Markdown("", latex_delimiters=parts.LATEX, elem_classes="gl-lesson-text", elem_id="gl-lesson-text")
        question = gr.HTML("", js_on_load=deeds, elem_id="gl-lesson-question")
        verdict = gr.Markdown("", latex_delimiters=parts.LATEX, elem_classes="gl-lesson-text",
                              elem_id="gl-lesson-verdict")
    return LessonPanel(menu, bar, text, question, verdict)


def menu(language: str) -> str:
    """Return the menu: every lesson as a button, the cheat sheet, the other language."""
    buttons = "".join(
        _button("open", f"{number} {lesson.title[language]}", lesson.name,
                more=said("minutes", language, minutes=lesson.minutes))
        for number, lesson in enumerate(lessons().values(), start=1)
    )
    # As an attribute: a style sheet inside a template would reach the whole page by way of gradio.
    cheat = f"<span data-sheet='{escape(sheet(language))}'>{_button('sheet', said('cheat', language))}</span>"
    inside = buttons + cheat + _button("forget", said("forget", language)) + _language(language)
    summary = f"<summary class='gl-small'>{said('lessons', language)}</summary>"
    return f"<details class='gl-menu' lang='{language}'>{summary}<div>{inside}</div></details>"


def show(
    panel: LessonPanel, lesson: Lesson, index: int, language: str, record: Record | None,
    answered: Answered | None = None, guessed: Sequence[tuple[str, int]] = (), teacher: bool = False,
    notice: str = "", covered: Sequence[str] = (), skipped: bool = False,
) -> dict[Any, Any]:
    """Return the updates that show one step.

    Args:
        panel: the panel.
        lesson: the open lesson.
        index: of its step, from 0.
        language: of every text.
        record: the run that is shown; its numbers stand in the texts.
        answered: what the learner answered.
        guessed: a histogram of the class's answers, shown once this learner has answered.
        teacher: whether the answer is shown in any case.
        notice: one sentence above the text, or nothing.
        covered: the panels that would show the answer (:func:`covers`).
        skipped: whether they were uncovered without an answer.
    """
    step = lesson.steps[index]
    remembered = "null" if skipped else ""
    if answered is not None and answered.verdict in ("right", "wrong"):
        remembered = json.dumps(answered.given)
    text = f"### {step.title[language]}\n\n" + (f"*{notice}*\n\n" if notice else "")
    return {
        panel.menu: menu(language), panel.bar: bar(lesson, index, language, teacher, covered, remembered),
        panel.text: text + explained(filled(step.text[language], record), language),
        panel.question: "" if step.question is None else form(step.question, language, answered),
        panel.verdict: "" if step.question is None else verdict(step.question, language, record, answered, guessed,
                                                                teacher),
    }


def closed(panel: LessonPanel, language: str) -> dict[Any, Any]:
    """Return the updates of a panel without an open lesson."""
    empty = f"<div class='gl-lessons' data-closed='1' lang='{language}'></div>"
    return {panel.menu: menu(language), panel.bar: empty, panel.text: "", panel.question: "", panel.verdict: ""}


def covers(question: Question | None, answered: Answered | None) -> tuple[str, ...]:
    """Return the panels that show what a question asks for, as long as nothing was answered."""
    open_ = question is not None and not question.reads and (answered is None or answered.verdict == "unread")
    return seen(question.check.fact) if open_ else ()


def bar(lesson: Lesson, index: int, language: str, teacher: bool = False, covered: Sequence[str] = (),
        remembered: str = "") -> str:
    """Return the line of a lesson: where one is in it, the ways on, for the script what it covers and remembers."""
    step, steps = lesson.steps[index], len(lesson.steps)
    number = list(lessons()).index(lesson.name) + 1
    place = said("step", language, lesson=number, step=index + 1, steps=steps)
    dots = "".join(f"<i{' class=gl-here' if i == index else ''}></i>" for i in range(steps))
    title = f"<span class='gl-caption'>{escape(lesson.title[language])}</span>"
    title += f"<span class='gl-place'>{place}<span class='gl-dots' aria-hidden='true'>{dots}</span></span>"
    onward = _button("go", said("next", language), index + 1) if index + 1 < steps else _button(
        "finish", said("finish", language))
    ways = [
        _button("go", said("back", language), index - 1, off=index == 0), onward,
        _button("point", said("show", language), step.panel, off=step.panel is None),
        _button("teacher", said("no_teacher" if teacher else "teacher", language)),
        _button("print", said("print", language)), _language(language),
        _button("close", said("close", language), sign="×"),
    ]
    cover = (f" data-covers='{' '.join(covered)}' data-why='{said('covered', language)}'"
             f" data-uncover='{said('uncover', language)}'") if covered else ""
    cover += f" data-answer='{escape(remembered)}'" if remembered else ""
    return (
        f"<div class='gl-lessons' data-lesson='{escape(lesson.name)}' data-step='{index + 1}' lang='{language}'{cover}>"
        f"<div class='gl-where'>{title}</div>"
        f"<div class='gl-ways'>{''.join(ways)}</div></div>"
    )


def form(question: Question, language: str, answered: Answered | None) -> str:
    """Return a question with its way to answer."""
    ask = f"<legend>{escape(question.ask[language])}</legend>"
    given = answered.given if answered is not None and answered.verdict != "unread" else ""
    if question.kind == "choice":
        rows = "".join(
            f"<label><input type='radio' name='gl-answer' value='{escape(option.value)}'"
            f"{' checked' if option.value == given else ''}> {escape(option.text[language])}</label>"
            for option in question.options
        )
    elif question.kind == "number":
        unit = f" {escape(question.unit[language])}" if question.unit else ""
        rows = (f"<label>{said('guess', language)} <input type='text' inputmode='decimal' name='gl-answer' size='8' "
                f"maxlength='20' value='{escape(given)}'>{unit}</label>")
    else:
        rows = ""
    press = said("check" if question.kind == "act" else "commit", language)
    return f"<fieldset class='gl-question'>{ask}<div>{rows}</div>{_button('answer', press)}</fieldset>"


def verdict(
    question: Question, language: str, record: Record | None, answered: Answered | None,
    guessed: Sequence[tuple[str, int]], teacher: bool,
) -> str:
    """Return what became of an answer, the explanation, and what the class said."""
    if answered is None:
        return explained(filled(question.explain[language], record), language) if teacher else ""
    if answered.verdict in ("unknown", "unread"):
        return said(answered.verdict, language)
    explanation = explained(filled(question.explain[language], record), language)
    fact = three(answered.fact) if isinstance(answered.fact, float) else str(answered.fact)
    if question.kind == "act":
        text = said("right", language) if answered.verdict == "right" else said("wrong_act", language, fact=fact)
        return text if answered.verdict == "wrong" and not teacher else f"{text} {explanation}"
    text = f"**{said(answered.verdict, language)}** "
    if question.kind == "number":
        text += said("was", language, given=answered.given) + " "  # the explanation begins with the number
    return text + explanation + _histogram(guessed, language)


def _histogram(guessed: Sequence[tuple[str, int]], language: str) -> str:
    most = max((count for _, count in guessed), default=0)
    if not most:
        return ""
    rows = "".join(f"\n| {label} | {'█' * round(16 * count / most)} {count} |" for label, count in guessed)
    title = said("class", language, count=sum(count for _, count in guessed))
    return f"\n\n| {title} | |\n|---|---|{rows}"


def _button(deed: str, label: str, value: Any = "", off: bool = False, more: str = "", sign: str = "") -> str:
    behind = f" <small>{escape(more)}</small>" if more else ""
    named = f" aria-label='{escape(label)}' title='{escape(label)}'" if sign else ""
    return (f"<button type='button' class='gl-small' data-deed='{deed}' data-value='{escape(str(value))}'"
            f"{named}{' disabled' if off else ''}>{sign or escape(label)}{behind}</button>")


def _language(language: str) -> str:
    return _button("lang", said("other_language", language), "de" if language == "en" else "en")
