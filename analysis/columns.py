"""Side-by-side texts as HTML: what does each model write, and how sure is it of every token?

Model output is untrusted: each piece goes through :func:`html.escape` and nothing else. What the card beside a token
shows travels with its column, as JSON in ``data-details``; ``assets/columns.js`` puts it on the page as text only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape

from analysis.names import method_label
from analysis.numbers import count, percent, three
from analysis.palette import css_class
from analysis.scripts import words_in
from analysis.speech import say
from ghosted.results import Column

STEPS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""KL or surprisal in nats at which the tint grows by one step."""

DETAILED, DETAILED_WHILE_WRITING = 1024, 128
"""The newest tokens of a column that have a card: a finished text is sent once, a growing one again and again."""


def text_columns(columns: Sequence[Column], expected: int | None = None) -> str:
    """Return all columns as one grid; an unfinished column ends with a quiet cursor.

    Args:
        columns: the original first, as :func:`ghosted.generation.generate` orders them.
        expected: tokens asked for; the grid takes the height of that many from the start, so that nothing below moves.
    """
    tokens = expected or max((len(column.tokens) for column in columns), default=0)
    each = "".join(_column(column, columns[0]) for column in columns)
    return (
        f"<div class='gl-columns' style='--gl-tokens:{tokens}'>{each}</div>"
        f"<p class='gl-note gl-columns-example'>{escape(example(columns))}</p>"
    )


def tint(nats: float) -> int:
    """Return the step of the tint, 0 (none) to 6, for a KL or a surprisal in nats."""
    return sum(nats >= step for step in STEPS)


def legend() -> str:
    """Return the tint's steps with their numbers, as HTML."""
    steps = "".join(f"<span class='gl-t gl-k{k} gl-s{k}'>{step:g}</span>" for k, step in enumerate(STEPS, 1))
    return f"<span class='gl-legend'>{steps} {words_in('span', 'card.legend')}</span>"


def summary(column: Column) -> str:
    """Return what stands beside the column's name: whether and where it parts from the original."""
    if column.method == "original" or not column.tokens:
        return ""
    if column.diverges_at is not None:
        return say("columns.differs", at=column.diverges_at)
    return say("columns.identical" if column.finished and not column.error else "columns.same")


def facts(column: Column) -> dict[str, str]:
    """Return the numbers beside a column by their label; the same labels from the first token to the last."""
    speed = {say("columns.speed"): three(column.tokens_per_second),
             say("columns.parameters"): three(None) if column.parameters is None else count(column.parameters)}
    if column.method == "original":
        tokens = {say("columns.tokens"): str(len(column.tokens))}
        return speed | tokens | {say("columns.surprisal"): _nats(column.surprisal)}
    return speed | {say("columns.agreement"): percent(column.agreement), say("columns.kl"): _nats(column.kl)}


def example(columns: Sequence[Column]) -> str:
    """Return the formulas with today's numbers: the last finished column's, where it parts from the original."""
    for column in reversed(columns):
        at = column.diverges_at
        if column.finished and at is not None and len(column.surprisal) > at:
            name, share = method_label(column.method), math.exp(-column.surprisal[at])
            kl = say("columns.example_kl", kl=three(column.kl[at])) if at < len(column.kl) else ""
            return say("columns.example", at=at, name=name, share=three(share), surprisal=three(column.surprisal[at]),
                       kl=kl)
    return ""


def details(column: Column, original: Column) -> str:
    """Return the numbers of the cards of one column as JSON.

    ``from`` is the first token that has them; ``kl`` and ``surprisal`` are in nats; ``top`` holds five pieces and
    probabilities in turn; ``original`` the original's, 0 where that is just the original column's own.
    """
    start = max(len(column.tokens) - (DETAILED if column.finished else DETAILED_WHILE_WRITING), 0)
    data = {"from": start, "first": column.diverges_at, "surprisal": _short(column.surprisal[start:]),
            "top": [_flat(top) for top in column.top[start:]]}
    if column.method != "original":
        own = original.top
        data["kl"] = _short(column.kl[start:])
        data["original"] = [0 if at < len(own) and _flat(own[at]) == _flat(top) else _flat(top)
                            for at, top in enumerate(column.top_original[start:], start)]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _column(column: Column, original: Column) -> str:
    cursor = "" if column.finished or column.error else "<span class='gl-cursor' aria-hidden='true'></span>"
    error = f"<p class='gl-column-error'>{escape(column.error)}</p>" if column.error else ""
    numbers = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in facts(column).items())
    name = escape(method_label(column.method))
    label = say("columns.label", name=name)
    kept = escape(details(column, original), quote=False).replace("'", "&#x27;")
    return (
        f"<article class='gl-column {css_class(column.method)}' data-details='{kept}'>"
        f"<header><i class='gl-swatch'></i><b>{name}</b><small>{escape(summary(column))}</small></header>"
        f"<dl class='gl-facts'>{numbers}</dl>"
        f"<p class='gl-text' role='group' aria-label='{label}'>{_body(column)}{cursor}</p>"
        f"{error}</article>"
    )


def _body(column: Column) -> str:
    pieces = list(column.pieces)
    if "".join(pieces) != column.text:  # a letter split over tokens: its pieces cannot be shown one by one
        return escape(column.text.lstrip(" "))
    pieces[:1] = [pieces[0].lstrip(" ")] if pieces else []
    return "".join(_token(column, at, piece) for at, piece in enumerate(pieces))


def _token(column: Column, at: int, piece: str) -> str:
    classes = ["gl-t"]
    if column.method != "original" and at < len(column.kl) and (level := tint(column.kl[at])):
        classes.append(f"gl-k{level}")
    if at < len(column.surprisal) and (level := tint(column.surprisal[at])):
        classes.append(f"gl-s{level}")
    if at == column.diverges_at:
        classes.append("gl-first")
    return f"<span class='{' '.join(classes)}' tabindex='{-1 if at else 0}'>{escape(piece)}</span>"


def _nats(values: Sequence[float]) -> str:
    return say("columns.nats", number=three(sum(values) / len(values))) if values else three(None)


def _short(values: Iterable[float]) -> list[float | None]:
    return [float(f"{value:.3g}") if math.isfinite(value) else None for value in values]


def _flat(top: Iterable[Sequence]) -> list[str | float]:
    return [part for piece, probability in top for part in (piece, probability)]
