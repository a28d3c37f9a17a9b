"""What does calibration cost beside the bare forward pass of the same tokens, dtype and batch?

``ratio``: the similarity of all states and every default method's statistics of one gap, as a run pays for them.
``ratio_all_ranges``: the same with the states of all boundaries kept, from which the page answers for any other gap.
Against the forward pass alone; interleaved, median over rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ghosted import operators
from ghosted.bench._rounds import bare_pass, interleaved, medians, middle_gap, ratio
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.progress import drain

ROUNDS = 3


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Time the three, interleaved.

    Args:
        experiment: model, text, tokens and window.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread`` (lowest and highest), ``ratio_all_ranges`` and its spread, seconds of all three.
    """
    from ghosted import models, texts
    from ghosted.calibration import calibrate, windows_per_batch
    from ghosted.calibration.store import DEFAULT_BYTES

    loaded = drain(models.load(experiment.model), on_event)
    slices = drain(texts.slices(experiment, loaded, only_calibration=True), on_event)
    windows, nothing = slices.calibration, slices.held_out
    batch = windows_per_batch(None, windows.window)
    gaps, needs = (middle_gap(loaded.blocks),), operators.needs(DEFAULT_METHODS)

    def calibrated(store_bytes: int) -> Callable[[], Any]:
        return lambda: drain(calibrate(loaded, windows, nothing, gaps, needs, batch=batch, store_bytes=store_bytes))

    works = {
        "forward": bare_pass(loaded, windows, batch),
        "calibrate": calibrated(0),
        "calibrate_all_ranges": calibrated(DEFAULT_BYTES),
    }
    seconds = interleaved(works, ROUNDS, loaded.device)
    everything = ratio(seconds["calibrate_all_ranges"], seconds["forward"])
    return {
        **ratio(seconds["calibrate"], seconds["forward"]),
        "ratio_all_ranges": everything["ratio"],
        "spread_all_ranges": everything["spread"],
        **medians(seconds),
        "tokens": windows.tokens,
        "batch": batch,
        "dtype": loaded.dtype,
    }
