"""How alike are the states of all L + 1 boundaries? Every pair's per-token cosine, in one small product per token.

The Gram matrix of a token's L + 1 states holds all their dot products; its diagonal is the squared norms. From it
come the per-token cosine (mean and histogram), the cosine over flattened states, and the norms by position. Of each
window's last token the angle is kept as well.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ghosted.results import Similarity

BINS = 40
GROUPS = 256
CHUNK = 32  # tokens per product: the float32 copy of their states stays in cache-sized memory


class SimilaritySums:
    """Additive sums behind :class:`~ghosted.results.Similarity`.

    Args:
        states: L + 1.
        width: C.
        window: tokens per window (norms are kept by position).
        device: where the sums live.
    """

    def __init__(self, states: int, width: int, window: int, device: str = "cpu") -> None:
        n = states
        self._pairs = torch.triu_indices(n, n, device=device)
        self._cosine = torch.zeros(GROUPS, n, n, dtype=torch.float64, device=device)
        self._group_tokens = torch.zeros(GROUPS, dtype=torch.float64)
        self._angle = torch.zeros(GROUPS, n, n, dtype=torch.float64, device=device)
        self._group_windows = torch.zeros(GROUPS, dtype=torch.float64)
        self._dots = torch.zeros(n, n, dtype=torch.float64, device=device)
        self._histogram = torch.zeros(self._pairs.shape[1] * BINS, dtype=torch.int64, device=device)
        self._offsets = torch.arange(self._pairs.shape[1], device=device) * BINS
        self._norms = torch.zeros(window, n, dtype=torch.float64, device=device)
        self._norm_count = torch.zeros(window, dtype=torch.float64)
        self._buffer = torch.empty(min(CHUNK, window), n, width, dtype=torch.float32, device=device)
        self._windows = 0

    def reduced(self) -> list[Tensor]:
        """Return all sums, to be added up over processes in place."""
        return [self._cosine, self._group_tokens, self._angle, self._group_windows, self._dots, self._histogram,
                self._norms, self._norm_count]  # fmt: skip

    def add(self, states: list[Tensor], place: int | None = None) -> None:
        """Add a batch.

        Args:
            states: L + 1 tensors ``(b, t, C)``.
            place: number of its first window in the text; by default it follows the last batch.
        """
        if place is not None:
            self._windows = place
        rows, length = states[0].shape[:2]
        step = len(self._buffer)
        for row in range(rows):
            group = self._windows % GROUPS
            for start in range(0, length, step):
                part = slice(start, min(start + step, length))
                self._add_chunk([s[row, part] for s in states], group, part)
            self._norm_count[:length] += 1
            self._group_tokens[group] += length
            self._group_windows[group] += 1
            self._angle[group] += _angles(torch.stack([s[row, -1] for s in states]))
            self._windows += 1

    def _add_chunk(self, states: list[Tensor], group: int, part: slice) -> None:
        X = self._buffer[: part.stop - part.start]
        for i, state in enumerate(states):
            X[:, i].copy_(state)
        gram = torch.bmm(X, X.mT)
        norms = gram.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
        self._norms[part] += norms
        self._dots += gram.sum(0, dtype=torch.float64)
        scale = norms.clamp(min=1e-30).reciprocal()
        cosine = gram.mul_(scale[:, :, None]).mul_(scale[:, None, :]).clamp_(-1.0, 1.0)
        self._cosine[group] += cosine.sum(0, dtype=torch.float64)
        upper = cosine[:, self._pairs[0], self._pairs[1]]
        bins = upper.add_(1.0).mul_(BINS / 2).clamp_(0, BINS - 1).nan_to_num_(0).long()
        self._histogram += torch.bincount(bins.add_(self._offsets).flatten(), minlength=len(self._histogram))

    def result(self) -> Similarity:
        """Return the means so far, as numpy arrays."""
        n = len(self._dots)
        used = self._group_tokens > 0
        where = used.to(self._cosine.device)
        by_text = (self._cosine[where].cpu() / self._group_tokens[used][:, None, None]).numpy()
        angle_by_text = (self._angle[where].cpu() / self._group_windows[used][:, None, None]).numpy()
        angle = self._angle.sum(0).cpu().numpy() / float(self._group_windows.sum())
        total = float(self._group_tokens.sum())
        cosine = self._cosine.sum(0).cpu().numpy() / total
        norm = self._dots.diagonal().sqrt()
        flattened = (self._dots / (norm[:, None] * norm).clamp(min=1e-30)).cpu().numpy()
        counts = self._histogram.view(-1, BINS).cpu().numpy()
        histogram = np.zeros((n, n, BINS), dtype=np.int64)
        first, second = self._pairs.cpu().numpy()
        histogram[first, second] = histogram[second, first] = counts
        seen = self._norm_count > 0
        norms = (self._norms[seen.to(self._norms.device)].cpu() / self._norm_count[seen][:, None]).numpy().T
        return Similarity(
            cosine, flattened, histogram, by_text.astype(np.float32), norms, int(total), angle,
            angle_by_text.astype(np.float32),
        )


def _angles(states: Tensor) -> Tensor:
    """Return arccos(cosine)/π of each pair of one token's states ``(L+1, C)``.

    In float64: near 1 an error of the cosine becomes its root in the angle.
    """
    x = states.double()
    unit = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return (unit @ unit.T).clamp_(-1.0, 1.0).acos_() / math.pi
