"""What did a criterion choose, by what margin, and what did it cost?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
