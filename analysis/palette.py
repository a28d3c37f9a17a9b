"""The visual grammar: one colour, line style and symbol per thing, the same in every figure, column and table.

Based on the colour-blind safe set of Okabe and Ito (2008), shifted where a hue would drop under 3:1 on the light or
on the dark page. Nothing is told apart by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass

INK = "#111111"
"""Plain pruning's black; ``assets/app.css`` turns exactly this value light on the dark page."""

GREY = "#8a8a8a"
BLUE = "#0f7ac0"
ORANGE = "#dd7a00"
TEAL = "#1899a3"
VIOLET = "#8354dd"


@dataclass(frozen=True)
class Look:
    """How one method is drawn.

    Attributes:
        colour: hex colour, at least 3:1 on both pages.
        dash: plotly line style.
        symbol: plotly marker symbol.
    """

    colour: str
    dash: str = "solid"
    symbol: str = "circle"


LOOKS = {
    "original": Look(GREY, "solid", "circle"),
    "none": Look(INK, "dash", "x"),
    "scalar": Look("#a9744f", "dot", "circle-open"),
    "diagonal": Look("#8a8530", "dash", "square-open"),
    "linearpatch-diag": Look("#3f9fdc", "dot", "triangle-up"),
    "linearpatch": Look(BLUE, "dashdot", "triangle-down"),
    "procrustes": Look("#5f82d6", "dashdot", "diamond-open"),
    "symmetric": Look(TEAL, "dot", "hexagon"),
    "low-rank": Look("#5e8aa6", "longdash", "triangle-up-open"),
    "replaceme": Look("#0c9b6f", "longdash", "square"),
    "replaceme-cosine": Look("#4f9a2f", "dash", "triangle-down-open"),
    "ghosted": Look(VIOLET, "solid", "circle"),
    "ghosted-weighted": Look("#bb5ad0", "longdashdot", "diamond"),
    "normalised": Look("#9d7fd6", "dot", "diamond-wide"),
    "best": Look("#dc2f6e", "solid", "star"),
}

SPARE = (Look("#a07a28", "dash", "hexagram"), Look("#c2566b", "dot", "pentagon"), Look("#6f7f33", "dashdot", "cross"))
"""For methods that were added without a look of their own."""

DIVERGING = (
    (0.0, "#08457e"), (0.2, "#2b83c4"), (0.4, "#a9cfea"), (0.5, "#f7f7f5"),
    (0.6, "#f8cf98"), (0.8, "#df8a1f"), (1.0, "#8c4a00"),
)
"""Blue – orange with a neutral middle; always drawn with equal limits on both sides of 0."""


def look(method: str) -> Look:
    """Return how ``method`` is drawn; an unknown one gets one of the spare looks, always the same."""
    return LOOKS.get(method) or SPARE[sum(method.encode()) % len(SPARE)]


def css_class(method: str) -> str:
    """Return the class by which ``assets/app.css`` colours a method's column: unknown methods share one."""
    return f"gl-m-{method}" if method in LOOKS else "gl-m-other"
