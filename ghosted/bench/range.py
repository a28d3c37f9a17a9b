"""What does another range cost while its states are at hand, beside a full recalibration of the same tokens?

``ratio``: residuals (calibration, held-out, median) and shares of the default closed-form methods, for ranges that were
not seen before, one block apart as by a key press; against :func:`~ghosted.calibration.calibrate` with the same
statistics. What belongs to single states is at hand (``warm_s``, once per calibration). Interleaved, median over
rounds. ``cold_s`` is a range before that; ``rest_s`` adds the methods of the branch and all spectra to a range;
``seen_s`` is a range that was prefetched.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from ghosted import operators
from ghosted.bench._rounds import medians, ratio
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.progress import drain

ROUNDS = 3
STEPS = 3  # ranges per round


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Time both, interleaved.

    Args:
        experiment: model, text, tokens and window.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread`` (lowest and highest), and the seconds above.

    Raises:
        TextError: the text is too short for these tokens and those held out.
    """
    import threading

    from ghosted import models, texts
    from ghosted.calibration import calibrate
    from ghosted.calibration.kept import KeptStates
    from ghosted.preview import Preview
    from ghosted.removed import RemovedBlocks

    loaded = drain(models.load(experiment.model), on_event)
    slices = drain(texts.slices(experiment, loaded), on_event)
    needs, blocks = operators.needs(DEFAULT_METHODS), loaded.blocks
    start, longest = blocks // 3, blocks - blocks // 3
    steps = min(STEPS, longest - 2)

    def shown(preview: Preview, gap: range, how: str) -> float:
        begin = time.perf_counter()
        getattr(preview, how)(RemovedBlocks((gap,)), DEFAULT_METHODS)
        return time.perf_counter() - begin

    seconds: dict[str, list[float]] = {name: [] for name in ("calibrate", "cold", "warm", "step", "rest", "seen")}
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        calibration = drain(calibrate(loaded, slices.calibration, slices.held_out, (range(start, start + 1),), needs))
        seconds["calibrate"].append(time.perf_counter() - begin)
        preview = Preview(calibration, experiment, KeptStates(calibration, threading.Lock()))
        seconds["cold"].append(shown(preview, range(start, start + 1), "quick"))
        begin = time.perf_counter()
        preview.warm(DEFAULT_METHODS)
        seconds["warm"].append(time.perf_counter() - begin)
        for length in range(2, 2 + steps):
            seconds["step"].append(shown(preview, range(start, start + length), "quick"))
        seconds["rest"].append(shown(preview, range(start, start + steps + 1), "rest"))
        preview.prefetch(RemovedBlocks((range(start, start + steps + 1),)), DEFAULT_METHODS)
        seconds["seen"].append(shown(preview, range(start + 1, start + steps + 1), "quick"))
    per_round = [statistics.median(seconds["step"][i * steps : (i + 1) * steps]) for i in range(ROUNDS)]
    return {
        **ratio(per_round, seconds["calibrate"]),
        **medians(seconds),
        "tokens": calibration.stores["calibration"].tokens,
        "held_out_tokens": calibration.stores["held_out"].tokens,
        "dtype": loaded.dtype,
    }
