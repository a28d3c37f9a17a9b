"""What must be remembered of a gap's two boundaries? Additive moments: O(C²) memory for any number of tokens.

Names of the statistics (a method's ``NEEDS``): ``state`` (G = X_preᵀX_pre, B = X_preᵀΔ), ``normalised`` (the same with
x/rms(x) in place of x), ``feed_forward`` (with A in place of x), ``joint`` (with [x − A, h]: h, the F hidden channels
of the feed-forward branch before the gap, is what its last linear map reads), the same as ``…_weighted`` (with token
weights 1/‖x_post‖²; not of A), and ``ratios`` (LinearPatch's channel scales).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ghosted import distributed
from ghosted.errors import NotDefined
from ghosted.hadamard import rotation
from ghosted.pruned import OF_THE_BRANCH, normalised
from ghosted.solve import Spectrum

MOMENTS = {  # name: (feature, weighted)
    "state": ("state", False),
    "state_weighted": ("state", True),
    "normalised": ("normalised", False),
    "normalised_weighted": ("normalised", True),
    "feed_forward": ("feed_forward", False),
    "joint": ("joint", False),
    "joint_weighted": ("joint", True),
}
BASES = ("identity", "rotated")
BAND = 192  # rows of a product at once: small beside the sums at any width, and still fast


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of features φ against Δ: ``G`` = φᵀφ and ``B`` = φᵀΔ, float64; ``(C, C)`` but for ``joint``."""

    G: Tensor
    B: Tensor


@dataclass(frozen=True, eq=False)
class Boundary:
    """A batch of states at a gap's two boundaries, whole windows.

    Attributes:
        pre: ``(b, t, C)`` state entering the first removed block.
        post: ``(b, t, C)`` state leaving the last one.
        feed_forward: ``(b, t, C)`` what the branch before the gap adds, where asked for and defined.
        hidden: ``(b, t, F)`` what that branch's last linear map reads, where asked for and there is one.
    """

    pre: Tensor
    post: Tensor
    feed_forward: Tensor | None = None
    hidden: Tensor | None = None

    def __getitem__(self, row: int) -> Boundary:
        """Return one window of the batch, as a batch of one."""
        one = slice(row, row + 1)
        return Boundary(*(t if t is None else t[one] for t in (self.pre, self.post, self.feed_forward, self.hidden)))

    def features(self, feature: str, eps: float) -> Tensor:
        """Return features ``(b, t, C)`` float32, ``(b, t, C + F)`` for ``joint``; ``eps`` is that of ``normalised``."""
        if feature == "joint":
            return torch.cat([self.pre.float() - self.feed_forward.float(), self.hidden.float()], -1)
        if feature == "feed_forward":
            return self.feed_forward.float()
        pre = self.pre.float()
        return normalised(pre, eps) if feature == "normalised" else pre


class GapStatistics:
    """The additive statistics of one gap.

    Args:
        gap: the removed blocks, half-open.
        width: C.
        needs: names of the statistics to accumulate.
        no_feed_forward: why the feed-forward branch before this gap has no meaning here, if so.
        merges: whether a linear map on that branch merges exactly into the model's weights.
        hidden: F, the hidden channels that the branch's last linear map reads; 0 where there is no such map.
        eps: of the norm that reads the state after the gap; the feature ``normalised`` uses it.
        device: where the sums live.
    """

    def __init__(
        self, gap: range, width: int, needs: frozenset[str], *, no_feed_forward: str | None = None,
        merges: bool = True, hidden: int = 0, eps: float = 1e-6, device: str = "cpu",
    ) -> None:
        self.gap, self.width, self.needs, self.eps = gap, width, needs, eps
        self.no_feed_forward, self.merges = no_feed_forward, merges
        self.hidden = 0 if no_feed_forward else hidden
        self.tokens = self.sequences = 0
        features = {"state", "normalised"} | ({"joint"} if self.hidden else set())
        features |= set() if no_feed_forward else {"feed_forward"}
        wanted = {k for k in MOMENTS if k in needs and MOMENTS[k][0] in features}
        if needs:  # a method's residual is read off the unweighted moments of its feature
            wanted |= {"state"} | {MOMENTS[k][0] for k in wanted}
        self._kinds = tuple(k for k in MOMENTS if k in wanted)
        self.spectra: dict[str, Spectrum] | None = None  # kept only where a dict is put here: each is C × C
        def new(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, device=device)

        self.sums: dict[str, Tensor] = {"delta": new(1)}
        for kind in self._kinds:
            rows = width + self.hidden if MOMENTS[kind][0] == "joint" else width
            self.sums[f"{kind}.G"], self.sums[f"{kind}.B"] = new(rows, rows), new(rows, width)
        if "ratios" in needs:
            self.sums |= {f"ratios.{basis}": new(width) for basis in BASES}
            self._Q = torch.from_numpy(rotation(width)[0]).to(device=device, dtype=torch.float32)

    @property
    def wants_feed_forward(self) -> bool:
        """Whether :meth:`add` needs the feed-forward branch: what it adds, and its hidden channels."""
        return any(MOMENTS[kind][0] in OF_THE_BRANCH for kind in self._kinds)

    def add(self, boundary: Boundary) -> None:
        """Add a batch of whole windows; states are promoted to float32, sums are float64."""
        # One window at a time: sums then do not depend on the batch size, and a sequence is what LinearPatch means.
        for i in range(len(boundary.pre)):
            window = boundary[i]
            pre, post = window.pre[0].float(), window.post[0].float()
            delta = post - pre
            self.tokens, self.sequences = self.tokens + len(pre), self.sequences + 1
            self.sums["delta"] += torch.linalg.vector_norm(delta, dtype=torch.float64).square()
            weight = post.norm(dim=-1, keepdim=True).clamp(min=1e-12).reciprocal()
            features = {name: window.features(name, self.eps)[0] for name in {MOMENTS[k][0] for k in self._kinds}}
            for kind in self._kinds:
                feature, weighted = MOMENTS[kind]
                phi = features[feature]
                self._add_moments(kind, *((phi * weight, delta * weight) if weighted else (phi, delta)))
            if "ratios" in self.needs:
                self._add_ratio("identity", pre, post)
                self._add_ratio("rotated", pre @ self._Q, post @ self._Q)

    def add_up(self) -> None:
        """Replace every sum by that over all processes."""
        self.tokens, self.sequences = map(int, distributed.added_up(self.tokens, self.sequences))
        distributed.add_up(self.sums.values())

    def _add_moments(self, kind: str, features: Tensor, delta: Tensor) -> None:
        # By bands of rows: a float32 product and its float64 copy never exist at their whole size beside the sums.
        for rows in range(0, features.shape[-1], BAND):
            band = slice(rows, rows + BAND)
            left = features[:, band].mT
            self.sums[f"{kind}.G"][band] += left @ features
            self.sums[f"{kind}.B"][band] += left @ delta

    def _add_ratio(self, basis: str, pre: Tensor, post: Tensor) -> None:
        self.sums[f"ratios.{basis}"] += magnitude_ratio(magnitude(pre), magnitude(post))

    @property
    def delta_squared(self) -> float:
        """‖Δ‖²_F over all tokens."""
        return float(self.sums["delta"])

    def moments(self, kind: str) -> Moments:
        """Return one kind of moments.

        Raises:
            NotDefined: the feed-forward branch has no meaning at this gap, or has no last linear map of its own.
        """
        if MOMENTS[kind][0] == "joint" and not self.hidden:
            raise NotDefined(self.no_feed_forward or "The feed-forward branch before this gap has no linear map of its "
                             "own at its end.")  # fmt: skip
        if kind == "feed_forward" and self.no_feed_forward:
            raise NotDefined(self.no_feed_forward)
        return Moments(self.sums[f"{kind}.G"], self.sums[f"{kind}.B"])

    def spectrum(self, kind: str) -> Spectrum:
        """Return the eigendecomposition of one kind's G, made once if ``spectra`` is a dict; raises as `moments`."""
        if self.spectra is None:
            return Spectrum(self.moments(kind).G)
        if kind not in self.spectra:
            self.spectra[kind] = Spectrum(self.moments(kind).G)
        return self.spectra[kind]

    def ratios(self, basis: str) -> Tensor:
        """Return LinearPatch's ``(C,)`` scales d: the mean over sequences of the ratio of mean magnitudes."""
        return self.sums[f"ratios.{basis}"] / max(self.sequences, 1)


def magnitude(states: Tensor) -> Tensor:
    """Return the mean magnitude of each channel over a window's tokens; ``states`` is ``(t, C)``."""
    return states.abs().mean(0).double()


def magnitude_ratio(before: Tensor, after: Tensor) -> Tensor:
    """Return after/before of mean magnitudes ``(…, C)``; a channel that is dead before has the ratio 1."""
    alive = before > 1e-6 * before.mean(-1, keepdim=True)
    return torch.where(alive, after / before.where(alive, torch.ones_like(before)), 1.0)
