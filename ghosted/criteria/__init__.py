"""The criteria: how the removed blocks are chosen. One file each, found by :func:`ghosted.registry.members`.

A criterion's module states ``NAME``, ``LABEL``, ``ORDER`` and ``choose(evidence, count) -> Choice``; one that takes
long is a generator that yields :class:`~ghosted.progress.Progress` and returns its ``Choice``, and states
``cost(evidence, count) -> Cost``, which is shown before it starts. One that may not remove every block states
``allowed(count, blocks) -> range``, which raises where that is too few. One that reads held-out text states
``NEEDS_HELD_OUT = True``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ghosted import machine
from ghosted.criteria import _saved
from ghosted.errors import InputError, ResourceError
from ghosted.progress import CancelFlag, Note, Steps, settled
from ghosted.registry import members, pick
from ghosted.removed import RemovedBlocks
from ghosted.results import Candidate, Choice, Cost, Similarity

if TYPE_CHECKING:
    from ghosted.calibration import Calibration

PACKAGE = __name__


@dataclass(eq=False)
class Evidence:
    """What a criterion may look at.

    Attributes:
        similarity: of all pairs of states, on the calibration windows.
        calibration: the model, its calibration and held-out windows, and the kept states; ``None`` in tests of the
            criteria that read ``similarity`` alone.
        seed: of criteria that draw random numbers.
        cancel: checked by criteria that take long.
    """

    similarity: Similarity
    calibration: Calibration | None = None
    seed: int = 0
    cancel: CancelFlag | None = None


def criterion(name: str) -> ModuleType:
    """Return the module of one criterion; raises :class:`~ghosted.errors.InputError` for an unknown name."""
    return pick(PACKAGE, name, "criterion")


def criteria() -> dict[str, ModuleType]:
    """Return all criteria by name, in the order they are shown."""
    return members(PACKAGE)


def reads_similarity(name: str) -> bool:
    """Return whether a criterion chooses from the similarities alone: such a one states no cost."""
    return not hasattr(criterion(name), "cost")


def at_hand(name: str, similarity: Similarity, count: int) -> Choice | None:
    """Return what a criterion chooses from the similarities alone, at once.

    ``None`` where it needs the model, where it may not remove ``count`` blocks, and for ``manual``, which never does.
    """
    if not reads_similarity(name):
        return None
    try:
        check(name, count, similarity.blocks)
        return criterion(name).choose(Evidence(similarity), count)
    except InputError:
        return None


def choose(name: str, evidence: Evidence, count: int) -> Steps[Choice]:
    """Let the criterion ``name`` choose ``count`` blocks; says what that costs before it starts.

    A choice that costs more than the calibrating pass is kept on disk, and given back at no cost.

    Raises:
        InputError: there is no such criterion, or the count leaves no block or is below 1.
        ResourceError: it needs more memory than is free.
        Cancelled: ``evidence.cancel`` was set.
    """
    check(name, count, evidence.similarity.blocks)
    module = criterion(name)
    cost = module.cost(evidence, count) if hasattr(module, "cost") else Cost(0, 0)
    if not (cost.tokens or cost.memory_bytes):
        return (yield from settled(module.choose(evidence, count)))
    entry = _saved.key(name, count, evidence.seed, evidence.calibration.identity)
    if (kept := _saved.restore(entry)) is not None:
        return kept
    if cost.memory_bytes:
        free = machine.available_memory(evidence.calibration.loaded.device)
        if cost.memory_bytes > free:
            raise ResourceError(
                f"The criterion {name} needs about {cost.memory_bytes / 1e9:.3g} GB more and {free / 1e9:.3g} GB are "
                "free; take cosine, or a smaller model."
            )
    yield Note(f"{name}: {cost}")
    choice = yield from settled(module.choose(evidence, count))
    _saved.save(entry, choice)
    return replace(choice, cost=cost)


def check(name: str, count: int, blocks: int) -> None:
    """Raise :class:`~ghosted.errors.InputError` unless the criterion ``name`` can remove ``count`` of ``blocks``."""
    check_count(count, blocks)
    module = criterion(name)
    if hasattr(module, "allowed"):
        module.allowed(count, blocks)


def check_count(count: int, blocks: int) -> None:
    """Raise :class:`~ghosted.errors.InputError` unless removing ``count`` of ``blocks`` leaves at least one."""
    if not 1 <= count < blocks:
        raise InputError(f"Cannot remove {count} of {blocks} blocks; choose a count from 1 to {blocks - 1}.")


def best_of(
    name: str, removed: Sequence[RemovedBlocks], scores: np.ndarray, by_text: np.ndarray, *, higher_is_better: bool
) -> Choice:
    """Choose one of several sets of blocks: the best score wins.

    Args:
        name: the criterion's.
        removed: the candidates.
        scores: ``(candidates,)``.
        by_text: ``(texts, candidates)`` the same scores on groups of windows. The choice is a near tie when the margin
            to the runner-up is at most one standard deviation, over these groups, of the difference of the two.
        higher_is_better: direction of the score.
    """
    order = np.argsort(-scores if higher_is_better else scores, kind="stable")
    candidates = tuple(Candidate(str(r), float(s)) for r, s in zip(removed, scores, strict=True))
    best, runner_up, near_tie = candidates[order[0]], None, False
    if len(order) > 1:
        runner_up = candidates[order[1]]
        spread = float(np.std(by_text[:, order[0]] - by_text[:, order[1]]))
        near_tie = bool(abs(best.score - runner_up.score) <= spread)
    return Choice(name, best.remove, best.score, higher_is_better, runner_up, near_tie, candidates)


def best_run(
    name: str, count: int, scores: np.ndarray, by_text: np.ndarray, *, higher_is_better: bool
) -> Choice:
    """Choose one run of ``count`` blocks by its start: ``scores`` is ``(starts,)``, the rest as in :func:`best_of`."""
    runs = [RemovedBlocks.of(range(i, i + count)) for i in range(len(scores))]
    return best_of(name, runs, scores, by_text, higher_is_better=higher_is_better)


def lowest_blocks(
    name: str, count: int, scores: np.ndarray, by_text: np.ndarray, allowed: Sequence[int] | None = None
) -> Choice:
    """Choose single blocks: the ``count`` lowest scores go, contiguous or not; the choice's score is their sum.

    Args:
        name: the criterion's.
        count: blocks to remove.
        scores: ``(L,)`` importance of each block.
        by_text: ``(texts, L)`` the same on groups of windows, for the near tie.
        allowed: blocks that may go; all by default.

    Raises:
        InputError: fewer than ``count`` blocks may go.
    """
    allowed = range(len(scores)) if allowed is None else allowed
    if count > len(allowed):
        raise InputError(f"The criterion {name} may remove {len(allowed)} of these {len(scores)} blocks; lower the "
                         "count.")  # fmt: skip
    ranked = sorted(allowed, key=lambda i: (scores[i], i))
    chosen = ranked[:count]
    candidates = tuple(Candidate(str(i), float(scores[i])) for i in allowed)
    runner_up, near_tie = None, False
    if len(ranked) > count:
        last, following = ranked[count - 1], ranked[count]
        swapped = [*chosen[:-1], following]
        runner_up = Candidate(str(RemovedBlocks.of(swapped)), float(scores[swapped].sum()))
        spread = float(np.std(by_text[:, following] - by_text[:, last]))
        near_tie = bool(scores[following] - scores[last] <= spread)
    removed = str(RemovedBlocks.of(chosen))
    return Choice(name, removed, float(scores[chosen].sum()), False, runner_up, near_tie, candidates)
