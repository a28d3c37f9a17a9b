"""What must be remembered of a gap's two boundaries? Additive moments: O(C²) memory for any number of tokens.

Names of the statistics (a method's ``NEEDS``): ``state`` (G = X_preᵀX_pre, B = X_preᵀΔ), ``state_weighted`` (the same
with token weights 1/‖x_post‖²), ``feed_forward`` (A in place of X_pre) and ``ratios`` (LinearPatch's channel scales).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ghosted.errors import NotDefined
from ghosted.hadamard import rotation

MOMENTS = ("state", "state_weighted", "feed_forward")
BASES = ("identity", "rotated")


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of features φ against Δ: ``G`` = φᵀφ and ``B`` = φᵀΔ, both ``(C, C)`` float64."""

    G: Tensor
    B: Tensor


@dataclass(frozen=True, eq=False)
class Boundary:
    """A batch of states at a gap's two boundaries, whole windows.

    Attributes:
        pre: ``(b, t, C)`` state entering the first removed block.
        post: ``(b, t, C)`` state leaving the last one.
        feed_forward: ``(b, t, C)`` what the branch before the gap adds, where asked for and defined.
    """

    pre: Tensor
    post: Tensor
    feed_forward: Tensor | None = None


class GapStatistics:
    """The additive statistics of one gap.

    Args:
        gap: the removed blocks, half-open.
        width: C.
        needs: names of the statistics to accumulate.
        no_feed_forward: why the feed-forward branch before this gap has no meaning here, if so.
        merges: whether a linear map on that branch merges exactly into the model's weights.
        device: where the sums live.
    """

    def __init__(
        self, gap: range, width: int, needs: frozenset[str], *, no_feed_forward: str | None = None,
        merges: bool = True, device: str = "cpu",
    ) -> None:
        self.gap, self.width, self.needs = gap, width, needs
        self.no_feed_forward, self.merges = no_feed_forward, merges
        self.tokens = self.sequences = 0
        kinds = [k for k in MOMENTS if k in needs and not (k == "feed_forward" and no_feed_forward)]
        if "state" not in kinds and needs:
            kinds.append("state")  # the residual of every linear method is read off these
        def new(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        self.sums: dict[str, Tensor] = {"delta": new(1)}
        for kind in kinds:
            self.sums[f"{kind}.G"], self.sums[f"{kind}.B"] = new(width, width), new(width, width)
        if "ratios" in needs:
            self.sums |= {f"ratios.{basis}": new(width) for basis in BASES}
            self._Q = torch.from_numpy(rotation(width)[0]).to(device=device, dtype=torch.float32)

    @property
    def wants_feed_forward(self) -> bool:
        """Whether :meth:`add` needs the feed-forward branch."""
        return "feed_forward.G" in self.sums

    def add(self, boundary: Boundary) -> None:
        """Add a batch of whole windows; states are promoted to float32, sums are float64."""
        # One window at a time: sums then do not depend on the batch size, and a sequence is what LinearPatch means.
        for i in range(len(boundary.pre)):
            pre, post = boundary.pre[i].float(), boundary.post[i].float()
            delta = post - pre
            self.tokens, self.sequences = self.tokens + len(pre), self.sequences + 1
            self.sums["delta"] += delta.double().square().sum()
            if "state.G" in self.sums:
                self._add_moments("state", pre, delta)
            if "state_weighted.G" in self.sums:
                weight = post.norm(dim=-1, keepdim=True).clamp(min=1e-12).reciprocal()
                self._add_moments("state_weighted", pre * weight, delta * weight)
            if self.wants_feed_forward:
                self._add_moments("feed_forward", boundary.feed_forward[i].float(), delta)
            if "ratios" in self.needs:
                self._add_ratio("identity", pre, post)
                self._add_ratio("rotated", pre @ self._Q, post @ self._Q)

    def _add_moments(self, kind: str, features: Tensor, delta: Tensor) -> None:
        self.sums[f"{kind}.G"] += features.mT @ features
        self.sums[f"{kind}.B"] += features.mT @ delta

    def _add_ratio(self, basis: str, pre: Tensor, post: Tensor) -> None:
        before, after = pre.abs().mean(0).double(), post.abs().mean(0).double()
        alive = before > 1e-6 * before.mean()
        self.sums[f"ratios.{basis}"] += torch.where(alive, after / before.where(alive, torch.ones_like(before)), 1.0)

    @property
    def delta_squared(self) -> float:
        """‖Δ‖²_F over all tokens."""
        return float(self.sums["delta"])

    def moments(self, kind: str) -> Moments:
        """Return one kind of moments.

        Raises:
            NotDefined: the feed-forward branch has no meaning at this gap.
        """
        if kind == "feed_forward" and self.no_feed_forward:
            raise NotDefined(self.no_feed_forward)
        return Moments(self.sums[f"{kind}.G"], self.sums[f"{kind}.B"])

    def ratios(self, basis: str) -> Tensor:
        """Return LinearPatch's ``(C,)`` scales d: the mean over sequences of the ratio of mean magnitudes."""
        return self.sums[f"ratios.{basis}"] / max(self.sequences, 1)
