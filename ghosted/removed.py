"""Which blocks go? The grammar of removed blocks, and the gaps they leave.

``N | N-M``, 0-based and inclusive, comma-separated: ``3,12-17``. Spaces and the en dash are accepted; the canonical
form is sorted and merged. The empty string removes nothing. In code a gap is a half-open ``range(12, 18)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ghosted.errors import InputError

_PART = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class RemovedBlocks:
    """A set of removed blocks as its gaps: sorted, merged, half-open runs.

    Attributes:
        gaps: contiguous runs of removed blocks; adjacent runs are one gap.
    """

    gaps: tuple[range, ...] = ()

    @classmethod
    def of(cls, blocks: Iterable[int]) -> RemovedBlocks:
        """Build from block numbers in any order."""
        gaps: list[range] = []
        for block in sorted(set(blocks)):
            if gaps and gaps[-1].stop == block:
                gaps[-1] = range(gaps[-1].start, block + 1)
            else:
                gaps.append(range(block, block + 1))
        return cls(tuple(gaps))

    @classmethod
    def parse(cls, text: str, blocks: int | None = None) -> RemovedBlocks:
        """Read the grammar, and check it against a model of ``blocks`` blocks where that number is known.

        Raises:
            InputError: the text is not in the grammar, a range runs backwards or past the model's end, or no
                block would survive.
        """
        chosen: set[int] = set()
        compact = re.sub(r"[‐-―−]", "-", text)
        for part in filter(None, (p.strip() for p in compact.split(","))):
            match = _PART.fullmatch(re.sub(r"\s*-\s*", "-", part))
            if match is None or len(part) > 40:
                raise InputError(f"Cannot read {part[:40]!r} as removed blocks; write block numbers such as 3,12-17.")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise InputError(f"The range {first}-{last} runs backwards; write {last}-{first}.")
            if blocks is not None and last >= blocks:
                raise InputError(f"Block {last} does not exist: this model has blocks 0 to {blocks - 1}.")
            if last - first > 100_000:
                raise InputError(f"The range {first}-{last} is longer than any model; name existing blocks.")
            chosen.update(range(first, last + 1))
        removed = cls.of(chosen)
        if blocks is not None:
            removed.check(blocks)
        return removed

    def check(self, blocks: int) -> None:
        """Raise :class:`InputError` unless this fits a model of ``blocks`` blocks and leaves at least one."""
        if self.gaps and self.gaps[-1].stop > blocks:
            last = self.gaps[-1].stop - 1
            raise InputError(f"Block {last} does not exist: this model has blocks 0 to {blocks - 1}.")
        if self.count >= blocks:
            raise InputError(f"All {blocks} blocks would be removed; keep at least one.")

    @property
    def blocks(self) -> tuple[int, ...]:
        """The removed block numbers in order."""
        return tuple(block for gap in self.gaps for block in gap)

    @property
    def count(self) -> int:
        """How many blocks are removed."""
        return sum(len(gap) for gap in self.gaps)

    @property
    def resumes_at(self) -> int:
        """The block before the first gap: the state that enters it is still the original's; 0 with nothing removed."""
        return max(self.gaps[0].start - 1, 0) if self.gaps else 0

    def survivors(self, blocks: int) -> tuple[int, ...]:
        """The blocks that stay, of a model with ``blocks`` blocks."""
        gone = set(self.blocks)
        return tuple(block for block in range(blocks) if block not in gone)

    def __str__(self) -> str:
        """Return the canonical form, as used in JSON, URLs and cache keys."""
        return ",".join(gap_name(gap) for gap in self.gaps)

    def describe(self, blocks: int) -> str:
        """Return the sentence part shown to people: ``removes blocks 12–16 (5 of 30)``."""
        if not self.gaps:
            return f"removes nothing (0 of {blocks})"
        word = "block" if self.count == 1 else "blocks"
        return f"removes {word} {str(self).replace('-', '–').replace(',', ', ')} ({self.count} of {blocks})"


def gap_name(gap: range) -> str:
    """Return a gap in the grammar: ``12-16``, or ``3`` for a single block."""
    return str(gap.start) if len(gap) == 1 else f"{gap.start}-{gap.stop - 1}"
