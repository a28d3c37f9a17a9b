"""The methods: how a gap is repaired. One file each, found by :func:`ghosted.registry.members`.

A method's module states ``NAME``, ``LABEL`` (for people), ``ORDER``, ``NEEDS`` (the statistics it is fitted from, see
:mod:`ghosted.calibration.statistics`) and ``fit(statistics, ridge) -> Fitted``. Every repair has one shape:

    x̂ = x + φ M

where φ is the state entering the gap (then W = I + M) or what the feed-forward branch before the gap adds to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from ghosted.registry import members, pick

if TYPE_CHECKING:
    from torch import Tensor

PACKAGE = __name__


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted repair of one gap.

    Attributes:
        feature: what M multiplies: ``state`` or ``feed_forward``.
        M: ``(C, C)`` float64, or ``None`` for plain pruning.
        added_parameters: free numbers that the repair adds to the model (0 where it merges into existing weights).
        rank: eigenvalues of the Gram matrix kept by the solve.
        dof: effective degrees of freedom Σ e/(e + λ).
        note: one sentence on how it was built, where that needs saying.
    """

    feature: str
    M: Tensor | None
    added_parameters: int = 0
    rank: int | None = None
    dof: float | None = None
    note: str | None = None


def method(name: str) -> ModuleType:
    """Return the module of one method; raises :class:`~ghosted.errors.InputError` for an unknown name."""
    return pick(PACKAGE, name, "method")


def methods() -> dict[str, ModuleType]:
    """Return all methods by name, in the order they are shown."""
    return members(PACKAGE)


def needs(names: tuple[str, ...]) -> frozenset[str]:
    """Return the statistics that these methods are fitted from."""
    return frozenset().union(*(method(name).NEEDS for name in names))
