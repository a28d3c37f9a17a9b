"""How much error is left at the last of several gaps? Measured in the repaired model itself, not gap by gap.

Errors of earlier gaps travel on, so the last boundary is read from each variant, run from the first gap on:
‖x̂ − X_post‖ / ‖x_plain − X_post‖, where x_plain is what plain pruning of all gaps hands on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ghosted.calibration import SPLITS, Calibration
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.results import Residual
from ghosted.scores.residual import Ratios
from ghosted.states import Resumed, recording

if TYPE_CHECKING:
    from torch import Tensor


def chained_residuals(
    calibration: Calibration, removed: RemovedBlocks, repairs: Mapping[str, Sequence[Repair]],
    cancel: CancelFlag | None = None,
) -> Steps[dict[str, Residual]]:
    """Measure the residual at the last boundary of a model with several gaps.

    Args:
        calibration: gives the model, its windows and the batch size.
        removed: at least one gap.
        repairs: by method name, at most one per gap.
        cancel: checked between batches.

    Returns:
        A :class:`~ghosted.results.Residual` by method name, on calibration and on held-out windows.
    """
    model, blocks = calibration.loaded.model, calibration.loaded.blocks
    last = removed.gaps[-1]
    # Up to the block before the first gap all models are the original; its states are kept, or read once for all.
    start = removed.resumes_at
    # With all blocks after the last gap gone, that gap ends the model, and what it hands on is the last state.
    cut = RemovedBlocks.of([*range(start), *removed.blocks, *range(last.stop, blocks)])
    ending = range(last.start, blocks)

    def resumed(several: Sequence[Repair]) -> Resumed:
        return Resumed(pruned_view(model, cut, [replace(r, gap=ending) if r.gap == last else r for r in several]))

    plain = resumed(())
    views = {name: resumed(several) for name, several in repairs.items()}
    found: dict[str, dict[str, Ratios]] = {}
    for split in SPLITS:
        windows = calibration.splits[split]
        ratios = found[split] = {name: Ratios() for name in views}
        stage = Stage(f"error after all gaps, {split.replace('_', '-')} text", len(windows), cancel)
        for ids, states in calibration.states(split):
            entering, target = states[start], states[last.stop].float()
            yardstick = (_last_state(plain, entering) - target).double().square().sum(-1).flatten()
            for name, view in views.items():
                error = (_last_state(view, entering) - target).double().square().sum(-1).flatten()
                ratios[name].add(error, yardstick)
            yield stage.step(len(ids))
    return {name: found["held_out"][name].residual(found["calibration"][name].norm) for name in views}


def _last_state(resumed: Resumed, entering: Tensor) -> Tensor:
    with recording(resumed.view) as recorder:
        resumed.run(entering)
    return recorder.states[-1].float()
