"""How are the operators of several gaps fitted? Each by itself, or one after the other.

*Independent*: every gap from the unpruned model's states; the order cannot matter. *Sequential*: a later gap's X_pre
comes from the model that is already pruned and repaired before it, its target X_post stays the unpruned model's, so
that each operator also mends what the ones before it left. The first gap is the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType

from ghosted import operators
from ghosted.calibration import Calibration
from ghosted.calibration.statistics import Boundary, GapStatistics
from ghosted.distributed import by_first
from ghosted.models.families import blocks_of
from ghosted.operators import Fitted, Settings
from ghosted.progress import Stage, Steps, settled
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.states import Resumed, hidden_forward, recording


def fit_gaps(
    calibration: Calibration, removed: RemovedBlocks, name: str, settings: Settings, *, sequential: bool = False
) -> Steps[list[Fitted]]:
    """Fit one method to every gap.

    Args:
        calibration: gives the model, its windows and the statistics of each gap (they are read if they are not there).
        removed: the gaps.
        name: the method.
        settings: ridge, rank, seed and cancel flag; the rest is filled in here, gap by gap.
        sequential: whether a later gap sees the repairs before it.

    Returns:
        One :class:`~ghosted.operators.Fitted` per gap, in order.

    Raises:
        NotDefined: the method has no meaning at one of the gaps.
    """
    module, fits = operators.method(name), []
    for number, gap in enumerate(removed.gaps):
        if sequential and number and module.NEEDS:
            source = _Repaired(calibration, gap, removed.gaps[:number], repairs_of(removed.gaps, fits))
        else:
            source = _Original(calibration, gap)
        statistics = yield from source.statistics("calibration", module.NEEDS, settings)
        others: dict[str, GapStatistics | None] = {"held_out": None, "generated": None}
        if settings.ridge == "auto" and module.NEEDS:
            others["held_out"] = yield from source.statistics("held_out", module.NEEDS, settings)
        if tokens := getattr(module, "GENERATED_TOKENS", 0):
            yield from calibration.add_generated(tokens, settings.seed, settings.cancel)
            others["generated"] = yield from source.statistics("generated", module.NEEDS, settings)
        read_again = partial(source.boundaries, "calibration", statistics.wants_feed_forward)
        its_settings = replace(settings, read_again=read_again, **others)
        fits.append((yield from by_first(_fit(module, statistics, its_settings))))
    return fits


def _fit(module: ModuleType, statistics: GapStatistics, settings: Settings) -> Steps[Fitted]:
    return (yield from settled(module.fit(statistics, settings)))


def repairs_of(gaps: Sequence[range], fits: Sequence[Fitted]) -> list[Repair]:
    """Return the repairs of the first ``len(fits)`` gaps; plain pruning has none."""
    pairs = zip(gaps, fits, strict=False)
    return [Repair(gap, fit.feature, fit.operator()) for gap, fit in pairs if fit.M is not None]


class _Original:
    """A gap's boundaries in the unpruned model."""

    def __init__(self, calibration: Calibration, gap: range) -> None:
        self._calibration, self._gap = calibration, gap

    def statistics(self, split: str, needs: frozenset[str], settings: Settings) -> Steps[GapStatistics]:
        if split == "calibration":
            return (yield from self._calibration.statistics(self._gap, needs, cancel=settings.cancel))
        return (yield from self._calibration.split_statistics(split, self._gap, needs, settings.cancel))

    def boundaries(self, split: str, feed_forward: bool) -> Iterator[Boundary]:
        return self._calibration.boundaries(split, self._gap, feed_forward)


class _Repaired:
    """A gap's boundaries where everything before it is pruned and repaired; X_post is the unpruned model's."""

    def __init__(
        self, calibration: Calibration, gap: range, before: Sequence[range], repairs: Sequence[Repair]
    ) -> None:
        self._calibration, self._gap = calibration, gap
        model, blocks = calibration.loaded.model, calibration.loaded.blocks
        # Up to the block before the first gap the two models are the same, so that stored states can stand for it.
        earlier = RemovedBlocks(tuple(before))
        self._start, cut = earlier.resumes_at, [*earlier.blocks, *range(gap.start, blocks)]
        self._whole = pruned_view(model, RemovedBlocks.of(cut), repairs)
        self._resumed = Resumed(pruned_view(model, RemovedBlocks.of([*range(self._start), *cut]), repairs))
        self._original = pruned_view(model, RemovedBlocks.of(range(gap.stop, blocks)))

    def statistics(self, split: str, needs: frozenset[str], settings: Settings) -> Steps[GapStatistics]:
        statistics = self._calibration.new_statistics(self._gap, needs)
        stage = Stage(f"reading {gap_name(self._gap)} after earlier repairs", len(self._calibration.splits[split]),
                      settings.cancel)  # fmt: skip
        for boundary in self.boundaries(split, statistics.wants_feed_forward):
            statistics.add(boundary)
            yield stage.step(len(boundary.pre))
        return statistics

    def boundaries(self, split: str, feed_forward: bool) -> Iterator[Boundary]:
        calibration, last = self._calibration, len(blocks_of(self._resumed.view)) - 1
        if calibration.complete(split):
            with recording(self._resumed.view, (last,) if feed_forward else ()) as recorder:
                for entering, post in calibration.stores[split].windows(self._start, self._gap.stop):
                    self._resumed.run(entering)
                    pre = recorder.states[-1]
                    branch = recorder.feed_forward.get(last), recorder.hidden.get(last)
                    yield Boundary(pre, post.to(pre.device), *branch)
            return
        last = len(blocks_of(self._whole)) - 1
        branches = (last,) if feed_forward else ()
        with recording(self._whole, branches) as recorder, recording(self._original) as reference:
            for ids in calibration.splits[split].batches(calibration.batch):
                hidden_forward(self._whole, ids)
                hidden_forward(self._original, ids)
                branch = recorder.feed_forward.get(last), recorder.hidden.get(last)
                yield Boundary(recorder.states[-1], reference.states[-1], *branch)
