"""The methods: how a gap is repaired. One file each, found by :func:`ghosted.registry.members`.

A method's module states ``NAME``, ``LABEL`` (for people), ``ORDER``, ``NEEDS`` (the statistics it is fitted from, see
:mod:`ghosted.calibration.statistics`) and ``fit(statistics, settings) -> Fitted``; a ``fit`` that takes long is a
generator that yields :class:`~ghosted.progress.Progress` and returns its ``Fitted``. ``DISTILLS = True`` says that
its operator may be trained further (:mod:`ghosted.distillation`), and ``STORED``, where not all of M has to be saved,
what does, by the name in :meth:`Fitted.tensors`. Every repair has one shape:

    x̂ = x + φ M

where φ is the state entering the gap (then W = I + M), that state normalised, or what the feed-forward branch before
the gap adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ghosted.errors import InputError
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
        generated: the gap's statistics on text that the model wrote itself, for a method that states how many
            ``GENERATED_TOKENS`` it takes.
        read_again: gives the gap's calibration boundaries, for methods that need the tokens themselves.
        cancel: checked by fits that take long.
    """

    ridge: float | str = 1e-6
    rank: int | None = None
    seed: int = 0
    held_out: GapStatistics | None = None
    generated: GapStatistics | None = None
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
        structure: which numbers of M are free: ``full``, ``diagonal``, or ``scalar`` (M = m I).
        factors: ``(C, r)`` and ``(r, C)`` with M = their product, where M has them.
        error_by_rank: relative error on calibration tokens left by the best operator of rank 0 … C.
    """

    feature: str
    M: Tensor | None
    added_parameters: int = 0
    rank: int | None = None
    dof: float | None = None
    ridge: float | None = None
    condition: float | None = None
    note: str | None = None
    structure: str = "full"
    factors: tuple[Tensor, Tensor] | None = None
    error_by_rank: list[float] | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return what has to be saved, float32: nothing, ``scale``, ``diagonal``, ``left`` and ``right``, or ``M``."""
        if self.M is None:
            return {}
        if self.factors is not None:
            return {"left": self.factors[0].float(), "right": self.factors[1].float()}
        if self.structure == "full":
            return {"M": self.M.float()}
        diagonal = self.M.diagonal().float()
        # Copied, for a view of M would be saved with all of it.
        return {"scale": diagonal[:1].clone()} if self.structure == "scalar" else {"diagonal": diagonal.clone()}

    def config(self) -> dict[str, Any]:
        """Return what has to be saved beside :meth:`tensors`, as plain JSON data."""
        width = None if self.M is None else len(self.M)
        return {"width": width} | {name: getattr(self, name) for name in _PLAIN}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], config: dict[str, Any]) -> Fitted:
        """Return the repair that was saved as :meth:`tensors` and :meth:`config`.

        Its M is float64 from float32 numbers, and ``operator()`` of both agrees to the last bit.
        """
        M = factors = None
        if "left" in tensors:
            factors = (tensors["left"].double(), tensors["right"].double())
            M = factors[0] @ factors[1]
        elif "scale" in tensors:
            M = tensors["scale"].double().expand(config["width"]).diag()
        elif "diagonal" in tensors:
            M = tensors["diagonal"].double().diag()
        elif "M" in tensors:
            M = tensors["M"].double()
        return cls(M=M, factors=factors, **{name: config[name] for name in _PLAIN})

    def operator(self) -> Tensor | None:
        """Return M as the model applies it, ``(C, C)`` float32: from the numbers that are saved."""
        if self.M is None or self.factors is None:
            return None if self.M is None else self.M.float()
        left, right = (factor.float().double() for factor in self.factors)
        return (left @ right).float()


_PLAIN = ("feature", "added_parameters", "rank", "dof", "ridge", "condition", "note", "structure", "error_by_rank")


def method(name: str) -> ModuleType:
    """Return the module of one method; raises :class:`~ghosted.errors.InputError` for an unknown name."""
    return pick(PACKAGE, name, "method")


def methods() -> dict[str, ModuleType]:
    """Return all methods by name, in the order they are shown."""
    return members(PACKAGE)


def distills(name: str) -> bool:
    """Return whether a method's operator may be trained after its fit (:mod:`ghosted.distillation`)."""
    return getattr(method(name), "DISTILLS", False)


def needs(names: tuple[str, ...]) -> frozenset[str]:
    """Return the statistics that these methods are fitted from."""
    return frozenset().union(*(method(name).NEEDS for name in names))


def numbers(name: str, width: int, hidden: int = 0, rank: int | None = None) -> tuple[int, int]:
    """Return how many numbers one gap's repair will have: those that are saved, and those of M as a model applies it.

    Args:
        name: of a method.
        width: C.
        hidden: F, the hidden channels of the branch before the gap, 0 where no single map ends it.
        rank: of ``low-rank``, ``None`` for its default.
    """
    chosen = method(name)
    if not chosen.NEEDS:
        return 0, 0
    dense = width * (width + hidden * any(kind.startswith("joint") for kind in chosen.NEEDS))
    stored = getattr(chosen, "STORED", "M")
    if stored == "left and right":
        return 2 * width * (rank or chosen.default_rank(width)), dense
    return {"M": dense, "diagonal": width, "scale": 1}[stored], dense


def check_rank(rank: int, width: int) -> None:
    """Raise :class:`~ghosted.errors.InputError` where an operator of this width cannot have that rank."""
    if not 1 <= rank <= width:
        raise InputError(f"The rank {rank:,} does not fit a model of width {width:,}; choose one from 1 to {width:,}.")
