"""How much memory does calibration take above the bare forward pass, and does it follow the length of the text?

Each measurement is the peak of a process of its own. ``ratio``: the peak of calibration (similarity of all states and
every default method's statistics of one gap, states not kept) above that of the bare forward pass of the same tokens,
against its bound of 64·C² bytes + 64 MB. ``ratio_2048``: the same for the statistics alone, on synthetic states of
width 2,048. ``growth_bytes``: what twelve times the tokens add; ``ratio_growth`` is that against 16 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ghosted.bench._peak import measured
from ghosted.bench._rounds import bare_pass, middle_gap
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.progress import Stage, drain

LONGER = 12
GROWTH_BYTES = 16 * 10**6
WIDE, WIDE_TOKENS = 2048, 8192


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Measure every peak.

    Args:
        experiment: model, tokens and window.
        on_event: receives progress.

    Returns:
        ``ratio``, ``ratio_2048``, ``ratio_growth``, the bytes behind them. ``spread`` is one value: a peak is no time.

    Raises:
        ResourceError: a process failed.
    """
    stage, peaks = Stage("measuring memory", 5), {}
    model = {"model": experiment.model, "window": experiment.window}
    for name, work, arguments in (
        ("forward", forward, model | {"tokens": experiment.tokens}),
        ("calibrate", calibration, model | {"tokens": experiment.tokens}),
        ("longer", calibration, model | {"tokens": LONGER * experiment.tokens}),
        ("states_2048", synthetic, {"window": experiment.window, "statistics": False}),
        ("statistics_2048", synthetic, {"window": experiment.window, "statistics": True}),
    ):
        peaks[name] = measured(work, **arguments)
        on_event(stage.step())
    width = peaks["forward"]["width"]
    extra = peaks["calibrate"]["peak_bytes"] - peaks["forward"]["peak_bytes"]
    wide = peaks["statistics_2048"]["peak_bytes"] - peaks["states_2048"]["peak_bytes"]
    growth = peaks["longer"]["peak_bytes"] - peaks["calibrate"]["peak_bytes"]
    return {
        "ratio": extra / bound(width),
        "spread": [extra / bound(width)] * 2,
        "ratio_2048": wide / bound(WIDE),
        "ratio_growth": growth / GROWTH_BYTES,
        "width": width,
        "extra_bytes": extra,
        "extra_2048_bytes": wide,
        "growth_bytes": growth,
        "bound_bytes": bound(width),
        "bound_2048_bytes": bound(WIDE),
        "tokens": [experiment.tokens, LONGER * experiment.tokens],
        "peaks": {name: peak["peak_bytes"] for name, peak in peaks.items()},
    }


def bound(width: int) -> int:
    """Return the bytes that statistics of width C may take: 64·C² + 64 MB."""
    return 64 * width**2 + 64 * 10**6


def forward(model: str, tokens: int, window: int) -> Callable[[], dict[str, Any]]:
    """Return the bare forward pass over random tokens."""
    loaded, windows, batch = _prepared(model, tokens, window)
    bare = bare_pass(loaded, windows, batch)

    def work() -> dict[str, Any]:
        bare()
        return {"width": loaded.width}

    return work


def calibration(model: str, tokens: int, window: int) -> Callable[[], None]:
    """Return the calibration of one gap on random tokens, no states kept."""
    from ghosted import operators
    from ghosted.calibration import calibrate

    loaded, windows, batch = _prepared(model, tokens, window)
    gaps, needs = (middle_gap(loaded.blocks),), operators.needs(DEFAULT_METHODS)

    def work() -> None:
        drain(calibrate(loaded, windows, windows.first(0), gaps, needs, batch=batch, store_bytes=0))

    return work


def synthetic(window: int, statistics: bool) -> Callable[[], None]:
    """Return the statistics of one gap of a model of width 2,048, on random states; or only the making of those."""
    import torch

    from ghosted import operators
    from ghosted.calibration.statistics import Boundary, GapStatistics

    def work() -> None:
        generator = torch.Generator().manual_seed(0)
        sums = GapStatistics(range(8, 13), WIDE, operators.needs(DEFAULT_METHODS)) if statistics else None
        for _ in range(WIDE_TOKENS // window):
            pre, post, branch = (torch.randn(1, window, WIDE, generator=generator).bfloat16() for _ in range(3))
            if sums is not None:
                sums.add(Boundary(pre, post, branch))

    return work


def _prepared(model: str, tokens: int, window: int) -> tuple[Any, Any, int]:
    """Return a model, random windows, and the batch; tokens are random so that any number of them is at hand."""
    import torch

    from ghosted import models
    from ghosted.calibration import windows_per_batch
    from ghosted.texts.windows import Windows

    loaded = drain(models.load(model))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, loaded.facts.vocabulary, (tokens // window, window), generator=generator)
    windows = Windows(tuple(ids), "random ids", "0", 0, ids.numel(), window, False)
    bare_pass(loaded, windows.first(1), 1)()  # kernels are built once
    return loaded, windows, windows_per_batch(None, window)
