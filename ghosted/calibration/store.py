"""Which states are kept, so that another gap can be solved without running the model again? As many as fit a bound.

Whole windows of all L + 1 states, in the model's own dtype (nothing is rounded), in the order they were seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ghosted.cache import bytes_from

DEFAULT_BYTES = 2**30
"""Bytes of states that a run keeps, unless ``$GHOSTED_STATES_LIMIT`` says otherwise."""


def limit() -> int:
    """Return how many bytes of states a run keeps; raises ``ResourceError`` where the variable is no number."""
    return bytes_from("GHOSTED_STATES_LIMIT", DEFAULT_BYTES)


class StateStore:
    """A bounded list of windows of states.

    Args:
        limit_bytes: no window is kept that would pass this bound.
    """

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self.limit_bytes, self.bytes, self.tokens = limit_bytes, 0, 0
        self._windows: list[Tensor] = []  # each (L + 1, t, C)
        self.overflowed = False

    def add(self, states: list[Tensor]) -> None:
        """Keep a batch: ``states`` is the list of L + 1 tensors ``(b, t, C)``; windows past the bound are dropped."""
        rows, length, width = states[0].shape
        size = len(states) * length * width * states[0].element_size()
        for row in range(rows):
            if self.overflowed or self.bytes + size > self.limit_bytes:
                self.overflowed = True
                return
            kept = torch.empty(len(states), length, width, dtype=states[0].dtype, device="cpu")
            for i, state in enumerate(states):
                kept[i].copy_(state[row])
            self._windows.append(kept)
            self.bytes, self.tokens = self.bytes + size, self.tokens + length

    def first(self, windows: int) -> StateStore:
        """Return a store of the first ``windows`` windows, on the same memory; nothing can be added to it."""
        part = StateStore(0)
        part._windows = self._windows[:windows]
        return part

    def __len__(self) -> int:
        """Return the number of windows kept."""
        return len(self._windows)

    def windows(self, *states: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield, for each window, the asked states as tensors ``(1, t, C)``."""
        for window in self._windows:
            yield tuple(window[i : i + 1] for i in states)


def bytes_per_token(blocks: int, width: int, element_size: int) -> int:
    """Return what one token costs in a store: (L + 1) · C numbers."""
    return (blocks + 1) * width * element_size
