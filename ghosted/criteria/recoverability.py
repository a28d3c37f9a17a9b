"""Recoverability: remove the run that a linear map replaces best, judged by what the repaired model still predicts.

Two steps. The recoverability map (:mod:`ghosted.recoverability`) gives, for every start, what plain pruning loses and
what the repair leaves of it, medians over held-out tokens of ‖Δ‖/‖x_post‖ and ‖x̂ - x_post‖/‖x_post‖; the six starts of
the smallest product of the two are the shortlist. (What is left alone puts late runs first, which replace nearly the
whole state: their median token is repaired well, and their loss is high.) Each of the six is then repaired with
``ghosted-weighted``, and its score is the mean next-token loss (nats) of the repaired model on the first 4,096 held-out
tokens; the smallest wins. Only the shortlist is among the candidates.

The map is of the fit without token weights, so that a run which removes the block that writes a sink token falls off
the shortlist: its small relative error would hide that one token ruins the model. The repair that is scored is the
weighted one, which no sink token owns.

Source: ours; not in the paper.

Cost: the map from the kept states (or one more pass where none are kept) and a part of a pass over the scored tokens
for each of the shortlist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ghosted import operators
from ghosted.calibration.statistics import Boundary
from ghosted.criteria import Evidence, check_count
from ghosted.criteria._removal import removal_cost
from ghosted.criteria._repaired import RepairedModel, kept_windows, lowest_loss, scored_windows
from ghosted.drawn_map import drawn_map
from ghosted.progress import Stage, Steps, settled
from ghosted.pruned import Repair
from ghosted.recoverability import HELD_OUT_TOKENS, memory_bytes
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, Cost, RecoverabilityMap

if TYPE_CHECKING:
    from ghosted.calibration import Calibration

NAME, LABEL, ORDER = "recoverability", "recoverability (ours)", 60
NEEDS_HELD_OUT = True
METHOD = "ghosted-weighted"
SHORTLIST = 6
SCORED_TOKENS = 4096


def cost(evidence: Evidence, count: int) -> Cost:
    """Return what runs through the model beside the kept states, and the memory of the map or of the scoring."""
    calibration, scored = evidence.calibration, scored_windows(evidence.calibration, SCORED_TOKENS)
    loaded = calibration.loaded
    scoring = removal_cost(loaded, min(SHORTLIST, loaded.blocks - count + 1), scored)
    tokens, memory = scoring.tokens, scoring.memory_bytes
    if not kept_windows(calibration):
        tokens += calibration.splits["calibration"].tokens * (2 if calibration.ranges is None else 1)
    if calibration.ranges is None:
        memory = max(memory, memory_bytes(loaded.blocks, loaded.width))
        if not calibration.complete("held_out"):
            tokens += min(HELD_OUT_TOKENS, calibration.splits["held_out"].tokens)
    if not calibration.complete("held_out"):
        tokens += scored.tokens
    return Cost(tokens, memory)


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` contiguous blocks, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
        ModelError: no repaired model of the shortlist has a finite loss.
        ResourceError: the map does not fit the free memory.
        Cancelled: ``evidence.cancel`` was set.
    """
    calibration = evidence.calibration
    check_count(count, calibration.loaded.blocks)
    starts = shortlist((yield from drawn_map(calibration, evidence.seed, evidence.cancel)), count)
    gaps = [range(start, start + count) for start in starts]
    repairs = yield from _fit(calibration, gaps, evidence)
    losses = yield from _losses(calibration, repairs, evidence)
    removed, windows = [RemovedBlocks.of(gap) for gap in gaps], scored_windows(calibration, SCORED_TOKENS)
    return lowest_loss(NAME, removed, losses, windows, calibration.loaded.dtype)


def shortlist(ranges: RecoverabilityMap, count: int, most: int = SHORTLIST) -> list[int]:
    """Return the starts of the smallest error, before times after the repair, at most ``most``, ascending."""
    of_count = np.flatnonzero(ranges.ends - ranges.starts + 1 == count)
    order = of_count[np.argsort((ranges.before * ranges.left)[of_count], kind="stable")]
    return sorted(int(start) for start in ranges.starts[order[:most]])


def _fit(calibration: Calibration, gaps: Sequence[range], evidence: Evidence) -> Steps[list[Repair]]:
    method = operators.method(METHOD)
    statistics = [calibration.new_statistics(gap, method.NEEDS) for gap in gaps]
    wanted = kept_windows(calibration) or len(calibration.splits["calibration"])
    stage = Stage("reading the shortlist", wanted, evidence.cancel)
    for ids, states in calibration.states("calibration", wanted):
        for sums in statistics:
            sums.add(Boundary(states[sums.gap.start], states[sums.gap.stop]))
        yield stage.step(len(ids))
    repairs = []
    settings = operators.Settings(seed=evidence.seed, cancel=evidence.cancel)
    for sums in statistics:
        fitted = yield from settled(method.fit(sums, settings))
        repairs.append(Repair(sums.gap, fitted.feature, fitted.M.float()))
    return repairs


def _losses(calibration: Calibration, repairs: Sequence[Repair], evidence: Evidence) -> Steps[np.ndarray]:
    """Return ``(windows, repairs)`` mean loss in nats."""
    windows = scored_windows(calibration, SCORED_TOKENS)
    models = [RepairedModel(calibration, RemovedBlocks((repair.gap,)), [repair]) for repair in repairs]
    stage, rows = Stage("scoring the shortlist", len(windows) * len(repairs), evidence.cancel), []
    for ids, states in calibration.states("held_out", len(windows)):
        found = []
        for model in models:
            found.append(model.losses(ids, states))
            yield stage.step(len(ids))
        rows.append(np.array(found).T)
    return np.concatenate(rows)
