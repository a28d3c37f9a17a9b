"""What did a model write? One side-by-side column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
