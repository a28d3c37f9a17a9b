"""What a run finds, as plain data: numbers and numpy arrays, no model and no page.

:class:`Run` fills up while :func:`ghosted.run.run` works; a part that is not there yet is ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghosted.experiment import Experiment
from ghosted.removed import RemovedBlocks

PARTS = ("similarity", "boundary", "decomposition", "scores", "columns", "map")
"""The parts of a run in the order they appear."""


@dataclass(frozen=True, eq=False)
class Similarity:
    """How alike the states are; L blocks have L + 1 states.

    Attributes:
        cosine: ``(L+1, L+1)`` mean over tokens of the per-token cosine of each pair of states.
        flattened: ``(L+1, L+1)`` cosine of the states flattened over tokens (one sink token can own it).
        histogram: ``(L+1, L+1, bins)`` counts of the per-token cosine, equal bins over [-1, 1].
        by_text: ``(groups, L+1, L+1)`` the mean cosine of groups of windows: its spread over texts.
        norms: ``(L+1, window)`` mean norm of each state by position in the window.
        tokens: how many tokens were averaged.
        angle: ``(L+1, L+1)`` mean over windows of arccos(cosine)/π of the last token's states.
        angle_by_text: ``(groups, L+1, L+1)`` the same of groups of windows.
    """

    cosine: np.ndarray
    flattened: np.ndarray
    histogram: np.ndarray
    by_text: np.ndarray
    norms: np.ndarray
    tokens: int
    angle: np.ndarray | None = None
    angle_by_text: np.ndarray | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks L."""
        return len(self.cosine) - 1

    @property
    def block_influence(self) -> np.ndarray:
        """``(L,)``: 1 - mean cosine of the state entering and leaving each block."""
        return 1.0 - np.diagonal(self.cosine, offset=1)

    def sinks(self, times: float = 10.0) -> np.ndarray:
        """Return ``(L+1, window)`` bool: where a state's norm is at least ``times`` its median over positions."""
        median = np.median(self.norms, axis=1, keepdims=True)
        return (self.norms >= times * median) & (median > 0)

    def best_start(self, count: int, flattened: bool = False) -> int:
        """Return where a run of ``count`` blocks starts whose two states are most alike.

        Args:
            count: of blocks, 1 to L.
            flattened: by the cosine of the states flattened over tokens, not by the mean per token.
        """
        return int(np.argmax(np.diagonal(self.flattened if flattened else self.cosine, offset=count)))


@dataclass(frozen=True)
class Candidate:
    """One choice a criterion looked at: its removed blocks and its score."""

    remove: str
    score: float


@dataclass(frozen=True)
class Cost:
    """What a choice costs beside the calibrating pass.

    Attributes:
        tokens: tokens that go through the model, or a part of it, once more.
        memory_bytes: memory needed beside the model and the calibration.
    """

    tokens: int
    memory_bytes: int

    def __str__(self) -> str:
        """Return the part of a sentence: ``450,560 more tokens through the model, about 0.3 GB more memory``."""
        memory = f", about {self.memory_bytes / 1e9:.2g} GB more memory" if self.memory_bytes else ""
        return f"{self.tokens:,} more tokens through the model{memory}"


@dataclass(frozen=True)
class Choice:
    """What a criterion chose, and by what margin.

    Attributes:
        criterion: its name.
        remove: the chosen blocks, canonical grammar.
        score: the chosen candidate's score.
        higher_is_better: direction of the score.
        runner_up: the next best candidate, ``None`` if there is only one.
        near_tie: whether the margin to the runner-up is inside the spread over texts.
        candidates: every candidate's score.
        cost: what it cost beside the calibrating pass.
    """

    criterion: str
    remove: str
    score: float
    higher_is_better: bool
    runner_up: Candidate | None
    near_tie: bool
    candidates: tuple[Candidate, ...]
    cost: Cost = Cost(0, 0)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``choose --json`` prints."""
        runner = self.runner_up
        return {
            "remove": self.remove,
            "score": self.score,
            "higher_is_better": self.higher_is_better,
            "runner_up": runner and {"remove": runner.remove, "score": runner.score, "near_tie": self.near_tie},
            "candidates": [{"remove": c.remove, "score": c.score} for c in self.candidates],
            "cost": vars(self.cost),
        }


@dataclass(frozen=True, eq=False)
class RecoverabilityMap:
    """What is lost and what is left of it after the repair, for every range of blocks; R = L(L+1)/2 ranges.

    Attributes:
        starts: ``(R,)`` first removed block of each range.
        ends: ``(R,)`` last removed block, inclusive.
        cosine: ``(R,)`` mean over calibration tokens of cos(x_pre, x_post).
        before: ``(R,)`` median over held-out tokens of ‖Δ‖/‖x_post‖: what plain pruning loses.
        after: ``(R,)`` median over held-out tokens of ‖x̂ - x_post‖/‖Δ‖: the residual boundary error of ``ghosted``,
            where plain pruning is 1; NaN where Δ = 0: nothing to repair.
        left: ``(R,)`` median over held-out tokens of ‖x̂ - x_post‖/‖x_post‖.
        tokens: how many were fitted.
        held_out_tokens: how many the medians are over.
        seconds: what it took beside the calibrating pass.
    """

    starts: np.ndarray
    ends: np.ndarray
    cosine: np.ndarray
    before: np.ndarray
    after: np.ndarray
    left: np.ndarray
    tokens: int
    held_out_tokens: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``map --json`` prints; ``null`` where there is nothing to repair."""

        def plain(values: np.ndarray) -> list[float | None]:
            return [float(v) if np.isfinite(v) else None for v in values]

        return {
            "starts": self.starts.tolist(), "ends": self.ends.tolist(), "cosine": plain(self.cosine),
            "error_before": plain(self.before), "error_after": plain(self.after), "seconds": self.seconds,
        }


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


@dataclass(frozen=True)
class Protocol:
    """What a perplexity means: two of them may stand side by side only if these agree.

    Attributes:
        text: label of the scored text and where its slice starts and stops, in tokens.
        sha256: of the text's content.
        window: tokens per window.
        stride: tokens from one window to the next.
        windows: windows scored.
        tokens_scored: tokens whose loss was averaged.
        bos: whether each window starts with a beginning-of-sequence token (never scored).
        dtype: the model's dtype.
        same_source: whether the scored text is also the calibration text (other tokens or another split of it).
    """

    text: str
    sha256: str
    window: int
    stride: int
    windows: int
    tokens_scored: int
    bos: bool
    dtype: str
    same_source: bool


Top = list[tuple[str, float]]
"""The most likely next tokens with their probabilities, the likeliest first."""


@dataclass
class Column:
    """One side-by-side column of generated text.

    Attributes:
        method: ``original`` or a method's name.
        text: the continuation only.
        tokens: ids of the new tokens.
        pieces: the text of each new token, for tinting.
        diverges_at: first new token that differs from the original's, ``None`` if none does.
        kl: KL(p_original ‖ p_variant) in nats at each new token, both on this column's own prefix.
        finished: whether the column has ended.
        error: why the column stopped early, one sentence.
        surprisal: -ln p of each new token in nats, under this column's own model at temperature 1.
        top: this model's five most likely tokens at each new token; a piece is ``""`` where it is a part of a
            character, probabilities have three digits.
        top_original: the original's, on this column's own prefix; as long as ``kl``, empty for the original itself.
        agrees: whether both models' most likely token is the same, at each position of ``kl``.
        seconds: spent in the passes that wrote one token each: this model's own, without the prompt's pass and
            without comparing.
        parameters: numbers in this model, each shared one counted once, with those that its repair adds.
    """

    method: str
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    diverges_at: int | None = None
    kl: list[float] = field(default_factory=list)
    finished: bool = False
    error: str | None = None
    surprisal: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    top_original: list[Top] = field(default_factory=list)
    agrees: list[bool] = field(default_factory=list)
    seconds: float = 0.0
    parameters: int | None = None

    @property
    def agreement(self) -> float | None:
        """Share of positions where the model's most likely token is also the original's; ``None`` before the first."""
        return sum(self.agrees) / len(self.agrees) if self.agrees else None

    @property
    def tokens_per_second(self) -> float | None:
        """How fast it wrote after its first token, which waits for the prompt; ``None`` before the second."""
        return (len(self.tokens) - 1) / self.seconds if self.seconds > 0 and len(self.tokens) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``generate --json`` prints for this column."""
        plain = {"method": self.method, "text": self.text, "tokens": self.tokens,
                 "diverges_at": self.diverges_at, "kl": self.kl, "surprisal": self.surprisal, "top": self.top,
                 "top_original": self.top_original, "agreement": self.agreement, "seconds": self.seconds,
                 "tokens_per_second": self.tokens_per_second, "parameters": self.parameters}  # fmt: skip
        return plain | ({"error": self.error} if self.error else {})


@dataclass(frozen=True, eq=False)
class Decomposition:
    """What W = I + M is made of: W = S + A with S symmetric and A antisymmetric.

    While a range is being changed the four spectra are empty arrays: they follow.

    Attributes:
        method: whose operator it is.
        gap: its gap, by name.
        W: ``(C, C)`` the operator, acting on the right; ``x_new = x W``.
        share_antisymmetric: ‖A‖²/‖W‖² of W (the symmetric share is 1 minus it).
        share_antisymmetric_M: the same of M.
        eigenvalues: ``(C,)`` complex, of W.
        eigenvalues_symmetric: ``(C,)`` real, of S, descending.
        rotations: imaginary parts θ > 0 of A's eigenvalue pairs, descending.
        singular_values: ``(C,)`` of M, descending.
        contained: share of ‖M‖² inside each smaller family: ``scalar``, ``diagonal``, ``rotated`` (Q diag Qᵀ, Q as
            LinearPatch's) and ``symmetric``.
        rotation: what Q is at this width, ``Hadamard`` or ``cosine`` (transform).
        precision: what the spectra were computed in.
        error_by_rank: ``(C+1,)`` relative error on calibration tokens left by the best operator of rank 0 … C at this
            gap, where it is known.
    """

    method: str
    gap: str
    W: np.ndarray
    share_antisymmetric: float
    share_antisymmetric_M: float
    eigenvalues: np.ndarray
    eigenvalues_symmetric: np.ndarray
    rotations: np.ndarray
    singular_values: np.ndarray
    contained: dict[str, float] = field(default_factory=dict)
    rotation: str = "Hadamard"
    precision: str = "float64"
    error_by_rank: np.ndarray | None = None

    @property
    def S(self) -> np.ndarray:
        """``(C, C)`` symmetric part of W."""
        return (self.W + self.W.T) / 2

    @property
    def A(self) -> np.ndarray:
        """``(C, C)`` antisymmetric part of W."""
        return (self.W - self.W.T) / 2


def operator_key(method: str, gap: str, first: bool) -> str:
    """Return what an operator is called in :attr:`Run.decompositions`: ``ghosted``, and ``ghosted 25-26`` later on.

    Args:
        method: whose operator it is.
        gap: its gap, by name.
        first: whether that is the run's first gap; its operators are called by the method alone.
    """
    return method if first else f"{method} {gap}"


@dataclass
class Run:
    """One experiment and what it found so far.

    Attributes:
        experiment: the settings.
        model_label: the model as shown to people.
        blocks: number of blocks L of the original.
        width: C.
        dtype: the dtype the model ran in.
        removed: the removed blocks (chosen, if a criterion chose them).
        choice: the criterion's choice, if one was asked for.
        similarity: of all pairs of states.
        ranges: the recoverability map of all ranges of blocks, once it is drawn.
        dense_perplexity: of the original, by text name.
        methods: one entry per method, in the order asked for.
        profile: where the error at the (first) boundary lies.
        decompositions: of the operators that are linear in x and not plain pruning, by :func:`operator_key`.
        protocols: of each evaluation text, by text name.
        self_check: whether removing nothing changed no logit by a single bit.
        columns: generated texts, ``original`` first.
        warnings: sentences a reader must see beside the numbers.
        seconds: time spent by stage.
    """

    experiment: Experiment
    model_label: str = ""
    blocks: int = 0
    width: int = 0
    dtype: str = ""
    removed: RemovedBlocks = field(default_factory=RemovedBlocks)
    choice: Choice | None = None
    similarity: Similarity | None = None
    ranges: RecoverabilityMap | None = None
    dense_perplexity: dict[str, float] = field(default_factory=dict)
    methods: list[MethodResult] = field(default_factory=list)
    profile: BoundaryProfile | None = None
    decompositions: dict[str, Decomposition] = field(default_factory=dict)
    protocols: dict[str, Protocol] = field(default_factory=dict)
    self_check: bool | None = None
    columns: list[Column] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def method(self, name: str) -> MethodResult:
        """Return the result of one method by name."""
        return next(m for m in self.methods if m.method == name)


@dataclass(frozen=True)
class Update:
    """An event of :func:`ghosted.run.run`: this part of the run has just become available or changed."""

    part: str
    run: Run
