"""Where is the error at the boundary? By token, by position in the window, by channel, and by calibration size.

A :class:`Profiler` watches the one pass over the held-out boundaries that :mod:`ghosted.scores.residual` makes anyway.
It keeps C numbers per method and one per token, never a matrix of tokens by channels. Error against calibration size
takes a few more operators through that same pass, fitted on the first windows of the calibration text from kept states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ghosted import operators
from ghosted.calibration import Calibration
from ghosted.operators import Fitted, Settings
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.removed import gap_name
from ghosted.results import BoundaryProfile, MethodProfile, Residual, SizePoint

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

MOST_TOKENS = 512
"""Tokens whose own errors are kept, with their text."""
MOST_BINS = 64
SIZED = "ghosted"
"""The method whose error is measured against calibration size."""
PARTS_OF_TEXT = (16, 8, 4, 2)
"""It is fitted on the first 1/16 … 1/2 of the calibration windows, and on all."""
WIDEST = 2048
"""Widest model for that: each further fit costs an eigendecomposition of order C and a matrix of C² numbers."""
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class Profiler:
    """The sums of one gap's profile.

    Args:
        calibration: gives the held-out windows, the tokenizer, and the kept calibration states.
        gap: the removed blocks.

    Attributes:
        no_sizes: why there is no error against calibration size, one sentence; empty where there is.
    """

    def __init__(self, calibration: Calibration, gap: range) -> None:
        self._calibration, self._gap = calibration, gap
        self.no_sizes = ""
        self._fits: dict[str, int] = {}  # tokens of the fits on less text, by the name they are measured under
        self._whole: Tensor | None = None  # (C,) ΣΔ²
        self._norms: list[Tensor] = []
        self._channels: dict[str, Tensor] = {}
        self._ratios: dict[str, list[Tensor]] = {}  # by method, (b, t) per batch

    def start(self, post: Tensor, plain: Tensor) -> None:
        """Begin a batch of whole windows.

        Args:
            post: ``(b, t, C)`` states after the gap in the unpruned model.
            plain: ``(b·t, C)`` squares of Δ, float64.
        """
        self._shape, self._yardstick = post.shape[:2], plain.sum(-1)
        whole = plain.sum(0)
        self._whole = whole if self._whole is None else self._whole + whole
        left = MOST_TOKENS - sum(map(len, self._norms))
        if left > 0:
            self._norms.append(post.flatten(0, 1)[:left].float().norm(dim=-1).cpu())

    def add(self, name: str, squared: Tensor, error: Tensor) -> None:
        """Add one method's squared errors ``(b·t, C)`` of the batch, and their sums over channels ``(b·t,)``."""
        if name in self._fits:
            return
        ratio = torch.where(self._yardstick > 0, error / self._yardstick, torch.nan).sqrt()
        self._ratios.setdefault(name, []).append(ratio.float().cpu().reshape(self._shape))
        channels = squared.sum(0)
        self._channels[name] = channels if name not in self._channels else self._channels[name] + channels

    def fits_on_less(
        self, ridge: float, *, whole: bool = False, cancel: CancelFlag | None = None
    ) -> Steps[dict[str, Fitted]]:
        """Fit :data:`SIZED` on the first windows of the calibration text, once through its kept states.

        Args:
            ridge: λ relative to ``mean(diag G)``, the same for all.
            whole: fit it on all windows as well, where the method's own operator is no longer that fit.
            cancel: checked between windows.

        Returns:
            Fits by name, to be measured beside the methods; none where :attr:`no_sizes` says why.
        """
        calibration, gap = self._calibration, self._gap
        windows, width = len(calibration.splits["calibration"]), calibration.loaded.width
        if not (at := sorted({windows // part for part in PARTS_OF_TEXT} - {0})):
            self.no_sizes = "A single calibration window cannot be divided; take more calibration tokens."
        elif width > WIDEST:
            self.no_sizes = f"Not measured for models wider than {WIDEST:,} channels; this one has {width:,}."
        elif not calibration.complete("calibration"):
            self.no_sizes = (
                "Not measured: the calibration text's states are not in memory (there are too many of them, or their "
                "sums were read from disk)."
            )
        if self.no_sizes:
            return {}
        settings, fits = Settings(ridge, cancel=cancel), {}

        def fit(statistics) -> None:
            name = f"{SIZED}: {statistics.tokens} tokens"
            self._fits[name], fits[name] = statistics.tokens, operators.method(SIZED).fit(statistics, settings)

        statistics = calibration.new_statistics(gap, frozenset({"state"}))
        stage = Stage("fitting on less text", at[-1], cancel)
        for number, boundary in enumerate(calibration.boundaries("calibration", gap, False), start=1):
            statistics.add(boundary)
            if number in at:
                fit(statistics)
            yield stage.step()
            if number == at[-1]:
                break
        if whole:
            fit(calibration.gaps[gap_name(gap)])
        return fits

    def result(self, residuals: Mapping[str, Residual]) -> BoundaryProfile | None:
        """Return the profile, with what the fits on less text left; ``None`` where no boundary was seen.

        Args:
            residuals: of the methods and of the fits on less text, by name.
        """
        if self._whole is None:
            return None
        held_out = self._calibration.splits["held_out"]
        starts, bins = position_bins(held_out.window, [len(row) for row in held_out.rows])
        ids = [int(i) for row in held_out.rows for i in row[: MOST_TOKENS]][:MOST_TOKENS]
        whole, tokens = self._whole.cpu(), len(bins)
        methods = {}
        for name, batches in self._ratios.items():
            ratio = torch.cat([batch.flatten() for batch in batches]).numpy()
            channels = torch.where(whole > 0, self._channels[name].cpu() / whole, torch.nan).sqrt().float().numpy()
            methods[name] = MethodProfile(ratio[:MOST_TOKENS].copy(), channels, _medians(ratio, bins, len(starts)))
        sizes, tokenizer = self._sizes(residuals), self._calibration.loaded.tokenizer
        pieces = [""] * len(ids) if tokenizer is None else token_pieces(tokenizer, ids)
        return BoundaryProfile(
            gap_name(self._gap), held_out.window, len(held_out), tuple(pieces), torch.cat(self._norms).numpy(),
            (whole / tokens).sqrt().float().numpy(), starts, methods, sizes, self.no_sizes,
        )

    def _sizes(self, residuals: Mapping[str, Residual]) -> dict[str, tuple[SizePoint, ...]]:
        found = {tokens: residuals[name] for name, tokens in self._fits.items() if name in residuals}
        if not found:
            return {}
        if any(left.held_out is None for left in found.values()):
            self.no_sizes = "There is nothing to repair here, whatever the amount of calibration text."
            return {}
        # The method's own operator stands for all windows, unless that was fitted anew.
        found = {self._calibration.splits["calibration"].tokens: residuals[SIZED]} | found
        return {SIZED: tuple(SizePoint(n, left.held_out, left.median) for n, left in sorted(found.items()))}


def position_bins(window: int, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Divide the positions of a window into at most :data:`MOST_BINS` bins; the first position is one by itself.

    Args:
        window: positions per whole window.
        lengths: of the windows.

    Returns:
        ``(P,)`` the first position of each bin, and ``(tokens,)`` the bin of every token of windows of ``lengths``.
    """
    longest = min(window, max(lengths, default=1))
    places = np.linspace(1, longest, MOST_BINS)[:-1].round().astype(np.int64)
    starts = np.unique(np.r_[0, places[places < longest]])
    at = np.concatenate([np.arange(length) for length in lengths]) if lengths else np.zeros(0, np.int64)
    return starts, np.searchsorted(starts, at, side="right") - 1


def _medians(values: np.ndarray, bins: np.ndarray, count: int) -> np.ndarray:
    order = np.argsort(bins, kind="stable")
    parts = np.split(values[order], np.searchsorted(bins[order], np.arange(1, count)))
    seen = (part[~np.isnan(part)] for part in parts)
    return np.array([np.median(part) if len(part) else np.nan for part in seen], dtype=np.float32)


def token_pieces(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the text of each token so that joining the pieces gives the text of all.

    A character that is split over tokens belongs to the token that completes it; the ones before it are empty.
    """
    pieces, shown = [], ""
    for stop in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:stop], clean_up_tokenization_spaces=False)
        known = text if stop == len(ids) else text.rstrip(INCOMPLETE)
        pieces.append(known[len(shown):] if known.startswith(shown) else "")
        shown += pieces[-1]
    return pieces
