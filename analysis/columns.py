"""Side-by-side texts as HTML: every token tinted by how far the model's prediction is from the original's.

Model output is untrusted: each piece goes through :func:`html.escape` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from analysis.names import method_label
from analysis.numbers import three
from analysis.palette import css_class
from ghosted.results import Column

STEPS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""KL in nats at which the tint grows by one step."""


def text_columns(columns: Sequence[Column]) -> str:
    """Return all columns as one grid; an unfinished column ends with a quiet cursor."""
    return "<div class='gl-columns'>" + "".join(_column(c) for c in columns) + "</div>"


def tint(kl: float) -> int:
    """Return the step of the tint, 0 (none) to 6, for a KL in nats."""
    return sum(kl >= step for step in STEPS)


def summary(column: Column) -> str:
    """Return what the column's head says beside its name."""
    if column.method == "original":
        return f"{len(column.tokens)} tokens"
    if not column.tokens:
        return ""
    where = "same so far" if not column.finished else "identical"
    if column.diverges_at is not None:
        where = f"differs at token {column.diverges_at}"
    kl = f", mean KL {three(sum(column.kl) / len(column.kl))} nats" if column.kl else ""
    return where + kl


def _column(column: Column) -> str:
    cursor = "" if column.finished or column.error else "<span class='gl-cursor' aria-hidden='true'></span>"
    error = f"<p class='gl-column-error'>{escape(column.error)}</p>" if column.error else ""
    return (
        f"<article class='gl-column {css_class(column.method)}'>"
        f"<header><i class='gl-swatch'></i><b>{escape(method_label(column.method))}</b>"
        f"<small>{escape(summary(column))}</small></header>"
        f"<p class='gl-text'>{_body(column)}{cursor}</p>{error}</article>"
    )


def _body(column: Column) -> str:
    pieces = list(column.pieces)
    if "".join(pieces) != column.text:  # a letter split over tokens: its pieces cannot be shown one by one
        return escape(column.text.lstrip(" "))
    pieces[:1] = [pieces[0].lstrip(" ")] if pieces else []
    return "".join(_token(column, at, piece) for at, piece in enumerate(pieces))


def _token(column: Column, at: int, piece: str) -> str:
    known = at < len(column.kl)
    level = tint(column.kl[at]) if known and column.method != "original" else 0
    first = at == column.diverges_at
    if not level and not first:
        return escape(piece)
    label = f"KL {three(column.kl[at])} nats" if known else "KL not known yet"
    classes = f"gl-k{level}" + (" gl-first" if first else "")
    note = "first token that differs; " if first else ""
    return f"<span class='{classes}' title='{note}{label}'>{escape(piece)}</span>"
