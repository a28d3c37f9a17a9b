"""ReplaceMe by direction: correct the feed-forward branch before the gap so that states *point* the right way.

Formula: x̂ = X_pre − A + A T with T = I + M, M = argmin mean over tokens of 1 − cos(x̂, x_post), by Adam from T = I.
The blocks after the gap normalise what they read, so directions matter more than lengths; but the loss is no sum of
moments, so it needs the tokens: whole windows spread over the text, ``BYTES`` of states at most (twice that while they
are put together). The state of the least loss on windows that were left out of the descent is kept. T merges as that
of ``replaceme`` does. Cost: ``STEPS`` steps of three products ``TOKENS_PER_STEP`` × C × C.

Measured on blocks 14-18 of a model of width 576, held-out mean 1 − cos from 0.096: with 8,192 tokens 0.058, with
32,768 0.054 after 64 steps at a peak rate of 1e-2 and 0.052 after 128 at 2e-2; a constant rate ends 3 % higher.

Source: ReplaceMe (arXiv 2505.02819), its cosine variant.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ghosted.errors import InputError
from ghosted.operators import Fitted, Settings
from ghosted.progress import Stage, Steps

NAME, LABEL, ORDER = "replaceme-cosine", "ReplaceMe, cosine", 32
NEEDS = frozenset({"feed_forward"})

BYTES = 2**28
LEFT_OUT = 8  # one window in so many chooses the state that is kept
TOKENS_PER_STEP = 1024
STEPS, STEPS_PER_LOOK = 128, 8
RATE, RATE_WIDTH = 2e-2, 576  # the peak, and up to which width: beyond, a step of one size moves a state further

Sample = tuple[Tensor, Tensor, Tensor]
"""A, X_pre and X_post of the same tokens, ``(tokens, C)`` each, in the model's dtype."""


def fit(statistics, settings: Settings) -> Steps[Fitted]:
    """Fit on a bounded sample of the tokens that ``settings.read_again`` gives.

    Yields:
        :class:`~ghosted.progress.Progress`.

    Raises:
        NotDefined: the gap starts at block 0, or the family's feed-forward branch is not known.
        InputError: there is no way to the tokens.
        Cancelled: ``settings.cancel`` was set.
    """
    statistics.moments("feed_forward")  # refuses a gap where the branch has no meaning
    if settings.read_again is None:
        raise InputError("The method replaceme-cosine needs the calibration tokens themselves, not only their sums.")
    learnt, left_out = yield from _samples(statistics, settings)
    M, before, after = yield from _descend(learnt, left_out, settings)
    tokens = len(learnt[0]) + len(left_out[0]) * (left_out is not learnt)
    note = (f"Fitted on {tokens:,} of {statistics.tokens:,} tokens: the mean 1 − cosine on those left out of the "
            f"descent fell from {before:.3g} to {after:.3g}.")  # fmt: skip
    return Fitted("feed_forward", M.double(), 0 if statistics.merges else statistics.width**2, note=note)


def cosine_distance(M: Tensor, sample: Sample) -> Tensor:
    """Return the mean over tokens of 1 − cos(x_pre + a M, x_post)."""
    branch, pre, post = (part.float() for part in sample)
    return 1.0 - F.cosine_similarity(pre + branch @ M, post, dim=-1).mean()


def _samples(statistics, settings: Settings) -> Steps[tuple[Sample, Sample]]:
    """Keep every n-th window, so that they are spread over the text and their tokens stay few.

    Returns:
        What is learnt from, and what is left out to choose by (the same, where one window is all there is).
    """
    every = most = None
    stage = Stage("reading the branch", statistics.sequences, settings.cancel)
    kept: list[Sample] = []
    window = tokens = 0
    for boundary in settings.read_again():
        for row in range(len(boundary.pre)):
            parts = (boundary.feed_forward[row], boundary.pre[row], boundary.post[row])
            if every is None:
                most = max(1, BYTES // sum(part[0].nbytes for part in parts))
                every = max(1, -(-statistics.tokens // most))
            length = min(len(parts[0]), most)
            if window % every == 0 and tokens + length <= most:
                tokens += length
                kept.append(tuple(part[:length].clone() for part in parts))
            window += 1
        yield stage.step(len(boundary.pre))
    left_out = kept[LEFT_OUT // 2 :: LEFT_OUT] or kept[1:2] or kept
    chosen = {id(sample) for sample in left_out}
    learnt = [sample for sample in kept if id(sample) not in chosen] or kept
    together = [tuple(torch.cat(part) for part in zip(*several, strict=True)) for several in (learnt, left_out)]
    return (together[0], together[0]) if learnt is kept else (together[0], together[1])


def _descend(learnt: Sample, left_out: Sample, settings: Settings) -> Steps[tuple[Tensor, float, float]]:
    """Return the best M with the loss on ``left_out`` at M = 0 and at the best."""
    width, device = learnt[0].shape[1], learnt[0].device
    draw = torch.Generator().manual_seed(settings.seed)
    M = torch.zeros(width, width, device=device, requires_grad=True)
    adam = torch.optim.Adam([M], lr=RATE * min(1.0, RATE_WIDTH / width))
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
    with torch.no_grad():
        before = least = float(cosine_distance(M, left_out))
    best = M.detach().clone()
    stage = Stage("turning states", STEPS, settings.cancel)
    for step in range(STEPS):
        rows = torch.randperm(len(learnt[0]), generator=draw)[:TOKENS_PER_STEP].to(device)
        with torch.enable_grad():
            loss = cosine_distance(M, tuple(part[rows] for part in learnt))
            adam.zero_grad()
            loss.backward()
        adam.step()
        decay.step()
        if (step + 1) % STEPS_PER_LOOK == 0:
            with torch.no_grad():
                now = float(cosine_distance(M, left_out))
            if now < least:
                least, best = now, M.detach().clone()
        yield stage.step()
    return best, before, least
