"""What is W made of? Heat maps of W, M = W - I, S - I and A, reduced for everyone and in full for a part of it.

A repair is close to doing nothing, so the identity's diagonal would drown everything else: the colour scale is M's and
only the picture of W has the diagonal, off the scale. M is the sum of S - I and A.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analysis.arrays import pack, unpack
from analysis.figures.canvas import COLOURBAR, averaged, blank, square
from analysis.matrices import MATRICES, Matrices
from analysis.palette import DIVERGING
from analysis.speech import say
from ghosted.errors import InputError
from ghosted.results import Decomposition, operator_key

HEIGHT = 400
SIDE = 96
"""Pixels along a side of the reduced pictures at most."""
CROP = 128
"""Pixels along a side of a part that was zoomed into."""
WIDEST = 1 << 17
"""The widest operator that is read from a file."""
PARTS = ("W", "M", "S", "A")
PLAIN = {"method": str, "gap": str, "width": int, "share": float, "share_M": float, "pairs": int, "rotation": str,
         "precision": str}
"""The fields of a portrait that are JSON as they are, and how each is read back."""


@dataclass(frozen=True, eq=False)
class Portrait:
    """What the page keeps of a decomposition: small enough to stay in memory for every visitor, and to be saved.

    Curves are kept at :func:`ranks` of their whole length.

    Attributes:
        method: whose operator it is.
        gap: its gap, by name.
        width: C.
        share: ‖A‖²/‖W‖².
        share_M: the same of M.
        reduced: M averaged down to at most ``SIDE`` × ``SIDE``.
        eigenvalues: complex, of W; at most 1,024 of the upper half-plane.
        symmetric: eigenvalues of S, descending; at most 1,024.
        rotations: θ > 0 of A's pairs, descending.
        singular: singular values of M, descending.
        pairs: how many rotations there are.
        errors: relative error left by the best operator of rank 0 … C, empty where it is not known.
        contained: share of ‖M‖² inside each smaller family (:attr:`ghosted.results.Decomposition.contained`).
        rotation: LinearPatch's Q at this width, ``Hadamard`` or ``cosine``.
        precision: what the spectra were computed in.
        matrix: key of the whole M in :data:`analysis.matrices.MATRICES`; never saved.
    """

    method: str
    gap: str
    width: int
    share: float
    share_M: float
    reduced: np.ndarray
    eigenvalues: np.ndarray
    symmetric: np.ndarray
    rotations: np.ndarray
    singular: np.ndarray
    pairs: int
    errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    contained: dict[str, float] = field(default_factory=dict)
    rotation: str = "Hadamard"
    precision: str = "float64"
    matrix: str = ""

    @property
    def step(self) -> int:
        """Entries averaged into one pixel along each side."""
        return -(-self.width // SIDE)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data; ``reduced`` is relative to its largest entry, so that float16 holds it."""
        scale = float(np.abs(self.reduced).max()) or 1.0
        upper = self.eigenvalues
        return {name: getattr(self, name) for name in PLAIN} | {
            "contained": dict(self.contained), "scale": scale, "reduced": pack(self.reduced / scale, "float16"),
            "eigenvalues": pack(np.stack([upper.real, upper.imag])),
        } | {name: pack(getattr(self, name)) for name in ("symmetric", "rotations", "singular", "errors")}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Portrait:
        """Return the portrait that was saved by :meth:`to_json`.

        Raises:
            InputError: it is none.
        """
        try:
            plain = {name: read(data[name]) for name, read in PLAIN.items()}
            contained = {str(family): float(share) for family, share in data["contained"].items()}
            scale, (real, imaginary) = float(data["scale"]), unpack(data["eigenvalues"])
            curves = {name: unpack(data[name]).ravel() for name in ("symmetric", "rotations", "singular", "errors")}
            reduced = unpack(data["reduced"]) * scale
        except (KeyError, TypeError, ValueError, AttributeError) as broken:
            raise InputError("The operator in this file cannot be read; export it again.") from broken
        found = cls(**plain, **curves, contained=contained, reduced=reduced, eigenvalues=real + 1j * imaginary)
        side = -(-found.width // max(found.step, 1))
        if not 0 < found.width <= WIDEST or reduced.shape != (side, side) or not np.isfinite(reduced).all():
            raise InputError("The picture of the operator in this file does not fit its width; export it again.")
        return found


def portrait(found: Decomposition, store: Matrices = MATRICES) -> Portrait:
    """Reduce a decomposition with W ``(C, C)`` to what the pictures need; the whole M goes to ``store``.

    A preview's first answer has no spectra yet; then neither has its portrait.
    """
    M = np.asarray(found.W, dtype=np.float32) - np.eye(len(found.W), dtype=np.float32)
    upper = found.eigenvalues[np.imag(found.eigenvalues) >= 0]
    upper = upper[np.argsort(upper.real)]
    errors = np.zeros(0) if found.error_by_rank is None else np.asarray(found.error_by_rank)
    return Portrait(
        found.method, found.gap, len(M), found.share_antisymmetric, found.share_antisymmetric_M, averaged(M, SIDE),
        _thinned(upper, 1024), _thinned(found.eigenvalues_symmetric, 1024), _thinned(found.rotations),
        _thinned(found.singular_values), len(found.rotations), _thinned(errors), found.contained, found.rotation,
        found.precision, store.put(M),
    )


def _thinned(values: np.ndarray, most: int = 192) -> np.ndarray:
    return values[ranks(len(values), most)]


def pick(kept: dict[str, Portrait], method: str, gap: str) -> Portrait | None:
    """Return the portrait of one method at one gap, ``None`` where there is none."""
    for first in (False, True):
        found = kept.get(operator_key(method, gap, first))
        if found is not None and found.gap == gap:
            return found
    return None


def ranks(count: int, most: int = 192) -> np.ndarray:
    """Return at most ``most`` of the places 0 … count − 1, first and last among them, evenly spread."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, most)).round().astype(int))


@dataclass(frozen=True)
class Region:
    """A part of the operator: channels ``rows`` (from) and ``columns`` (to), half-open."""

    rows: range
    columns: range


def region(first_row: Any, last_row: Any, first_column: Any, last_column: Any, width: int) -> Region | None:
    """Return the part between two inclusive pairs of channels in any order; ``None`` is the whole operator.

    Numbers beyond the operator are pulled in, as a box drawn with the mouse may hang over its edge.

    Raises:
        InputError: one of the numbers is missing.
    """
    numbers = (first_row, last_row, first_column, last_column)
    if any(number is None or not np.isfinite(number) for number in numbers):
        raise InputError(say("refused.channels", last=f"{width - 1:,}"))
    a, b, c, d = (int(np.clip(np.floor(number + 0.5), 0, width - 1)) for number in numbers)
    found = Region(range(min(a, b), max(a, b) + 1), range(min(c, d), max(c, d) + 1))
    return None if len(found.rows) == len(found.columns) == width else found


def pictures(M: np.ndarray, where: Region) -> dict[str, np.ndarray]:
    """Return ``W``, ``M``, ``S`` and ``A`` of one part of M ``(C, C)``, S and A without the identity.

    Every entry up to ``CROP`` × ``CROP``, means beyond.
    """
    rows, columns = (slice(part.start, part.stop) for part in (where.rows, where.columns))
    return _parts(averaged(M[rows, columns], CROP), averaged(M[columns, rows].T, CROP), where)


def operator_maps(picture: Portrait, where: Region | None = None, M: np.ndarray | None = None) -> dict[str, go.Figure]:
    """Draw ``W``, ``M``, ``S`` and ``A`` as heat maps on one scale centred at 0, by name.

    Args:
        picture: the reduced operator, drawn where no part is asked for.
        where: a part of it.
        M: ``(C, C)`` the whole operator, from which that part is cut.
    """
    if where is None or M is None:
        where = Region(range(picture.width), range(picture.width))
        maps = _parts(picture.reduced, picture.reduced.T, where)
    else:
        maps = pictures(M, where)
    limit = float(np.quantile(np.abs(maps["M"]), 0.998)) or 1.0
    return {part: _heat(maps[part], limit, where) for part in PARTS}


def _parts(straight: np.ndarray, turned: np.ndarray, where: Region) -> dict[str, np.ndarray]:
    """``straight`` is M, or its means, where the region is; ``turned`` the same of Mᵀ."""
    sides, first = (where.rows, where.columns), max(where.rows.start, where.columns.start)
    steps = [-(-len(side) // n) for side, n in zip(sides, straight.shape, strict=True)]
    sizes = [np.minimum(step, len(side) - step * np.arange(n))
             for side, step, n in zip(sides, steps, straight.shape, strict=True)]
    diagonal = np.arange(first, min(where.rows.stop, where.columns.stop))
    identity = np.zeros(straight.shape, dtype=np.float32)
    pixels = tuple((diagonal - side.start) // step for side, step in zip(sides, steps, strict=True))
    np.add.at(identity, pixels, 1)
    return {"W": straight + identity / np.outer(*sizes), "M": straight, "S": (straight + turned) / 2,
            "A": (straight - turned) / 2}


def _heat(z: np.ndarray, limit: float, where: Region) -> go.Figure:
    sides = where.rows, where.columns
    (down, across) = steps = [-(-len(side) // n) for side, n in zip(sides, z.shape, strict=True)]
    y, x = (side.start + (step - 1) / 2 for side, step in zip(sides, steps, strict=True))  # the middle of a pixel
    hover = "operator.around_hover" if max(steps) > 1 else "operator.channel_hover"
    figure = blank(HEIGHT, margin={"l": 44, "r": 8, "t": 8, "b": 90})
    figure.add_heatmap(
        z=np.asarray(z, dtype=np.float32), x0=x, dx=across, y0=y, dy=down, zmin=-limit, zmax=limit,
        colorscale=list(DIVERGING), colorbar=COLOURBAR,
        hovertemplate=say(hover, **{"from": "%{y:.0f}", "to": "%{x:.0f}", "value": "%{z:.3g}"}) + "<extra></extra>",
    )
    square(figure, say("operator.to"), say("operator.from"))
    if len(where.rows) != len(where.columns):  # a long part would be a thin line if its pixels were square
        figure.update_yaxes(scaleanchor=None)
    return figure
