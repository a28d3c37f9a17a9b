"""What does the unpruned model do on a text? One forward pass, no logits, remembered as additive statistics.

:func:`calibrate` runs the model over the calibration windows and gives a :class:`Calibration`: the similarity of all
states, the moments of the gaps asked for, and a bounded store of states for any other gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ghosted import distributed
from ghosted.calibration.similarity import SimilaritySums
from ghosted.calibration.statistics import Boundary, GapStatistics
from ghosted.calibration.store import DEFAULT_BYTES, StateStore, bytes_per_token
from ghosted.errors import ModelError, NotDefined
from ghosted.models.families import Family, find_family, norm_eps
from ghosted.progress import CancelFlag, Progress, Stage, Steps
from ghosted.pruned import check_feed_forward, hidden_channels, pruned_view
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import RecoverabilityMap, Similarity
from ghosted.states import BlockRunner, hidden_forward, recording

if TYPE_CHECKING:
    from ghosted.models import LoadedModel
    from ghosted.texts.windows import Windows

SPLITS = ("calibration", "held_out")
WIDEST = 8192  # order of a Gram matrix that is still solved in half a minute; wider branches have no joint moments
TOKENS_PER_BATCH = 1024  # as fast as 2,048 within the noise on a small machine; all states of a batch exist at once


def not_finite(what: str, dtype: str) -> ModelError:
    """Return the error of a model whose ``what`` are not finite numbers in this dtype."""
    if dtype == "float32":
        return ModelError(f"The model's {what} are not finite numbers, even in float32; its weights are damaged.")
    return ModelError(f"The model's {what} are not finite numbers in {dtype}; choose --dtype float32.")


def windows_per_batch(batch: int | None, window: int) -> int:
    """Return how many windows go through the model at once; recorded, for bfloat16 results depend on it a little."""
    return batch or max(1, TOKENS_PER_BATCH // window)


class Calibration:
    """What one pass of the unpruned model over a text left behind.

    Attributes:
        loaded: the model.
        splits: the calibration and the held-out windows, by name.
        similarity: of all pairs of states, on the calibration windows.
        gaps: statistics of gaps by name, on the calibration windows.
        stores: kept states, by split.
        ranges: the recoverability map, once it is drawn (:mod:`ghosted.drawn_map`).
        batch: windows per forward pass.
    """

    def __init__(
        self, loaded: LoadedModel, splits: dict[str, Windows], batch: int, store_bytes: int = DEFAULT_BYTES
    ) -> None:
        self.loaded, self.splits, self.batch = loaded, splits, batch
        self.similarity: Similarity | None = None
        self.gaps: dict[str, GapStatistics] = {}
        self.ranges: RecoverabilityMap | None = None
        self.family: Family = find_family(loaded.model)
        token = bytes_per_token(loaded.blocks, loaded.width, next(loaded.model.parameters()).element_size())
        held = splits["held_out"].tokens * token
        self.keeps_held_out = held <= store_bytes // 2
        self.stores = {
            "held_out": StateStore(held if self.keeps_held_out else 0),
            "calibration": StateStore(store_bytes - held if self.keeps_held_out else store_bytes),
        }
        if distributed.size() > 1:  # each process sees its share of the windows only
            self.stores["calibration"] = StateStore(0)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides every number computed from this: model, dtype, device, batch and the two slices of text."""
        loaded, slices = self.loaded, (self.splits["calibration"], self.splits["held_out"])
        return (loaded.fingerprint, loaded.dtype, loaded.device, self.batch, *(each.identity for each in slices))

    def new_statistics(self, gap: range, needs: frozenset[str]) -> GapStatistics:
        """Return empty statistics for a gap."""
        reason = None
        try:
            check_feed_forward(gap, self.family)
        except NotDefined as why:
            reason = str(why)
        return GapStatistics(
            gap, self.loaded.width, needs, no_feed_forward=reason,
            merges=self.family.merge_into is not None, hidden=self._hidden_channels(gap),
            eps=norm_eps(self.loaded.model, gap.stop), device=self.loaded.device,
        )

    def _hidden_channels(self, gap: range) -> int:
        try:
            channels = hidden_channels(self.loaded.model, gap, self.family)
        except NotDefined:
            return 0
        return channels if self.loaded.width + channels <= WIDEST else 0

    def knows(self, gaps: Sequence[range], needs: frozenset[str]) -> bool:
        """Return whether the statistics of all these gaps are at hand."""
        known = [self.gaps.get(gap_name(gap)) for gap in gaps]
        return all(s is not None and needs <= s.needs for s in known)

    def statistics(
        self, gap: range, needs: frozenset[str], *, exact: bool = True, cancel: CancelFlag | None = None
    ) -> Steps[GapStatistics]:
        """Return a gap's statistics, from the pass itself, else from the store, else from a second pass.

        Args:
            gap: the removed blocks.
            needs: names of the statistics.
            exact: when the store holds only a part of the calibration windows, run the model again; otherwise that
                part is used, and ``tokens`` of the result says how many tokens it was.
            cancel: checked between batches.
        """
        if self.knows((gap,), needs):
            return self.gaps[gap_name(gap)]
        earlier = self.gaps.get(gap_name(gap))
        statistics = self.new_statistics(gap, needs | earlier.needs if earlier else needs)
        if not needs:
            self.gaps[gap_name(gap)] = statistics
            return statistics
        stage = Stage(f"reading blocks {gap_name(gap)}", len(self.splits["calibration"]), cancel)
        use_part = not exact and len(self.stores["calibration"]) > 0
        wants = statistics.wants_feed_forward
        for boundary in self.boundaries("calibration", gap, wants, from_store=use_part, shared=True):
            statistics.add(boundary)
            yield stage.step(len(boundary.pre))
        statistics.add_up()
        self.gaps[gap_name(gap)] = statistics
        return statistics

    def split_statistics(
        self, split: str, gap: range, needs: frozenset[str], cancel: CancelFlag | None = None
    ) -> Steps[GapStatistics]:
        """Return a gap's statistics on another split: ``held_out``, or ``generated`` after :meth:`add_generated`."""
        statistics = self.new_statistics(gap, needs)
        stage = Stage(f"reading {split.replace('_', '-')} text at {gap_name(gap)}", len(self.splits[split]), cancel)
        for boundary in self.boundaries(split, gap, statistics.wants_feed_forward, shared=True):
            statistics.add(boundary)
            yield stage.step(len(boundary.pre))
        statistics.add_up()
        return statistics

    def part(self, windows: int, cancel: CancelFlag | None = None) -> Steps[Calibration]:
        """Return a calibration on the first ``windows`` calibration windows, all of whose states are kept if they fit.

        Kept states are shared with this one; statistics are not.
        """
        splits = self.splits | {"calibration": self.splits["calibration"].first(windows)}
        part = Calibration(self.loaded, splits, self.batch)
        part.similarity, part.stores = self.similarity, dict(self.stores)
        if len(self.stores["calibration"]) >= windows:
            part.stores["calibration"] = self.stores["calibration"].first(windows)
            return part
        part.stores["calibration"] = StateStore(DEFAULT_BYTES)
        stage = Stage("reading a part of the text", windows, cancel)
        for ids, states in self.states("calibration", windows):
            part.stores["calibration"].add(states)
            yield stage.step(len(ids))
        part.splits["calibration"] = splits["calibration"].first(len(part.stores["calibration"]) or windows)
        return part

    def add_generated(self, tokens: int, seed: int = 0, cancel: CancelFlag | None = None) -> Steps[None]:
        """Add the split ``generated``: text that the model writes itself (once; it is kept in the cache).

        Args:
            tokens: how many, cut into windows like the calibration text.
            seed: of the text.
            cancel: checked between tokens.
        """
        from ghosted.texts import generated, windows

        if "generated" in self.splits:
            return
        text = yield from generated.read(model=self.loaded, seed=seed, tokens_needed=tokens, cancel=cancel)
        self.splits["generated"] = windows.pack(
            text.ids, start=0, tokens=tokens, window=self.splits["calibration"].window, bos_id=self.loaded.bos_id,
            text=text.name, digest=text.digest,
        )
        self.stores["generated"] = StateStore(0)

    def complete(self, split: str) -> bool:
        """Return whether the store holds every window of a split."""
        return len(self.stores[split]) == len(self.splits[split])

    def boundaries(
        self, split: str, gap: range, feed_forward: bool, *, from_store: bool = False, shared: bool = False
    ) -> Iterator[Boundary]:
        """Yield the states at a gap's boundaries, batch by batch: of the windows that are kept, then anew of the rest.

        Args:
            split: ``calibration``, ``held_out`` or ``generated``.
            gap: the removed blocks.
            feed_forward: also give what the branch before the gap adds.
            from_store: give only what the store holds.
            shared: give this process's share only, where several do the run; the caller adds up.
        """
        found = self._stored_boundaries(split, gap, feed_forward)
        yield from (boundary for _, boundary in distributed.mine(found)) if shared else found
        if not from_store and not self.complete(split):
            yield from self._fresh_boundaries(split, gap, feed_forward, shared)

    def states(self, split: str, windows: int | None = None) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Yield ids ``(b, t)`` and the L + 1 states ``(b, t, C)`` of a split, batch by batch.

        They come from the store, one window at a time, where it holds what is asked for; else the model runs again.

        Args:
            split: ``calibration`` or ``held_out``.
            windows: only the first so many; all by default.
        """
        wanted = self.splits[split] if windows is None else self.splits[split].first(windows)
        if len(self.stores[split]) >= len(wanted):
            everything = range(self.loaded.blocks + 1)
            for row, states in zip(wanted.rows, self.stores[split].windows(*everything), strict=False):
                yield row[None].to(self.loaded.device), [s.to(self.loaded.device) for s in states]
            return
        view = pruned_view(self.loaded.model, RemovedBlocks())
        with recording(view) as recorder:
            for ids in wanted.batches(self.batch):
                ids = ids.to(self.loaded.device)
                hidden_forward(view, ids)
                yield ids, list(recorder.states)
                recorder.clear()

    def _stored_boundaries(self, split: str, gap: range, feed_forward: bool) -> Iterator[Boundary]:
        before = gap.start - 1 if feed_forward else gap.start
        block = BlockRunner(self.loaded.model, before) if feed_forward else None
        for entering, pre, post in self.stores[split].windows(before, gap.start, gap.stop):
            branch, hidden = block(entering)[1:] if block else (None, None)
            yield Boundary(pre.to(self.loaded.device), post.to(self.loaded.device), branch, hidden)

    def _fresh_boundaries(self, split: str, gap: range, feed_forward: bool, shared: bool) -> Iterator[Boundary]:
        unused = RemovedBlocks.of(range(gap.stop, self.loaded.blocks))
        view = pruned_view(self.loaded.model, unused)
        windows = self.splits[split]
        left = replace(windows, rows=windows.rows[len(self.stores[split]) :])
        branches = (gap.start - 1,) if feed_forward else ()
        with recording(view, feed_forward_of=branches) as recorder:
            batches = left.batches(self.batch)
            for ids in (ids for _, ids in distributed.mine(batches)) if shared else batches:
                hidden_forward(view, ids.to(self.loaded.device))
                branch, hidden = (found.get(gap.start - 1) for found in (recorder.feed_forward, recorder.hidden))
                yield Boundary(recorder.states[gap.start], recorder.states[gap.stop], branch, hidden)
                recorder.clear()


def calibrate(
    loaded: LoadedModel,
    windows: Windows,
    held_out: Windows,
    gaps: Sequence[range] = (),
    needs: frozenset[str] = frozenset(),
    *,
    batch: int | None = None,
    store_bytes: int = DEFAULT_BYTES,
    cancel: CancelFlag | None = None,
    watch: Callable[[list[Tensor]], None] | None = None,
) -> Steps[Calibration]:
    """Run the unpruned model once over the calibration windows (and the held-out ones, where their states fit).

    Args:
        loaded: the model; it is not touched, all hooks live on a view of it.
        windows: calibration windows.
        held_out: held-out windows.
        gaps: gaps whose moments are streamed, whatever the number of tokens.
        needs: names of the statistics, see :mod:`ghosted.calibration.statistics`.
        batch: windows per forward pass; by default about 1,024 tokens.
        store_bytes: bound on the kept states.
        cancel: checked between batches.
        watch: is handed the L + 1 states ``(b, t, C)`` of each calibration batch, for sums of its own.

    Yields:
        :class:`~ghosted.progress.Progress`.

    Returns:
        The :class:`Calibration`.

    Raises:
        ModelError: a state is not a finite number in this dtype.
        Cancelled: ``cancel`` was set.
    """
    size = windows_per_batch(batch, windows.window)
    result = Calibration(loaded, {"calibration": windows, "held_out": held_out}, size, store_bytes)
    sums = SimilaritySums(loaded.blocks + 1, loaded.width, windows.window, loaded.device)
    statistics = [result.new_statistics(gap, needs) for gap in gaps] if needs else []
    branches = {s.gap.start - 1 for s in statistics if s.wants_feed_forward}
    view = pruned_view(loaded.model, RemovedBlocks())
    # Statistics are read inside the with block only; the recorder's tensors die with the next forward pass.
    with recording(view, feed_forward_of=branches) as recorder:
        yield from _pass(result, "calibration", view, recorder, (sums, statistics, watch), cancel)
        if watch is None:
            distributed.add_up(sums.reduced())
            for each in statistics:
                each.add_up()
        if result.keeps_held_out:
            yield from _pass(result, "held_out", view, recorder, None, cancel)
    result.similarity = sums.result()
    result.gaps = {gap_name(s.gap): s for s in statistics}
    return result


def _pass(result, split, view, recorder, sums, cancel) -> Iterator[Progress]:
    windows, store = result.splits[split], result.stores[split]
    stage = Stage("calibrating" if split == "calibration" else "reading held-out text", len(windows), cancel)
    batches = list(windows.batches(result.batch))
    shared, finite = sums is not None and sums[-1] is None, True
    for place, ids in distributed.mine(batches) if shared else enumerate(batches):
        hidden_forward(view, ids.to(result.loaded.device))
        states = recorder.states
        finite = torch.isfinite(states[-1]).all() & finite
        if place == 0 and not finite:  # asked once and at the end: an answer has to wait for the device
            raise not_finite("states", result.loaded.dtype)
        if sums is not None:
            similarity, gaps, watch = sums
            similarity.add(states, place * result.batch)
            if watch is not None:
                watch(states)
            for gap in gaps:
                before = gap.gap.start - 1
                branch, hidden = recorder.feed_forward.get(before), recorder.hidden.get(before)
                gap.add(Boundary(states[gap.gap.start], states[gap.gap.stop], branch, hidden))
        store.add(states)
        recorder.clear()
        states = branch = hidden = None  # or the next pass would run beside this one's states
        yield stage.step(len(ids))
    if not finite:
        raise not_finite("states", result.loaded.dtype)
