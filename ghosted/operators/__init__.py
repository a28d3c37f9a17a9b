"""The methods: how a gap is repaired. One file each, found by :func:`ghosted.registry.members`.

A method's module states ``NAME``, ``LABEL`` (for people), ``ORDER``, ``NEEDS`` (the statistics it is fitted from, see
:mod:`ghosted.calibration.statistics`) and ``fit(statistics, settings) -> Fitted``; a ``fit`` that takes long is a
generator that yields :class:`~ghosted.progress.Progress` and returns its ``Fitted``. Every repair has one shape:

    x̂ = x + φ M

where φ is the state entering the gap (then W = I + M), that state normalised, or what the feed-forward branch before
the gap adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from ghosted.registry import members, pick

if TYPE_CHECKING:
    from torch import Tensor

    from ghosted.calibration.statistics import Boundary, GapStatistics
    from ghosted.progress import CancelFlag

PACKAGE = __name__


@dataclass(frozen=True)
class Settings:
    """What a fit may depend on beside the statistics.

    Attributes:
        ridge: λ relative to ``mean(diag G)``, or ``auto``: the one of the least error on ``held_out``.
        rank: rank of the methods that have one, ``None`` for their default.
        seed: of methods that draw random numbers.
        held_out: the gap's statistics on held-out tokens, where a fit chooses by them (``ridge`` is ``auto``).
        read_again: gives the gap's calibration boundaries, for methods that need the tokens themselves.
        cancel: checked by fits that take long.
    """

    ridge: float | str = 1e-6
    rank: int | None = None
    seed: int = 0
    held_out: GapStatistics | None = None
    read_again: Callable[[], Iterable[Boundary]] | None = None
    cancel: CancelFlag | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted repair of one gap.

    Attributes:
        feature: what M multiplies: ``state``, ``normalised`` or ``feed_forward``.
        M: ``(C, C)`` float64, or ``None`` for plain pruning.
        added_parameters: free numbers that the repair adds to the model (0 where it merges into existing weights).
        rank: eigenvalues of the Gram matrix kept by the solve.
        dof: effective degrees of freedom Σ e/(e + λ).
        ridge: the λ that was used, relative to ``mean(diag G)``, where it was chosen.
        condition: condition number of G over the kept eigenvalues.
        note: one sentence on how it was built, where that needs saying.
    """

    feature: str
    M: Tensor | None
    added_parameters: int = 0
    rank: int | None = None
    dof: float | None = None
    ridge: float | None = None
    condition: float | None = None
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
