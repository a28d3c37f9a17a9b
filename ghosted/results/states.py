"""How alike are the states, and which ranges of blocks could be repaired? Numbers of the unpruned model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


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
