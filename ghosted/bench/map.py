"""What does the recoverability map cost beside the bare forward pass of the same tokens, and is it right?

``ratio``: the map from kept states, held-out errors included, against the forward pass alone; interleaved, median over
rounds. ``largest_difference`` and ``rank_correlation`` (Spearman's) compare its ``error_after`` with the median
residual of ``ghosted``, fitted exactly on all calibration tokens, on 30 random ranges and the same held-out tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from ghosted import machine, operators
from ghosted.bench._rounds import bare_pass, medians, ratio
from ghosted.experiment import Experiment
from ghosted.progress import drain

ROUNDS = 3
TOKENS = 32_768
RANGES = 30


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Time both, interleaved, and compare the map with exact solves.

    Args:
        experiment: model, text, tokens and window.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread`` (lowest and highest), seconds of both, ``largest_difference``, ``rank_correlation``.

    Raises:
        TextError: the text is too short for these tokens and those held out.
    """
    from ghosted import models, texts
    from ghosted.calibration import calibrate, store, windows_per_batch
    from ghosted.recoverability import recoverability_map

    loaded = drain(models.load(experiment.model), on_event)
    slices = drain(texts.slices(experiment, loaded), on_event)
    windows, held_out = slices.calibration, slices.held_out
    batch = windows_per_batch(None, windows.window)
    token = store.bytes_per_token(loaded.blocks, loaded.width, next(loaded.model.parameters()).element_size())
    everything = max(windows.tokens + held_out.tokens, 2 * held_out.tokens) * token
    calibration = drain(calibrate(loaded, windows, held_out, batch=batch, store_bytes=everything), on_event)

    forward = bare_pass(loaded, windows, batch)
    seconds: dict[str, list[float]] = {"forward": [], "map": []}
    for _ in range(ROUNDS):
        seconds["forward"].append(machine.seconds_of(forward, loaded.device))
        found = drain(recoverability_map(calibration), on_event)
        seconds["map"].append(found.seconds)
    return {
        **ratio(seconds["map"], seconds["forward"]),
        **_against_exact(calibration, found, on_event),
        **medians(seconds),
        "tokens": found.tokens,
        "held_out_tokens": found.held_out_tokens,
        "batch": batch,
        "dtype": loaded.dtype,
    }


def _against_exact(calibration: Any, found: Any, on_event: Callable[[Any], None]) -> dict[str, Any]:
    from ghosted.scores.residual import boundary_residuals

    method, mapped, exact = operators.method("ghosted"), [], []
    ranges = range(len(found.starts))
    for k in random.Random(0).sample(ranges, min(RANGES, len(ranges))):
        gap = range(int(found.starts[k]), int(found.ends[k]) + 1)
        sums = drain(calibration.statistics(gap, method.NEEDS), on_event)
        calibration.gaps.clear()
        fitted = {"ghosted": method.fit(sums, operators.Settings())}
        residual = drain(boundary_residuals(calibration, gap, fitted, sums), on_event)["ghosted"]
        if residual.median is not None:
            mapped.append(float(found.after[k]))
            exact.append(residual.median)
    ranks = [np.argsort(np.argsort(values)) for values in (mapped, exact)]
    return {
        "largest_difference": float(np.max(np.abs(np.subtract(mapped, exact)))),
        "rank_correlation": float(np.corrcoef(*ranks)[0, 1]),
        "ranges_compared": len(exact),
    }
