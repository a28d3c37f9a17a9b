"""Shares → HTML: how much of an operator stretches and turns, and how much of M* each smaller family holds."""

from __future__ import annotations

from html import escape

from analysis.figures.operator import Portrait
from analysis.numbers import percent, three
from analysis.speech import say
from ghosted.results import Run

FAMILIES = (
    ("scalar", "scalar"), ("diagonal", "diagonal"), ("rotated", "linearpatch"), ("symmetric", "symmetric"),
    ("full", "ghosted"),
)
"""What :attr:`~ghosted.results.Decomposition.contained` holds, and the method that fits such an operator."""


def shares(picture: Portrait) -> str:
    """Return two bars, of W* and of M*, each split into S and A."""
    rows = "".join(_split(name, share) for name, share in (("W*", picture.share), ("M*", picture.share_M)))
    return f"<h3 class='gl-caption'>{say('shares.title')}</h3><table class='gl-shares'><tbody>{rows}</tbody></table>"


def families(picture: Portrait, run: Run) -> str:
    """Return a bar for each smaller family: how much of M* it holds, beside the error its fitted method leaves."""
    held = dict(picture.contained) | {"full": 1.0}
    rows = "".join(
        f"<tr><th scope='row'>{escape(say(f'shares.{family}'))}</th><td>{_bar(held[family], 'gl-part-m')}</td>"
        f"<td>{percent(held[family])}</td><td>{three(error_left(run, method, picture.gap))}</td></tr>"
        for family, method in FAMILIES if family in held
    )
    head = "".join(f"<th scope='col'>{say(f'shares.{name}')}</th>" for name in ("family", "share", "percent", "left"))
    return (
        f"<h3 class='gl-caption'>{say('shares.families')}</h3><table class='gl-shares gl-families'>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def error_left(run: Run, method: str, gap: str) -> float | None:
    """Return the held-out error of a method at one gap, ``None`` where it was not measured."""
    found = next((each for each in run.methods if each.method == method), None)
    residual = found and (found.gaps.get(gap) or found.residual)
    return residual.held_out if residual else None


def _split(name: str, turning: float) -> str:
    stretching = 1 - turning
    bar = f"<span class='gl-parted'>{_part(stretching, 'gl-part-s')}{_part(turning, 'gl-part-a')}</span>"
    said = f"S {percent(stretching)}, A {percent(turning)}"
    return f"<tr><th scope='row'>{name}</th><td>{bar}</td><td>{said}</td></tr>"


def _bar(share: float, kind: str) -> str:
    return f"<span class='gl-parted'>{_part(share, kind)}</span>"


def _part(share: float, kind: str) -> str:
    return f"<i class='{kind}' style='width:{100 * min(max(share, 0.0), 1.0):.2f}%'></i>"
