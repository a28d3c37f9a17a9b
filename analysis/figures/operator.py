"""What is W made of? Heat maps of W - I, S - I and A.

A repair is close to doing nothing, so the identity's diagonal would drown everything else. W - I, S - I and A are
shown instead, on one colour scale: the picture of W - I is the sum of the other two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from analysis.figures.canvas import COLOURBAR, averaged, blank, square
from analysis.palette import DIVERGING
from ghosted.results import Decomposition


@dataclass(frozen=True, eq=False)
class Portrait:
    """What the page keeps of a decomposition: small enough to stay in memory for every visitor.

    Attributes:
        method: whose operator it is.
        gap: its gap, by name.
        width: C.
        step: entries averaged into one pixel along each side.
        limit: the colour scale runs from -limit to limit.
        share: ‖A‖²/‖W‖².
        share_M: the same of M.
        maps: ``W``, ``S`` and ``A`` without the identity, averaged down to at most 128 × 128.
        eigenvalues: ``(C,)`` complex, of W.
        symmetric: ``(C,)`` eigenvalues of S, descending.
        rotations: θ > 0 of A's pairs, descending.
        singular: ``(C,)`` singular values of M, descending.
    """

    method: str
    gap: str
    width: int
    step: int
    limit: float
    share: float
    share_M: float
    maps: dict[str, np.ndarray]
    eigenvalues: np.ndarray
    symmetric: np.ndarray
    rotations: np.ndarray
    singular: np.ndarray

    def to_json(self):
        from ghosted.plain import to_plain
        return to_plain(self)

    @classmethod
    def from_json(cls, data):
        from ghosted.plain import from_plain
        return from_plain(cls, data)


def portrait(found: Decomposition, most: int = 128) -> Portrait:
    """Reduce a decomposition with W ``(C, C)`` to what the pictures need."""
    M = np.asarray(found.W, dtype=np.float64) - np.eye(len(found.W))
    small = averaged(M, most)
    maps = {"W": small, "S": (small + small.T) / 2, "A": (small - small.T) / 2}
    limit = float(np.quantile(np.abs(small), 0.998)) or 1.0
    return Portrait(
        found.method, found.gap, len(M), -(-len(M) // most), limit, found.share_antisymmetric,
        found.share_antisymmetric_M, maps, found.eigenvalues, found.eigenvalues_symmetric, found.rotations,
        found.singular_values,
    )


def operator_map(picture: Portrait, part: str) -> go.Figure:
    """Draw one of ``W``, ``S``, ``A`` (without the identity) as a heat map centred at 0."""
    z = picture.maps[part]
    channels = np.arange(len(z)) * picture.step
    figure = blank(360, margin={"l": 44, "r": 8, "t": 8, "b": 90})
    figure.add_heatmap(
        z=z.astype(np.float32), x=channels, y=channels, zmin=-picture.limit, zmax=picture.limit,
        colorscale=list(DIVERGING), colorbar=COLOURBAR,
        hovertemplate="from channel %{y} to %{x}<br>%{z:.3g}<extra></extra>",
    )
    square(figure, "to channel", "from channel")
    return figure
