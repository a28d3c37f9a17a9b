"""What does the straightforward way cost, the one of published scripts, and what does ours cost beside it?

The straightforward way, in our own few lines: one pass at batch 1, with logits, to choose the blocks; another to
calibrate, all states of both boundaries kept in float32; ``torch.linalg.pinv``. Ours: choice, calibration, solve, as
the library does them, states not kept. Same model, dtype, tokens and number of blocks; each run in a process of its
own. ``ratio``: seconds of the whole run; ``memory_ratio``: peak memory above what was there before; ``solve_ratio``:
time inside statistics and solve, measured inside the runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from ghosted.bench._peak import measured
from ghosted.bench._rounds import ratio
from ghosted.experiment import Experiment
from ghosted.progress import Stage, drain

TOKENS = 65_536
ROUNDS = 2
COUNT = 5


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Run both ways, in turn.

    Args:
        experiment: model, text, tokens and window.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread``, ``memory_ratio``, ``solve_ratio``, seconds and bytes of both, and how far apart the norms
        of the two operators are.

    Raises:
        ResourceError: a process failed.
    """
    stage, runs = Stage("running both ways", 2 * ROUNDS), {"theirs": [], "ours": []}
    settings = {"model": experiment.model, "tokens": experiment.tokens, "window": experiment.window,
                "text": experiment.text}  # fmt: skip
    for _ in range(ROUNDS):
        for name, work in (("theirs", straightforward), ("ours", library)):
            runs[name].append(measured(work, **settings))
            on_event(stage.step())

    def median(name: str, key: str) -> float:
        return statistics.median(run[key] for run in runs[name])

    return {
        **ratio([run["seconds"] for run in runs["ours"]], [run["seconds"] for run in runs["theirs"]]),
        "memory_ratio": median("ours", "peak_bytes") / median("theirs", "peak_bytes"),
        "solve_ratio": median("ours", "inside_s") / median("theirs", "inside_s"),
        "same_blocks": runs["ours"][0]["removed"] == runs["theirs"][0]["removed"],
        "removed": runs["ours"][0]["removed"],
        "norm_difference": abs(runs["ours"][0]["norm"] / runs["theirs"][0]["norm"] - 1),
        **{f"{name}_{key}": median(name, key) for name in runs for key in ("seconds", "inside_s", "peak_bytes")},
        "tokens": runs["ours"][0]["tokens"],
        "dtype": runs["ours"][0]["dtype"],
    }


def straightforward(model: str, tokens: int, window: int, text: str) -> Callable[[], dict[str, Any]]:
    """Return the straightforward run: two passes at batch 1, all states, a pseudo-inverse."""
    import torch
    import torch.nn.functional as F

    loaded, windows = _prepared(model, tokens, window, text)
    decoder, starts = loaded.model, range(loaded.blocks - COUNT + 1)

    @torch.inference_mode()
    def work() -> dict[str, Any]:
        inside = _Clock()
        alike = torch.zeros(len(starts))
        for ids in windows.batches(1):
            states = decoder(input_ids=ids.to(loaded.device), output_hidden_states=True).hidden_states
            for i in starts:
                alike[i] += F.cosine_similarity(states[i].float(), states[i + COUNT].float(), dim=-1).mean().cpu()
        start, before, after = int(alike.argmax()), [], []
        for ids in windows.batches(1):
            states = decoder(input_ids=ids.to(loaded.device), output_hidden_states=True).hidden_states
            with inside:
                before.append(states[start][0].float())
                after.append(states[start + COUNT][0].float())
        with inside:
            X, Y = torch.cat(before), torch.cat(after)
            M = torch.linalg.pinv(X) @ (Y - X)
        return _found(loaded, windows, range(start, start + COUNT), M, inside)

    return work


def library(model: str, tokens: int, window: int, text: str) -> Callable[[], dict[str, Any]]:
    """Return our run: choice, calibration, solve."""
    from ghosted import criteria, operators
    from ghosted.calibration import calibrate
    from ghosted.calibration.statistics import GapStatistics
    from ghosted.operators import Settings
    from ghosted.removed import RemovedBlocks

    loaded, windows = _prepared(model, tokens, window, text)
    method, inside = operators.method("ghosted"), _Clock()
    add = GapStatistics.add

    def timed_add(self: GapStatistics, boundary: Any) -> None:
        with inside:
            add(self, boundary)

    def work() -> dict[str, Any]:
        GapStatistics.add = timed_add  # this process does nothing else
        calibration = drain(calibrate(loaded, windows, windows.first(0), store_bytes=0))
        evidence = criteria.Evidence(calibration.similarity, calibration, 0, None)
        chosen = drain(criteria.choose("cosine", evidence, COUNT))
        (gap,) = RemovedBlocks.parse(chosen.remove, loaded.blocks).gaps
        sums = drain(calibration.statistics(gap, method.NEEDS))
        with inside:
            M = method.fit(sums, Settings(ridge=0.0)).M
        return _found(loaded, windows, gap, M, inside)

    return work


class _Clock:
    """Adds up the seconds spent inside it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *reason: object) -> None:
        self.seconds += time.perf_counter() - self._start


def _prepared(model: str, tokens: int, window: int, text: str) -> tuple[Any, Any]:
    from ghosted import models, texts
    from ghosted.bench._rounds import bare_pass

    loaded = drain(models.load(model))
    experiment = Experiment(model=model, tokens=tokens, window=window, text=text)
    windows = drain(texts.slices(experiment, loaded, only_calibration=True)).calibration
    bare_pass(loaded, windows.first(1), 1)()  # kernels are built once
    return loaded, windows


def _found(loaded: Any, windows: Any, gap: range, M: Any, inside: _Clock) -> dict[str, Any]:
    from ghosted.removed import gap_name

    return {"removed": gap_name(gap), "norm": float(M.norm()), "inside_s": inside.seconds, "tokens": windows.tokens,
            "dtype": loaded.dtype}  # fmt: skip
