"""What a run finds, as plain data: numbers and numpy arrays, no model and no page.

:class:`Run` fills up while :func:`ghosted.run.run` works; a part that is not there yet is ``None``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.removed import RemovedBlocks
from ghosted.results.boundary import (
    BoundaryProfile,
    Distilled,
    Downstream,
    MethodProfile,
    MethodResult,
    Residual,
    SizePoint,
)
from ghosted.results.choice import Candidate, Choice, Cost
from ghosted.results.columns import Column, Top
from ghosted.results.operator import Decomposition, operator_key
from ghosted.results.states import RecoverabilityMap, Similarity

if TYPE_CHECKING:
    from ghosted.texts import Windows

__all__ = [
    "PARTS",
    "BoundaryProfile",
    "Candidate",
    "Choice",
    "Column",
    "Cost",
    "Decomposition",
    "Distilled",
    "Downstream",
    "MethodProfile",
    "MethodResult",
    "Protocol",
    "RecoverabilityMap",
    "Residual",
    "Run",
    "Similarity",
    "SizePoint",
    "Top",
    "Update",
    "operator_key",
]

PARTS = ("similarity", "boundary", "decomposition", "scores", "columns", "map")
"""The parts of a run in the order they appear."""


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

    @classmethod
    def of(cls, windows: Windows, scored: int, dtype: str, same_source: bool, stride: int | None = None) -> Protocol:
        """Return the protocol of ``scored`` tokens of these windows, end to end unless a stride is given."""
        return cls(
            text=f"{windows.text}, tokens {windows.start:,} to {windows.stop:,}", sha256=windows.digest,
            window=windows.window, stride=stride or windows.window, windows=len(windows), tokens_scored=scored,
            bos=windows.bos, dtype=dtype, same_source=same_source,
        )


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

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time that the block takes to ``seconds``."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - start

    def method(self, name: str) -> MethodResult:
        """Return the result of one method by name.

        Raises:
            InputError: the run has none of that name.
        """
        if (found := next((each for each in self.methods if each.method == name), None)) is None:
            there = ", ".join(each.method for each in self.methods) or "none yet"
            raise InputError(f"This run has no method {str(name)[:40]!r}; it has {there}.")
        return found


@dataclass(frozen=True)
class Update:
    """An event of :func:`ghosted.run.run`: this part of the run has just become available or changed."""

    part: str
    run: Run
