"""What is left at the boundary and behind it? One method's numbers, and where the error lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Residual:
    """Residual boundary error, relative to plain pruning (which is exactly 1).

    Attributes:
        calibration: on the calibration tokens, Frobenius norm; ``None`` where Δ = 0.
        held_out: the same on held-out tokens.
        median: median over held-out tokens of the per-token ratio.
        quantiles: the 10 %, 25 %, 50 %, 75 % and 90 % quantiles of that ratio.
    """

    calibration: float | None
    held_out: float | None
    median: float | None
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class MethodProfile:
    """Where one method's error lies, relative to plain pruning's; NaN where Δ is 0 there.

    Attributes:
        tokens: ``(T,)`` ‖x̂ − x_post‖/‖Δ‖ of each of the first held-out tokens.
        channels: ``(C,)`` √Σ(x̂ − x_post)² / √ΣΔ² of each channel, over all held-out tokens.
        positions: ``(P,)`` median of the per-token ratio over all held-out tokens at these positions.
    """

    tokens: np.ndarray
    channels: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True)
class SizePoint:
    """What an operator leaves on held-out tokens when it is fitted on only so many calibration tokens.

    Attributes:
        tokens: calibration tokens of the fit: the first so many.
        held_out: relative error, Frobenius norm.
        median: median over held-out tokens of the per-token ratio.
    """

    tokens: int
    held_out: float
    median: float


@dataclass(frozen=True, eq=False)
class BoundaryProfile:
    """Where the error at one gap's boundary lies, on held-out text (:mod:`ghosted.scores.profile`).

    With several gaps it is the first one's, whose states before it are the unpruned model's for every method.

    Attributes:
        gap: its name.
        window: positions per held-out window.
        windows: how many held-out windows were read.
        pieces: the text of each of the first T held-out tokens; joined they give the text.
        norms: ``(T,)`` ‖x_post‖ of the same tokens.
        change: ``(C,)`` root mean square of Δ in each channel.
        starts: ``(P,)`` first position of each bin of positions; the first position is a bin of its own.
        methods: by name.
        sizes: by method, error against calibration size, smallest first.
        no_sizes: why there are none, one sentence.
    """

    gap: str
    window: int
    windows: int
    pieces: tuple[str, ...]
    norms: np.ndarray
    change: np.ndarray
    starts: np.ndarray
    methods: dict[str, MethodProfile]
    sizes: dict[str, tuple[SizePoint, ...]] = field(default_factory=dict)
    no_sizes: str = ""


@dataclass(frozen=True)
class Downstream:
    """One surviving state after the gap against the original's: relative error and mean cosine per token."""

    state: int
    error: float
    cosine: float


@dataclass(frozen=True)
class Distilled:
    """How a distillation went (:mod:`ghosted.distillation`).

    Attributes:
        steps: how many were run.
        best_step: after which of them the kept operators were reached; 0 is the fit itself.
        kl_before: mean KL(original ‖ fitted) in nats per held-out token; ``None`` where it is no finite number.
        kl_after: the same of the kept operators, never above it.
        seconds: what it took beside reading the original's predictions once for all methods.
    """

    steps: int
    best_step: int
    kl_before: float | None
    kl_after: float | None
    seconds: float


@dataclass
class MethodResult:
    """One method's column of numbers.

    Attributes:
        method: its name.
        residual: error at the last boundary, ``None`` until measured or where not defined.
        gaps: residual of each gap by its name, where there are several.
        perplexity: by text name.
        damage: ln(perplexity / dense perplexity), by text name.
        downstream: the surviving states after the first gap, up to the final norm.
        added_parameters: numbers the repair adds to the model.
        rank: eigenvalues of the Gram matrix that were kept (least-squares methods).
        dof: effective degrees of freedom Σ e/(e + λ).
        ridge: the λ that was chosen, relative to ``mean(diag G)``, where it was.
        condition: condition number of G over the kept eigenvalues.
        note: one sentence about how it was built, such as a fallback that was taken.
        error_by_rank: relative error on calibration tokens left by the best operator of rank 0 … C (``low-rank``).
        distill: how its distillation went, where it was distilled.
        not_defined: why the method has no meaning here; then all numbers are ``None``.
    """

    method: str
    residual: Residual | None = None
    gaps: dict[str, Residual] = field(default_factory=dict)
    perplexity: dict[str, float] = field(default_factory=dict)
    damage: dict[str, float] = field(default_factory=dict)
    downstream: list[Downstream] = field(default_factory=list)
    added_parameters: int = 0
    rank: int | None = None
    dof: float | None = None
    ridge: float | None = None
    condition: float | None = None
    note: str | None = None
    error_by_rank: list[float] | None = None
    distill: Distilled | None = None
    not_defined: str | None = None

    def describe(self, fits: Sequence[Any]) -> None:
        """Take over what the fits of all gaps (:class:`ghosted.operators.Fitted`) say of themselves."""
        self.added_parameters = sum(fit.added_parameters for fit in fits)
        if fits:
            for name in ("rank", "dof", "ridge", "condition", "note", "error_by_rank"):
                setattr(self, name, getattr(fits[0], name))
