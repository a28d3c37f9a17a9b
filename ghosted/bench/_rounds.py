"""How are pieces of work compared on a machine that others use, too? Turn about, by the median of the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ghosted import machine

if TYPE_CHECKING:
    from ghosted.models import LoadedModel
    from ghosted.texts import Windows


def interleaved(
    works: Mapping[str, Callable[[], Any]], rounds: int, where: str = "cpu"
) -> dict[str, list[float]]:
    """Return the seconds of each work in each round, after one round that does not count.

    Args:
        works: by name; each runs once per round, in this order.
        rounds: that count.
        where: the device that works.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            taken = machine.seconds_of(work, where)
            if number:
                seconds[name].append(taken)
    return seconds


def ratio(of: Sequence[float], to: Sequence[float]) -> dict[str, Any]:
    """Return ``ratio``, the median over rounds of ``of``/``to``, and its ``spread``: lowest and highest."""
    ratios = [a / b for a, b in zip(of, to, strict=True)]
    return {"ratio": statistics.median(ratios), "spread": [min(ratios), max(ratios)]}


def medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each work's seconds as ``NAME_s``."""
    return {f"{name}_s": statistics.median(values) for name, values in seconds.items()}


def bare_pass(loaded: LoadedModel, windows: Windows, batch: int) -> Callable[[], None]:
    """Return the bare forward pass over these windows: embeddings and blocks, no logits, nothing recorded."""
    from ghosted.pruned import pruned_view
    from ghosted.removed import RemovedBlocks
    from ghosted.states import hidden_forward

    view = pruned_view(loaded.model, RemovedBlocks())

    def bare() -> None:
        for ids in windows.batches(batch):
            hidden_forward(view, ids.to(loaded.device))

    return bare


def middle_gap(blocks: int, length: int = 5) -> range:
    """Return ``length`` blocks from the middle of a model on, fewer where it ends before."""
    return range(blocks // 2, min(blocks // 2 + length, blocks))
