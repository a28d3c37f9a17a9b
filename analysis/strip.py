"""Held-out text as HTML, every token tinted by the error that a repair leaves there, with the numbers of all repairs.

The text may be a visitor's own file: each piece goes through :func:`html.escape` and nothing else. Which repair tints
the text, and what is said of a token, is done by ``assets/strip.js`` from the numbers that come along.
"""

from __future__ import annotations

import json
from html import escape
from itertools import pairwise

import numpy as np

from analysis.names import method_label
from analysis.numbers import three
from analysis.palette import css_class
from analysis.speech import say
from ghosted.results import BoundaryProfile

STEPS = (0.4, 0.55, 0.7, 0.85, 1.0, 2.0)
"""Errors at which the tint grows by one step; from 1 on, where plain pruning stands, tokens are underlined as well."""
SINK = 10
"""A sink is a token whose state is at least so many times as long as the median."""


def token_strip(profile: BoundaryProfile, shown: str) -> str:
    """Return the text with its picker of repairs, a card for the token under the pointer, and the key.

    Args:
        profile: its first tokens are shown.
        shown: the method that tints the text at first.
    """
    names, wide = list(profile.methods), sinks(profile)
    ratios = [[_plain(value) for value in profile.methods[name].tokens] for name in names]
    data = {
        "ratios": ratios, "norms": [_plain(value) for value in profile.norms], "window": profile.window,
        "sinks": np.flatnonzero(wide).tolist(), "steps": STEPS,
    }
    first = ratios[names.index(shown)]  # as the script reads them, so that both tint alike
    tokens = "".join(_token(piece, first[at] or 0.0, wide[at], at and at % profile.window == 0)
                     for at, piece in enumerate(profile.pieces))
    numbers = escape(json.dumps(data, separators=(",", ":")))
    return (
        f"<div class='gl-where' data-numbers='{numbers}'>{_picker(names, shown)}"
        "<div class='gl-where-body'>"
        "<p class='gl-strip' tabindex='0' role='group' "
        f"aria-label='{say('strip.label')}'>{tokens}</p>{_card(profile, names)}</div>{_key()}"
        "<p class='gl-unseen' role='status'></p></div>"
    )


def tint(ratio: float) -> int:
    """Return the step of the tint, 0 (hardly any error) to 6; 0 where there is nothing to repair."""
    return sum(ratio >= step for step in STEPS)


def sinks(profile: BoundaryProfile) -> np.ndarray:
    """Return ``(T,)`` which of the shown tokens are sinks."""
    return profile.norms >= SINK * np.median(profile.norms)


def median(values: np.ndarray) -> float | None:
    """Return the median of what is a number, ``None`` where nothing is."""
    seen = values[np.isfinite(values)]
    return float(np.median(seen)) if len(seen) else None


def _plain(value: float) -> float | None:
    return float(f"{value:.3g}") if np.isfinite(value) else None


def _token(piece: str, ratio: float, sink: bool, opens: bool) -> str:
    classes = [f"gl-e{tint(ratio)}"]
    classes += ["gl-sink"] * bool(sink) + ["gl-opens"] * bool(opens) + ["gl-where-part"] * (not piece)
    classes += ["gl-break"] * (piece != "" and not piece.strip("\r\n"))
    return f"<span class='{' '.join(classes)}'>{escape(piece)}</span>"


def _picker(names: list[str], shown: str) -> str:
    options = "".join(
        f"<label class='{css_class(name)}'><input type='radio' name='gl-strip-method' value='{at}'"
        f"{' checked' if name == shown else ''}><i class='gl-swatch'></i>{escape(method_label(name))}</label>"
        for at, name in enumerate(names)
    )
    return f"<fieldset class='gl-strip-pick'><legend>{say('strip.pick')}</legend>{options}</fieldset>"


def _card(profile: BoundaryProfile, names: list[str]) -> str:
    rows = "".join(
        f"<li class='{css_class(name)}'><i class='gl-swatch'></i><span>{escape(method_label(name))}</span>"
        f"<b>{three(median(profile.methods[name].tokens))}</b></li>"
        for name in names
    )
    return (
        "<div class='gl-where-card' aria-hidden='true'><p class='gl-where-card-token'></p>"
        f"<p class='gl-where-card-place'>{say('strip.until', count=f'{len(profile.pieces):,}')}</p>"
        f"<p class='gl-where-card-norm'>{say('strip.length', length=three(median(profile.norms)))}</p>"
        f"<ul>{rows}</ul></div>"
    )


def _key() -> str:
    edges = ("", *(f"{step:g}" for step in STEPS))
    steps = [say("strip.below", edge=edges[1]), *(f"{low}–{high}" for low, high in pairwise(edges[1:]))]
    steps.append(say("strip.above", edge=edges[-1]))
    swatches = "".join(f"<span><i class='gl-e{level}'>ab</i>{said}</span>" for level, said in enumerate(steps))
    return (
        f"<p class='gl-where-key'>{say('strip.key')} {swatches}<span><i class='gl-sink'>ab</i>"
        f"{say('strip.sink', times=SINK)}</span></p>"
    )
