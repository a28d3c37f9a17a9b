"""What does a lesson's number say today? Small expressions, evaluated on the run that is shown.

``perplexity(ghosted)``, ``least(damage, linearpatch, ghosted)``: a name, and arguments that are names or numbers. What
the run does not have is ``None``, and its place in a text says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.numbers import MISSING, three
from analysis.record import Record
from ghosted.results import MethodResult

Value = float | str | None
_CALL = re.compile(r"([a-z_]+)(?:\(([^()]*)\))?")
_LIVE = re.compile(r"\{\{([^{}]+)\}\}")
_FACTS: dict[str, Callable[..., Value]] = {}
SEEN = {
    "perplexity": ("scores", "downstream"), "damage": ("scores",), "calibration": ("boundary", "tokens"),
    "held_out": ("boundary", "scores", "tokens", "downstream"), "median": ("boundary", "scores", "tokens"),
    "downstream": ("downstream",), "cosine": ("layer_map", "similarity"), "cosine_choice": ("layer_map", "similarity"),
    "influence": ("similarity",), "spike": ("similarity",), "share": ("decomposition",),
    "reached": ("decomposition",), "agreement": ("generations",),
}
"""By fact, the panels in which a run shows it."""


def fact(function: Callable[..., Value]) -> Callable[..., Value]:
    """Make a function of a record and the arguments' texts a fact, under its own name."""
    _FACTS[function.__name__] = function
    return function


def evaluate(expression: str, record: Record | None) -> Value:
    """Return what an expression says of a run; ``None`` where the run does not have it.

    Raises:
        ValueError: it is no fact's expression.
    """
    found = _CALL.fullmatch(expression.strip())
    if found is None or found[1] not in _FACTS:
        raise ValueError(f"there is no fact {expression!r}")
    if record is None:
        return None
    arguments = [part.strip() for part in found[2].split(",")] if found[2] else []
    value = _FACTS[found[1]](record, *arguments)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def filled(text: str, record: Record | None) -> str:
    """Return a text with its live numbers, three significant digits each."""

    def live(found: re.Match[str]) -> str:
        value = evaluate(found[1], record)
        if value is None:
            return MISSING
        return value if isinstance(value, str) else three(value)

    return _LIVE.sub(live, text)


def seen(expression: str) -> tuple[str, ...]:
    """Return the panels that show what an expression says; none for a fact of the controls or of the settings."""
    words = re.findall(r"[a-z_]+", expression)
    return tuple(dict.fromkeys(panel for word in words for panel in SEEN.get(word, ())))


def names(text: str) -> list[str]:
    """Return the expressions of a text's live numbers."""
    return _LIVE.findall(text)


@fact
def removed(record: Record) -> str:
    """Return the removed blocks in their canonical form."""
    return str(record.run.removed)


@fact
def tokens(record: Record) -> str:
    """Return how many tokens the operators were fitted on."""
    return f"{record.run.experiment.tokens:,}"


@fact
def width(record: Record) -> str:
    """Return C."""
    return f"{record.run.width:,}"


@fact
def perplexity(record: Record, method: str) -> Value:
    """Return the perplexity of a method, or of the original, on the first scored text."""
    run = record.run
    text = next(iter(run.dense_perplexity), None)
    if method == "original":
        return run.dense_perplexity.get(text)
    found = _method(record, method)
    return found and found.perplexity.get(text)


@fact
def damage(record: Record, method: str) -> Value:
    """Return ln(perplexity / perplexity of the original)."""
    found = _method(record, method)
    return found and found.damage.get(next(iter(record.run.dense_perplexity), None))


@fact
def calibration(record: Record, method: str) -> Value:
    """Return the residual boundary error on the calibration tokens."""
    return _residual(record, method, "calibration")


@fact
def held_out(record: Record, method: str) -> Value:
    """Return the residual boundary error on held-out tokens, Frobenius norm."""
    return _residual(record, method, "held_out")


@fact
def median(record: Record, method: str) -> Value:
    """Return the median over held-out tokens of the error per token."""
    return _residual(record, method, "median")


@fact
def downstream(record: Record, method: str) -> Value:
    """Return the relative error of the last state, the one that enters the final norm."""
    found = _method(record, method)
    return found.downstream[-1].error if found and found.downstream else None


@fact
def cosine(record: Record, first: str, second: str) -> Value:
    """Return the mean cosine per token of two states."""
    found = record.run.similarity
    return None if found is None else float(found.cosine[int(first), int(second)])


@fact
def influence(record: Record, block: str) -> Value:
    """Return the block influence: 1 − mean cosine of the state entering and leaving a block."""
    found = record.run.similarity
    return None if found is None else float(found.block_influence[int(block)])


@fact
def spike(record: Record, state: str) -> Value:
    """Return how many times the median the norm of a state is at the first position of a window."""
    found = record.run.similarity
    if found is None:
        return None
    norms = found.norms[int(state)]
    return float(norms[0] / np.median(norms))


@fact
def cosine_choice(record: Record, count: str) -> Value:
    """Return the range of so many blocks whose two states are most alike."""
    found = record.run.similarity
    if found is None:
        return None
    start = found.best_start(int(count))
    return f"{start}-{start + int(count) - 1}"


@fact
def share(record: Record, method: str) -> Value:
    """Return the percentage of ‖M‖² that is antisymmetric."""
    found = [picture for picture in record.portraits.values() if picture.method == method]
    return 100 * found[0].share_M if found else None


@fact
def reached(record: Record, method: str) -> Value:
    """Return the percentage of ‖M‖² that LinearPatch's form Q diag(d) Qᵀ can hold."""
    found = [picture for picture in record.portraits.values() if picture.method == method]
    held = found[0].contained.get("rotated") if found else None
    return None if held is None else 100 * held


@fact
def agreement(record: Record, method: str) -> Value:
    """Return the percentage of a method's new tokens at which the original would have written the same one."""
    found = next((column for column in record.run.columns if column.method == method), None)
    return 100 * float(np.mean(found.agrees)) if found is not None and found.agrees else None


@fact
def least(record: Record, of: str, *arguments: str) -> Value:
    """Return the argument, a method or a block, for which a fact is smallest."""
    return _extreme(record, of, arguments, min)


@fact
def most(record: Record, of: str, *arguments: str) -> Value:
    """Return the argument for which a fact is largest."""
    return _extreme(record, of, arguments, max)


@fact
def side(record: Record, of: str, argument: str, border: str) -> Value:
    """Return whether a fact of one argument is ``above`` or ``below`` a border."""
    value = _FACTS[of](record, argument)
    return None if not isinstance(value, float) else "above" if value > float(border) else "below"


def _extreme(record: Record, of: str, arguments: tuple[str, ...], which: Callable[..., Any]) -> Value:
    values = {argument: _FACTS[of](record, argument) for argument in arguments}
    known = {argument: value for argument, value in values.items() if isinstance(value, float)}
    return which(known, key=known.__getitem__) if len(known) == len(values) > 0 else None


def _method(record: Record, name: str) -> MethodResult | None:
    return next((found for found in record.run.methods if found.method == name), None)


def _residual(record: Record, method: str, which: str) -> float | None:
    found = _method(record, method)
    return getattr(found.residual, which) if found and found.residual else None
