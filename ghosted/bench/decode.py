"""What does the operator cost while the model writes, and what do the removed blocks save?

One token at a time with a key-value cache, batch 1, every variant from the same prompt. ``ratio``: tokens per second of
the pruned and repaired model against the plainly pruned one. ``ratio_dense``: against the original, by the number of
blocks removed; ``1/(share of blocks left)`` could not be reached, for head and embeddings stay. The variants take turns
every few tokens, and ratios are medians over the turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from ghosted import machine
from ghosted.bench._rounds import middle_gap, ratio
from ghosted.experiment import Experiment
from ghosted.progress import Stage, drain

REMOVED = (5, 10)
TURNS = 16
TURN = 8  # tokens that one variant writes before the next has its turn
PROMPT = 32  # tokens


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Let original, pruned and repaired models write in turn.

    Args:
        experiment: names the model.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread``, ``ratio_dense`` by the number of removed blocks, tokens per second of every variant.
    """
    import torch

    from ghosted import models
    from ghosted.pruned import Repair, pruned_view
    from ghosted.removed import RemovedBlocks

    loaded = drain(models.load(experiment.model), on_event)
    M = torch.randn(loaded.width, loaded.width, generator=torch.Generator().manual_seed(0)) * 1e-3
    writers = {"original": _Writer(loaded.model, loaded.device)}
    lengths = [n for n in REMOVED if n < loaded.blocks]
    for n in lengths:
        gap = middle_gap(loaded.blocks, n)
        removed = RemovedBlocks((gap,))
        writers[f"plain {n}"] = _Writer(pruned_view(loaded.model, removed), loaded.device)
        repaired = pruned_view(loaded.model, removed, [Repair(gap, "state", M)])
        writers[f"repaired {n}"] = _Writer(repaired, loaded.device)
    seconds: dict[str, list[float]] = {name: [] for name in writers}
    stage, names = Stage("writing", TURNS), list(writers)
    for turn in range(TURNS):
        for name in names if turn % 2 else reversed(names):
            seconds[name].append(writers[name].turn())
        on_event(stage.step())
    seconds = {name: values[1:] for name, values in seconds.items()}
    plain = [s for n in lengths for s in seconds[f"plain {n}"]]
    repaired_s = [s for n in lengths for s in seconds[f"repaired {n}"]]
    return {
        **ratio(plain, repaired_s),
        "ratio_dense": {str(n): ratio(seconds["original"], seconds[f"repaired {n}"])["ratio"] for n in lengths},
        "tokens_per_second": {name: TURN / statistics.median(values) for name, values in seconds.items()},
        "tokens": (TURNS - 1) * TURN,
        "dtype": loaded.dtype,
    }


class _Writer:
    """One variant with its own cache and text."""

    def __init__(self, model: Any, device: str) -> None:
        import torch
        from transformers import DynamicCache

        self._model, self._device = model, device
        self._cache = DynamicCache(config=model.config)
        generator = torch.Generator().manual_seed(0)
        self._next = torch.randint(0, model.config.vocab_size, (1, PROMPT), generator=generator).to(device)

    def turn(self) -> float:
        """Write :data:`TURN` tokens and return the seconds."""
        return machine.seconds_of(self._write, self._device)

    def _write(self) -> None:
        import torch

        with torch.inference_mode():
            for _ in range(TURN):
                logits = self._model(input_ids=self._next, cache=self._cache, use_cache=True).logits
                self._next = logits[:, -1:].argmax(-1)
