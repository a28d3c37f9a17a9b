"""What are a gap's statistics and errors, from states at hand, soon enough to follow a hand that moves the gap?

The numbers are those of :class:`~ghosted.calibration.statistics.GapStatistics` and
:func:`~ghosted.scores.residual.boundary_residuals`; three things make them fast:

* What does not know the other end is kept: G and its eigendecomposition per start, mean magnitudes per state.
* Products take several windows at once. Sums over chunks are float64.
* Where the states are bfloat16, the machine is fast in it *and nobody else computes*, products read their operands as
  bfloat16: x is one; what is rounded off M and Δ is added in a second product, of the few large rows where that is
  enough; what is weighted is rounded to 8 bits. On six gaps of the default model that moves a residual of the default
  methods by less than 1e-3 of itself (``normalised``, whose features are rounded, too: 2e-3).
  (The switch is one for the whole process: hence the lock, which is never waited for.)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ghosted.calibration.statistics import (
    BASES,
    MOMENTS,
    Boundary,
    GapStatistics,
    magnitude,
    magnitude_ratio,
)
from ghosted.hadamard import rotation
from ghosted.products import are_faster, bfloat16_products
from ghosted.pruned import OF_THE_BRANCH
from ghosted.scores.residual import Ratios
from ghosted.solve import Spectrum

if TYPE_CHECKING:
    from ghosted.calibration import Calibration
    from ghosted.operators import Fitted
    from ghosted.progress import CancelFlag

LARGE = 8.0
"""Of a token's norm beside the median: what is rounded off such a row could be seen, for it owns the sums."""

VISIBLE = 5e-4
"""Change of an ordinary token's error, beside which what is rounded off M is not left out."""

CHUNK = 2048  # tokens per product: large enough to be fast, small enough for the processor's cache
RECENT_BYTES = 2**28
"""Bound on all that is kept beside the states."""


class KeptStates:
    """Statistics of any gap from the states that a calibration kept. Nothing of the calibration is changed.

    Args:
        calibration: its stores hold the states.
        lock: held by whoever computes elsewhere in this process; without one, products are always float32.
        limit_bytes: bound on what is kept for the next gap; the newest thing is always kept.

    Attributes:
        recent: what was computed last; its users keep more in it.
    """

    def __init__(
        self, calibration: Calibration, lock: threading.Lock | None = None, limit_bytes: int = RECENT_BYTES
    ) -> None:
        self.calibration, self.recent = calibration, Recent(limit_bytes)
        self._lock, self._dtype = lock, next(calibration.loaded.model.parameters()).dtype
        self._magnitudes: dict[tuple[str, int], dict[str, Tensor]] = {}
        self._Q: Tensor | None = None

    def windows(self, split: str) -> int:
        """Return how many windows of a split are kept."""
        return len(self.calibration.stores[split])

    @torch.inference_mode()
    def statistics(
        self, split: str, gap: range, needs: frozenset[str], cancel: CancelFlag | None = None
    ) -> GapStatistics:
        """Return a gap's statistics on the kept windows of a split.

        Raises:
            Cancelled: ``cancel`` was set.
        """
        key = ("statistics", split, gap)
        known: GapStatistics | None = self.recent.get(key)
        if known is not None and needs <= known.needs:
            return known
        found = self.calibration.new_statistics(gap, needs | known.needs if known else needs)
        if not needs:
            return found
        found.spectra = dict(known.spectra) if known else {}
        sums, kinds = dict(known.sums) if known else {}, [k for k in MOMENTS if f"{k}.G" in found.sums]
        kinds = [k for k in kinds if f"{k}.B" not in sums]
        grams = {k: self._gram(split, found, k) for k in kinds}
        for kind, gram in grams.items():
            if gram is not None:
                sums[f"{kind}.G"], found.spectra[kind] = gram
        added = {name: total for name, total in found.sums.items() if name not in sums}
        ratios = [state for state in (gap.start, gap.stop) if "ratios" in found.needs]
        unread = [state for state in ratios if (split, state) not in self._magnitudes]
        magnitudes = {state: {basis: [] for basis in BASES} for state in unread}
        branch = any(MOMENTS[kind][0] in OF_THE_BRANCH for kind in kinds)
        for boundary, lengths in self._chunks(split, gap, branch, cancel):
            found.tokens, found.sequences = found.tokens + sum(lengths), found.sequences + len(lengths)
            with self._products(branch) as fast:
                self._add(added, kinds, found.eps, boundary, fast)
                for state in unread:
                    states = boundary.pre if state == gap.start else boundary.post
                    self._add_magnitudes(magnitudes[state], states, lengths)
        for state in unread:
            self._magnitudes[split, state] = {b: torch.stack(rows) for b, rows in magnitudes[state].items()}
        for basis in BASES if ratios else ():
            before, after = (self._magnitudes[split, state][basis] for state in ratios)
            sums[f"ratios.{basis}"] = magnitude_ratio(before, after).sum(0)
        found.sums |= sums
        self.recent.put(key, found, 2 * sum(total.nbytes for total in found.sums.values()))
        return found

    def keep_spectra(self, split: str, statistics: GapStatistics) -> None:
        """Keep what of a gap's eigendecompositions serves every gap of the same start."""
        for kind, spectrum in statistics.spectra.items() if statistics.spectra else ():
            if self._serves_others(kind):
                G = statistics.moments(kind).G
                key = _start(split, kind, statistics.gap.start, statistics.eps)
                self.recent.put(key, (G, spectrum), 2 * G.nbytes)

    @torch.inference_mode()
    def read(self, state: int, needs: frozenset[str], cancel: CancelFlag | None = None) -> None:
        """Compute ahead what every gap that starts or ends at a state will need of it on calibration windows.

        Raises:
            Cancelled: ``cancel`` was set.
        """
        key, width = _start("calibration", "state", state, 0.0), self.calibration.loaded.width
        wants_gram = "state" in needs and state < self.calibration.loaded.blocks and self.recent.get(key) is None
        wants_magnitudes = "ratios" in needs and ("calibration", state) not in self._magnitudes
        if not wants_gram and not wants_magnitudes:
            return
        G = torch.zeros(width, width, dtype=torch.float64, device=self.calibration.loaded.device)
        magnitudes: dict[str, list[Tensor]] = {basis: [] for basis in BASES}
        for boundary, lengths in self._chunks("calibration", range(state, state), False, cancel):
            with self._products(branch=False):
                if wants_gram:
                    G += boundary.pre.mT @ boundary.pre
                if wants_magnitudes:
                    self._add_magnitudes(magnitudes, boundary.pre, lengths)
        if wants_gram:
            self.recent.put(key, (G, Spectrum(G)), 2 * G.nbytes)
        if wants_magnitudes:
            self._magnitudes["calibration", state] = {b: torch.stack(rows) for b, rows in magnitudes.items()}

    @torch.inference_mode()
    def errors(
        self, gap: range, fitted: Mapping[str, Fitted], eps: float, cancel: CancelFlag | None = None
    ) -> dict[str, Ratios]:
        """Return the squared errors of several repairs of one gap on the kept held-out windows, by method.

        Args:
            gap: the removed blocks.
            fitted: repairs by method name.
            eps: of the feature ``normalised``.
            cancel: checked between chunks.
        """
        found = {name: Ratios() for name in fitted}
        repairs = {name: _Repair(f.M.float()) for name, f in fitted.items() if f.M is not None}
        branch = any(f.feature in OF_THE_BRANCH for f in fitted.values())
        for boundary, _ in self._chunks("held_out", gap, branch, cancel):
            delta = boundary.post - boundary.pre
            yardstick = _squares(delta)
            features = {f: boundary.features(f, eps) for f in {fitted[name].feature for name in repairs}}
            with self._products(branch) as fast:
                rows = {f: _large(phi) if fast else None for f, phi in features.items()}
                for name, fit in fitted.items():
                    error = yardstick
                    if name in repairs:
                        error = repairs[name].left(delta, features[fit.feature], rows[fit.feature])
                    found[name].add(error, yardstick)
        return found

    def _gram(self, split: str, statistics: GapStatistics, kind: str) -> Any:
        if not self._serves_others(kind):
            return None
        return self.recent.get(_start(split, kind, statistics.gap.start, statistics.eps))

    @staticmethod
    def _serves_others(kind: str) -> bool:
        feature, weighted = MOMENTS[kind]
        return not weighted and feature not in OF_THE_BRANCH

    def _chunks(
        self, split: str, gap: range, branch: bool, cancel: CancelFlag | None
    ) -> Iterator[tuple[Boundary, list[int]]]:
        """Yield boundaries ``(tokens, C)`` float32 of several windows, with the windows' lengths."""
        boundaries = self.calibration.boundaries(split, gap, branch, from_store=True)
        waiting: list[Boundary] = []
        left = self.windows(split)
        for boundary in boundaries:
            if cancel is not None:
                cancel.check()
            waiting.append(boundary)
            left -= 1
            if sum(b.pre.shape[1] for b in waiting) >= CHUNK or not left:
                yield _joined(waiting), [b.pre.shape[1] for b in waiting]
                waiting = []

    @contextmanager
    def _products(self, branch: bool) -> Iterator[bool]:
        """Make products fast while nobody else computes, and tell whether they are; those of a branch never are."""
        if branch or self._lock is None or not are_faster(self._dtype) or not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            with bfloat16_products():
                yield True
        finally:
            self._lock.release()

    @staticmethod
    def _add(sums: dict[str, Tensor], kinds: list[str], eps: float, boundary: Boundary, fast: bool) -> None:
        delta = boundary.post - boundary.pre
        if "delta" in sums:
            sums["delta"] += _squares(delta).sum()
        rows = _large(delta) if fast else None
        features = {f: boundary.features(f, eps) for f in {MOMENTS[kind][0] for kind in kinds}}
        weight = weighted_delta = None
        for kind in kinds:
            feature, weighted = MOMENTS[kind]
            phi, target = features[feature], delta
            if weighted:
                if weight is None:
                    norm = torch.linalg.vector_norm(boundary.post, dim=-1, keepdim=True)
                    weight = norm.clamp(min=1e-12).reciprocal()
                    weighted_delta = delta * weight
                phi, target = phi * weight, weighted_delta
            if f"{kind}.G" in sums:
                sums[f"{kind}.G"] += phi.mT @ phi
            sums[f"{kind}.B"] += phi.mT @ target
            if fast:
                sums[f"{kind}.B"] += phi[rows].mT @ _rounded_off(target[rows])

    def _add_magnitudes(self, into: dict[str, list[Tensor]], states: Tensor, lengths: list[int]) -> None:
        if self._Q is None:
            self._Q = torch.from_numpy(rotation(states.shape[1])[0]).to(device=states.device, dtype=torch.float32)
        for basis, seen in (("identity", states), ("rotated", states @ self._Q)):
            into[basis] += [magnitude(window) for window in seen.split(lengths)]


def _start(split: str, kind: str, state: int, eps: float) -> tuple[Any, ...]:
    return ("start", split, kind, state, eps if MOMENTS[kind][0] == "normalised" else 0.0)


class Recent:
    """The things of last use whose sizes stay within a bound; the newest is always kept.

    Args:
        limit_bytes: the bound.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._kept: OrderedDict[Any, tuple[Any, int]] = OrderedDict()

    def get(self, key: Any) -> Any:
        """Return what is kept under ``key``, or ``None``."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Any, value: Any, size: int) -> None:
        """Keep ``value`` of ``size`` bytes, in place of what was kept under ``key``."""
        self._bytes += size - self._kept.pop(key, (None, 0))[1]
        self._kept[key] = value, size
        while self._bytes > self._limit and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1][1]


def _joined(several: list[Boundary]) -> Boundary:
    """Return boundaries as one, float32, in one pass over the memory."""
    def together(parts: list[Tensor | None]) -> Tensor | None:
        if parts[0] is None:
            return None
        rows = [part.flatten(0, 1) for part in parts]
        joined = rows[0].new_empty(sum(map(len, rows)), rows[0].shape[1], dtype=torch.float32)
        for place, part in zip(joined.split([len(part) for part in rows]), rows, strict=True):
            place.copy_(part)
        return joined

    return Boundary(*(together([getattr(b, name) for b in several])
                      for name in ("pre", "post", "feed_forward", "hidden")))  # fmt: skip


def _squares(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=-1).double().square()


def _diagonal(M: Tensor) -> Tensor:
    """Return the diagonal ``(C,)`` of a matrix that has nothing beside it, else the matrix."""
    diagonal = M.diagonal()
    return diagonal if int(M.count_nonzero()) == int(diagonal.count_nonzero()) else M


class _Repair:
    """A repair that is applied to one chunk after the other, products fast or not."""

    def __init__(self, M: Tensor) -> None:
        self._M, self._low = _diagonal(M), None
        self._everywhere = True  # whether what is rounded off M can be seen in ordinary rows; known after the first

    def left(self, delta: Tensor, phi: Tensor, rows: Tensor | None) -> Tensor:
        """Return ‖φM − Δ‖² of each token; ``rows`` are those of large φ where products are fast."""
        if self._M.dim() == 1:
            return _squares(phi * self._M - delta)
        left = torch.addmm(delta, phi, self._M, beta=-1)
        if rows is None:
            return _squares(left)
        if self._low is None:
            self._low = _rounded_off(self._M)
        if not self._everywhere:
            return _squares(left.index_add_(0, rows, phi[rows] @ self._low) if len(rows) else left)
        rough, exact = _squares(left), _squares(left.addmm_(phi, self._low))
        self._everywhere = not bool(((rough / exact).sqrt() - 1).abs().nanmedian() < VISIBLE)
        return exact


def _large(rows: Tensor) -> Tensor:
    """Return the numbers of the rows whose norm is far above the median."""
    norms = torch.linalg.vector_norm(rows, dim=-1)
    return (norms > LARGE * norms.median()).nonzero().flatten()


def _rounded_off(values: Tensor) -> Tensor:
    """Return what a bfloat16 product does not read of its operand."""
    return values - values.bfloat16().float()
