"""``map``: for every range of blocks, what is lost without it and what is left of that after the repair."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.progress import drain

HELP = "map how well every range of blocks could be repaired"
ORDER = 25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, (*flags.MODEL, *flags.CALIBRATION))


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Return the map as JSON; its sums are taken in the calibrating pass itself, over all tokens."""
    from ghosted import models, texts
    from ghosted.calibration import calibrate
    from ghosted.recoverability import RangeSums, recoverability_map

    experiment = flags.experiment_from(args)
    texts.check_windows(experiment, models.describe(experiment.model, experiment.revision).context)
    loaded = drain(models.load(experiment.model, revision=experiment.revision, dtype=experiment.dtype), on_event)
    slices = drain(texts.slices(experiment, loaded), on_event)
    sums = RangeSums(loaded.blocks, loaded.width, seed=experiment.seed, device=loaded.device)
    steps = calibrate(loaded, slices.calibration, slices.held_out, batch=experiment.batch, watch=sums.add)
    calibration = drain(steps, on_event)
    return drain(recoverability_map(calibration, sums), on_event).to_json()


def table(payload: dict[str, Any]) -> str:
    """Return, for each count, the range of which the repair leaves least, relative to the state: before × after."""
    best: dict[int, tuple[float, int]] = {}
    for k, (start, end) in enumerate(zip(payload["starts"], payload["ends"], strict=True)):
        left = (payload["error_before"][k] or 0.0) * (payload["error_after"][k] or 0.0)
        count = end - start + 1
        best[count] = min(best.get(count, (left, k)), (left, k))
    lines = ["blocks  best range  cosine  before  after    left"]
    for count, (left, k) in sorted(best.items()):
        name = f"{payload['starts'][k]}-{payload['ends'][k]}" if count > 1 else str(payload["starts"][k])
        cells = [_cell(payload[column][k]) for column in ("cosine", "error_before", "error_after")]
        lines.append(f"{count:>6}  {name:>10}  {cells[0]}  {cells[1]}  {cells[2]}  {left:6.3f}")
    return "\n".join([
        *lines, "",
        "before: median over held-out tokens of ‖Δ‖/‖x_post‖.  after: of ‖x̂ − x_post‖/‖Δ‖, by the method ghosted; "
        "plain pruning is 1.",
        f"left: before × after.  {len(payload['starts'])} ranges in {payload['seconds']:.1f} s beside the calibrating "
        "pass.",
    ])


def _cell(value: float | None) -> str:
    return "     –" if value is None else f"{value:6.3f}"
