"""Which blocks could one linear map stand in for? The error left after the repair, for every range of blocks at once.

For each pair of states i < j (removed blocks i … j-1) this is the median over held-out tokens of
‖x̂ - x_post‖/‖Δ‖ for x̂ = x_pre + x_pre M, with M the least-squares operator of ``ghosted`` (no token weights, the
paper's; λ = 1e-6 · mean(diag G)). Without weights a range that removes the block which writes a sink token shows it:
there the median passes 1. L blocks have L(L+1)/2 ranges, and solving each would cost more than the forward pass.
Three things make it cheap:

* One factorisation per start. G = X_iᵀX_i does not know the end, and M is linear in Δ, so with D_b = X_{b+1} - X_b the
  solution for blocks i … j-1 is the sum over those b of G⁻¹ X_iᵀD_b.
* A sketch of the targets. Only norms of errors are wanted, so Δ is read through K orthonormal columns Ω instead of C:
  some leading principal directions of what blocks add, which are read exactly (a sink token's error lies in one single
  direction, where chance columns would be off by 1/√(2K)), and chance directions of the rest, scaled up, whose squared
  norms are right on average (Johnson and Lindenstrauss, 1984). With K = C nothing is approximate.
* Products in bfloat16 where the states are bfloat16 and the machine is fast in it: X_i is then exact, sums are float32,
  and only D_b is rounded. Sums over chunks, and the solves, are float64.

Cost for N fitted and H held-out tokens: 2 N L C² + (N + H) L² C K operations; memory O(L C² + L² C K), whatever N.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ghosted import machine
from ghosted.errors import ResourceError, TextError
from ghosted.products import products
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.results import RecoverabilityMap
from ghosted.solve import Spectrum

if TYPE_CHECKING:
    from ghosted.calibration import Calibration

COLUMNS, LEADING = 48, 16
RIDGE = 1e-6
CHUNK = 4096  # tokens per product: long sums in one product, and a chunk of all states is still small
HELD_OUT_TOKENS = 8192  # at most: a median over more moves by less than the sketch does
PILOT_TOKENS = 2048  # tokens whose deltas give the leading directions


def recoverability_map(
    calibration: Calibration, sums: RangeSums | None = None, *, windows: int | None = None, columns: int = COLUMNS,
    seed: int = 0, cancel: CancelFlag | None = None,
) -> Steps[RecoverabilityMap]:
    """Return the map of all ranges of blocks.

    Args:
        calibration: gives the states, from its store where that is complete, else by running the model again.
        sums: already filled on the calibration windows, such as during the calibrating pass itself.
        windows: fit on the first so many calibration windows only; all by default.
        columns: K, the width of the sketch; at most C.
        seed: of the sketch.
        cancel: checked between batches and between starts.

    Yields:
        :class:`~ghosted.progress.Progress`.

    Returns:
        The :class:`~ghosted.results.RecoverabilityMap`; ``seconds`` is the time spent here and in ``sums``.

    Raises:
        ResourceError: its sums do not fit the free memory.
        TextError: there is no held-out text.
        Cancelled: ``cancel`` was set.
    """
    start, loaded = time.perf_counter(), calibration.loaded
    if not len(calibration.splits["held_out"]):
        raise TextError("The recoverability map measures errors on held-out text; give it a text that is long enough.")
    if sums is None:
        sums = RangeSums(loaded.blocks, loaded.width, columns=columns, seed=seed, device=loaded.device)
        wanted = len(calibration.splits["calibration"].first(windows))
        stage = Stage("reading all ranges", wanted, cancel)
        for ids, states in calibration.states("calibration", wanted):
            sums.add(states)
            yield stage.step(len(ids))
        spent = 0.0
    else:
        spent = sums.seconds
    stage, operators = Stage("solving all ranges", loaded.blocks, cancel), []
    for i in range(loaded.blocks):
        operators.append(sums.operators(i))
        yield stage.step()
    held_out = calibration.splits["held_out"]
    several = max(1, HELD_OUT_TOKENS // held_out.window)
    stage = Stage("held-out error of all ranges", min(several, len(held_out)), cancel)
    found = []
    for ids, states in calibration.states("held_out", several):
        for row in range(len(ids)):
            found.append(_errors([s[row] for s in states], sums.sketch, operators))
        yield stage.step(len(ids))
    error, change, post = (torch.cat(parts).mT.cpu().contiguous().numpy() for parts in zip(*found, strict=True))
    first, last = np.triu_indices(loaded.blocks + 1, k=1)
    return RecoverabilityMap(
        starts=first, ends=last - 1, cosine=calibration.similarity.cosine[first, last],
        before=_medians(change, post), after=_medians(error, change), left=_medians(error, post),
        tokens=sums.tokens, held_out_tokens=error.shape[1], seconds=spent + time.perf_counter() - start,
    )


class RangeSums:
    """The additive moments of all ranges: for each start i, G = X_iᵀX_i and X_iᵀD_bΩ of every block b ≥ i.

    Args:
        blocks: L.
        width: C.
        columns: K, at most C.
        seed: of the sketch.
        device: where the sums live.

    Attributes:
        tokens: how many were added.
        sketch: Ω, drawn once the first tokens are seen.
        seconds: spent in :meth:`add`.

    Raises:
        ResourceError: the sums do not fit the free memory.
    """

    def __init__(
        self, blocks: int, width: int, *, columns: int = COLUMNS, seed: int = 0, device: str = "cpu"
    ) -> None:
        self.blocks, self.width, self.columns = blocks, width, min(columns, width)
        self._seed, self.sketch, self.tokens, self.seconds = seed, None, 0, 0.0
        need, free = memory_bytes(blocks, width, self.columns), machine.available_memory(device)
        if need > free:
            raise ResourceError(
                f"The recoverability map of this model needs about {need / 1e9:.3g} GB and {free / 1e9:.3g} GB are "
                "free; take the criterion cosine, or a smaller model."
            )
        self._sums = [
            torch.zeros(width + self.columns * (blocks - i), width, dtype=torch.float64, device=device)
            for i in range(blocks)
        ]
        self._waiting: list[list[Tensor]] = []

    def add(self, states: list[Tensor]) -> None:
        """Add a batch: ``states`` is the list of L + 1 tensors ``(b, t, C)``.

        Batches are gathered into chunks, so the tensors must outlive this call unchanged until the next few calls.
        """
        start = time.perf_counter()
        self._waiting.append([s.flatten(0, 1) for s in states])
        if sum(len(batch[0]) for batch in self._waiting) >= CHUNK:
            self._flush()
        self.seconds += time.perf_counter() - start

    @torch.inference_mode()
    def _flush(self) -> None:
        batches, self._waiting = self._waiting, []
        if not batches:
            return
        if self.sketch is None:
            pilot = [torch.cat(parts)[:PILOT_TOKENS] for parts in zip(*batches, strict=True)]
            self.sketch = draw_sketch(pilot, self.columns, self._seed)
        C, K = self.width, self.columns
        ends = np.cumsum([len(batch[0]) for batch in batches])
        rows = [slice(end - len(batch[0]), end) for end, batch in zip(ends, batches, strict=True)]
        # Columns: room for X_i, then D_0Ω … D_{L-1}Ω. X_i takes the place before D_iΩ, where no later start looks.
        chunk = torch.empty(int(ends[-1]), C + K * self.blocks, device=batches[0][0].device)
        with products(batches[0][0].dtype):
            for batch, place in zip(batches, rows, strict=True):
                before = batch[0].float() @ self.sketch.columns
                for b in range(self.blocks):
                    after = batch[b + 1].float() @ self.sketch.columns
                    torch.sub(after, before, out=chunk[place, C + K * b : C + K * (b + 1)])
                    before = after
            for i, sums in enumerate(self._sums):
                here = chunk[:, K * i :]
                for batch, place in zip(batches, rows, strict=True):
                    here[place, :C].copy_(batch[i])
                sums += here.mT @ here[:, :C]
        self.tokens += len(chunk)

    def operators(self, i: int) -> Tensor:
        """Return ``(C, K (L - i))`` float32: M Ω of the ranges that start at ``i``, the shortest first."""
        start = time.perf_counter()
        self._flush()
        self.seconds += time.perf_counter() - start
        G, B = self._sums[i][: self.width], self._sums[i][self.width :].mT
        ridge = RIDGE * G.diagonal().mean()
        factor, failed = torch.linalg.cholesky_ex(G + ridge * torch.eye(self.width).to(G))
        each = Spectrum(G).solve(B, RIDGE).M if failed or ridge <= 0 else torch.cholesky_solve(B, factor)
        return each.unflatten(1, (-1, self.columns)).cumsum(1).flatten(1).float()


def memory_bytes(blocks: int, width: int, columns: int = COLUMNS) -> int:
    """Return what the sums, and one chunk of states and products, take."""
    sums = 8 * width * (blocks * width + columns * blocks * (blocks + 1) // 2)
    chunk = 4 * CHUNK * (2 * (blocks + 1) * width + columns * blocks)
    return sums + chunk + sums // 2  # the operators in float32


@dataclass(frozen=True, eq=False)
class Sketch:
    """Ω: ``columns`` ``(C, K)`` float32, of which the first ``leading`` are principal directions, the others chance."""

    columns: Tensor
    leading: int


def draw_sketch(states: list[Tensor], columns: int, seed: int) -> Sketch:
    """Draw Ω: leading principal directions of the blocks' deltas, and scaled chance directions of the rest.

    Args:
        states: L + 1 tensors ``(tokens, C)``, whose deltas decide the leading directions.
        columns: K ≤ C.
        seed: of the chance directions.
    """
    C = states[0].shape[1]
    leading = min(LEADING, columns // 2)
    moment = torch.zeros(C, C, dtype=torch.float64, device=states[0].device)
    for before, after in pairwise(states):
        delta = after.float() - before.float()
        moment += delta.mT @ delta
    U = torch.linalg.eigh(moment).eigenvectors[:, C - leading :]
    chance = torch.randn(C, columns - leading, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    chance = chance.to(U)
    rest, _ = torch.linalg.qr(chance - U @ (U.mT @ chance))
    sketch = torch.cat([U, rest * ((C - leading) / max(columns - leading, 1)) ** 0.5], dim=1).float()
    # Rounded once, to what a bfloat16 product reads; then the product itself rounds nothing.
    return Sketch(sketch.to(states[0].dtype).float(), leading)


@torch.inference_mode()
def _errors(states: list[Tensor], sketch: Sketch, operators: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return ‖x̂ - x_post‖, ‖Δ‖ and ‖x_post‖ of one window, ``(t, ranges)`` float32 each, starts ascending.

    ‖Δ‖ is exact (0 where no removed block changed a token), and so is the error e along the leading directions. What
    the chance directions get wrong of ‖Δ‖² is thereby known, and the part of it that ‖e‖² shares is taken off again: a
    control variate with its best coefficient (e·Δ)²/‖Δ‖⁴, where e·Δ = ‖e‖² as after any least-squares fit.
    """
    K, lead = sketch.columns.shape[1], sketch.leading
    X = torch.stack([s.float() for s in states], dim=1)  # (t, L + 1, C)
    moved = torch.stack([(x != y).any(-1) for x, y in pairwise(states)], dim=1)
    gram = torch.bmm(X, X.mT)
    squared = gram.diagonal(dim1=1, dim2=2)
    error, change, post = [], [], []
    with products(states[0].dtype):
        sketched = X @ sketch.columns
        for i, M in enumerate(operators):
            alive = moved[:, i:].cummax(1).values
            whole = (squared[:, i + 1 :] + squared[:, i : i + 1] - 2 * gram[:, i, i + 1 :]).clamp(min=0) * alive
            delta = sketched[:, i + 1 :] - sketched[:, i : i + 1]
            seen, chance = _squares(delta, lead)
            delta -= (states[i].float() @ M).unflatten(1, (-1, K))
            seen_left, chance_left = _squares(delta, lead)
            scale = whole.clamp(min=1e-30).reciprocal()
            share = (chance_left * scale).mean(0) / (chance * scale).mean(0).clamp(min=1e-30)
            taken_off = share.clamp(max=1).square() * ((whole - seen).clamp(min=0) - chance)
            left = seen_left + chance_left + taken_off
            error.append(left.clamp(min=0).sqrt())
            change.append(whole.sqrt())
            post.append(squared[:, i + 1 :].sqrt())
    return torch.cat(error, 1), torch.cat(change, 1), torch.cat(post, 1)


def _squares(rows: Tensor, leading: int) -> tuple[Tensor, Tensor]:
    """Return the squared norms of ``rows`` ``(…, K)`` over the leading columns and over the others."""
    first, others = rows[..., :leading], rows[..., leading:]
    return torch.linalg.vector_norm(first, dim=-1).square(), torch.linalg.vector_norm(others, dim=-1).square()


def _medians(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return the median over tokens (columns) of part/whole for each row; NaN where no token has a whole."""
    found = np.full(len(part), np.nan)
    for k, seen in enumerate(whole > 0):
        if seen.any():
            found[k] = np.median(part[k, seen] / whole[k, seen])
    return found
