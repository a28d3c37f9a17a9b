"""Best: up to three gaps, chosen by what the repaired model still predicts on held-out text.

Three steps, each on fewer candidates and closer to the truth:

1. The recoverability map gives, for every length up to ``count``, the six ranges of the smallest product of what is
   lost and what is left (medians over held-out tokens; see :mod:`ghosted.criteria.recoverability`).
2. Each of these is repaired with ``ghosted-weighted``; its damage is the rise of the mean next-token loss on 2,048
   held-out tokens and as many that the model wrote itself: what is judged on the calibration's kind of text alone can
   be much worse on any other. Sets of up to three ranges, never adjacent, that remove ``count`` blocks in all are
   ranked by the sum of their damages: an estimate that costs nothing more.
3. The six best sets, and the two best single ranges (damages add up to too little, so sets of several are flattered),
   are repaired for real, one gap after the other, and scored on the same tokens; the smallest loss wins. Only they are
   among the candidates.

Source: ours; not in the paper.

Cost: the map, then a part of a pass over the scored tokens for each range and each set, and once per model the writing
of 16,384 tokens. Fits use at most 8,192 calibration tokens, as many as the store keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from ghosted import operators
from ghosted.criteria import Evidence, check_count
from ghosted.criteria import recoverability as by_range
from ghosted.criteria._removal import mean_losses, removal_cost
from ghosted.criteria._repaired import RepairedModel, kept_windows, lowest_loss, scored_windows
from ghosted.drawn_map import drawn_map
from ghosted.operators.best import GENERATED_TOKENS
from ghosted.progress import Stage, Steps, drain
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, Cost
from ghosted.scores.perplexity import Loss

if TYPE_CHECKING:
    from torch import Tensor

    from ghosted.calibration import Calibration
    from ghosted.texts.windows import Windows

NAME, LABEL, ORDER = "best", "best (ours)", 70
NEEDS_HELD_OUT = True
METHOD = "ghosted-weighted"
GAPS = 3
SETS, SINGLES = 6, 2
FITTED_TOKENS = 8192
SCORED_TOKENS = 2048
"""Of the held-out text, and of the model's own."""


def cost(evidence: Evidence, count: int) -> Cost:
    """Return what runs through the model beside the kept states, at most, and the memory of the map or the scoring."""
    calibration, blocks = evidence.calibration, evidence.similarity.blocks
    mapped = by_range.cost(evidence, count)
    ranges = sum(min(by_range.SHORTLIST, blocks - length + 1) for length in range(1, count + 1))
    passes, windows = 2 * (ranges + SETS + SINGLES), scored_windows(calibration, SCORED_TOKENS)
    scoring = removal_cost(calibration.loaded, passes, windows)
    fitted = SETS * (GAPS - 1) * FITTED_TOKENS if count > 1 else 0
    return Cost(mapped.tokens + scoring.tokens + fitted, max(mapped.memory_bytes, scoring.memory_bytes))


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` blocks in up to three gaps, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
        ModelError: no repaired model has a finite loss.
        ResourceError: the map does not fit the free memory.
        Cancelled: ``evidence.cancel`` was set.
    """
    calibration, cancel = evidence.calibration, evidence.cancel
    check_count(count, calibration.loaded.blocks)
    ranges = yield from drawn_map(calibration, evidence.seed, evidence.cancel)
    wanted = max(1, FITTED_TOKENS // calibration.splits["calibration"].window)
    part = yield from calibration.part(min(wanted, kept_windows(calibration) or wanted), cancel)
    singles = [
        RemovedBlocks((range(start, start + length),))
        for length in range(1, count + 1)
        for start in by_range.shortlist(ranges, length)
    ]
    yield from calibration.add_generated(GENERATED_TOKENS, evidence.seed, cancel)
    windows, scored = _scored(calibration)
    losses = yield from _losses(part, singles, scored, Stage("scoring ranges", len(singles), cancel), evidence)
    damages = mean_losses(losses, windows) - _whole_loss(calibration, scored)
    sets = likely_sets([removed.gaps[0] for removed in singles], damages, count)
    losses = yield from _losses(part, sets, scored, Stage("scoring sets of ranges", len(sets), cancel), evidence)
    return lowest_loss(NAME, sets, losses, windows, calibration.loaded.dtype)


def likely_sets(ranges: Sequence[range], damages: np.ndarray, count: int) -> list[RemovedBlocks]:
    """Return the sets of up to three ranges, never adjacent, of the least summed damage, best first.

    At most six, and after them the two best sets of one range where they are not among the six.

    Args:
        ranges: candidates.
        damages: ``(ranges,)`` rise of the loss; NaN where it is no finite number.
        count: blocks that a set removes in all.
    """
    known = [(gap, float(d)) for gap, d in zip(ranges, damages, strict=True) if np.isfinite(d)]
    known.sort(key=lambda one: (one[0].start, one[0].stop))
    found: list[tuple[float, RemovedBlocks]] = []
    for several in range(1, GAPS + 1):
        for chosen in combinations(known, several):
            gaps = [gap for gap, _ in chosen]
            apart = all(a.stop < b.start for a, b in pairwise(gaps))
            if apart and sum(map(len, gaps)) == count:
                found.append((sum(damage for _, damage in chosen), RemovedBlocks(tuple(gaps))))
    found.sort(key=lambda one: one[0])
    best = [removed for _, removed in found[:SETS]]
    alone = [removed for _, removed in found if len(removed.gaps) == 1][:SINGLES]
    return best + [removed for removed in alone if removed not in best]


def _scored(calibration: Calibration) -> tuple[Windows, list[tuple[Tensor, list[Tensor]]]]:
    """Return the windows that are scored, of both texts, and their ids ``(1, t)`` and L + 1 states ``(1, t, C)``."""
    held_out = scored_windows(calibration, SCORED_TOKENS)
    own = calibration.splits["generated"].first(len(held_out))
    read = [
        (ids[row : row + 1], [state[row : row + 1] for state in states])
        for split, windows in (("held_out", held_out), ("generated", own))
        for ids, states in calibration.states(split, len(windows)) for row in range(len(ids))
    ]
    return replace(held_out, rows=held_out.rows + own.rows), read


def _whole_loss(calibration: Calibration, scored) -> float:
    """Return the unpruned model's mean loss in nats on windows: ids and states."""
    loss = Loss()
    with torch.inference_mode():
        for ids, _ in scored:
            loss.add(calibration.loaded.model(input_ids=ids, use_cache=False).logits, ids)
    return loss.total / loss.tokens


def _losses(part: Calibration, several: Sequence[RemovedBlocks], scored, stage: Stage, evidence: Evidence):
    """Return ``(windows, sets)`` mean loss in nats of each repaired model on windows: ids and states."""
    from ghosted.fitting import fit_gaps, repairs_of

    settings, found = operators.Settings(seed=evidence.seed, cancel=evidence.cancel), []
    for removed in several:
        fits = drain(fit_gaps(part, removed, METHOD, settings, sequential=True))  # a second or two; it checks the flag
        part.gaps.clear()  # the moments of some fifty gaps would be the largest thing in memory
        model = RepairedModel(part, removed, repairs_of(removed.gaps, fits))
        found.append([loss for ids, states in scored for loss in model.losses(ids, states)])
        yield stage.step()
    return np.array(found).T
