"""What does calibration cost beside the bare forward pass of the same tokens, dtype and batch?

``ratio``: similarity, moments of one gap and the bounded store together, as a run pays for them, against the forward
pass alone; interleaved, median over rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from ghosted import operators
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.progress import drain

ROUNDS = 3


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Time both, interleaved.

    Args:
        experiment: model, text, tokens and window.
        on_event: receives progress.

    Returns:
        ``ratio`` (with every default method's statistics), ``spread`` (lowest and highest), seconds of both.
    """
    from ghosted import models, texts
    from ghosted.calibration import calibrate, windows_per_batch
    from ghosted.pruned import pruned_view
    from ghosted.removed import RemovedBlocks
    from ghosted.states import hidden_forward

    loaded = drain(models.load(experiment.model), on_event)
    slices = drain(texts.slices(experiment, loaded, only_calibration=True), on_event)
    windows, nothing = slices.calibration, slices.held_out
    view = pruned_view(loaded.model, RemovedBlocks())
    batch = windows_per_batch(None, windows.window)
    middle = loaded.blocks // 2
    gap = range(middle, min(middle + 5, loaded.blocks))
    needs = operators.needs(DEFAULT_METHODS)

    def bare() -> None:
        for ids in windows.batches(batch):
            hidden_forward(view, ids.to(loaded.device))

    def full() -> None:
        drain(calibrate(loaded, windows, nothing, (gap,), needs, batch=batch))

    def timed(work: Callable[[], None]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    timed(bare)
    pairs = [(timed(bare), timed(full)) for _ in range(ROUNDS)]
    ratios = [with_statistics / without for without, with_statistics in pairs]
    return {
        "ratio": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
        "forward_s": statistics.median(p[0] for p in pairs),
        "calibrate_s": statistics.median(p[1] for p in pairs),
        "tokens": windows.tokens,
        "batch": batch,
        "dtype": loaded.dtype,
    }
