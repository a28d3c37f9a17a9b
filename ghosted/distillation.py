"""Can a fitted operator learn from what the unpruned model says, instead of from its states alone? Distillation.

Only the operators are trained, those of all gaps together. The teacher is the unpruned model: for each token its k most
likely next tokens are kept beforehand, and one bucket for all the others. With t the teacher's and s the student's
probabilities of these k + 1 buckets the loss is

    KL(t ‖ s) = Σ_j t_j (log t_j - log s_j),

whose gradient by the student's logit i is s_i - t_i where i is kept and s_i (1 - t_rest / s_rest) elsewhere.

AdamW sees M in the units of the states: M = M₀ + diag(1/a) D b, where a is the root mean square of each channel that
enters the gap and b that of the channels of Δ, both over tokens weighted by 1/‖x_pre‖², so that one step moves every
channel by a like share of what it carries. D starts at 0, and weight decay pulls it back there. The state of D with
the least KL on held-out windows wins, D = 0 among them: distilling cannot make that KL worse.

Source: the loss and what is trained, LinearPatch (arXiv 2505.24680); the units are ours.
Cost: a step runs the blocks from the one before the first gap on, forward and backward, on four windows. Memory: a
bounded store of the teacher, the logits of one micro-batch and the activations of the blocks that follow the gap.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ghosted.operators import Fitted
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.results import Distilled
from ghosted.scores.perplexity import CHUNK, scoring_batch
from ghosted.states import Resumed, hidden_forward, recording

if TYPE_CHECKING:
    from ghosted.calibration import Calibration
    from ghosted.models import LoadedModel

KEPT = 128  # next tokens kept per token; all others share a bucket
TEACHER_BYTES = 2**28  # of kept predictions and states: 150,000 tokens of a model of width 576, 30,000 of width 4,096
WINDOWS_PER_STEP = 4
HELD_OUT_WINDOWS = 8
EVERY = 10  # steps between two looks at the held-out windows
PATIENCE = 3  # looks without a lower KL, then it stops
# AdamW's, in the units above. Held-out KL after 12 steps at 14-18 (0.297 before): 0.242 at 5e-4, 0.238 at 1e-3, 0.286
# at 3e-3; without units at 3e-4 0.249.
RATE = 1e-3
WARM_UP = 0.1  # of the steps


@dataclass(frozen=True, eq=False)
class Kept:
    """What is kept of windows of one length; n windows of t tokens.

    Attributes:
        ids: ``(n, t)`` the tokens.
        states: ``(n, t, C)`` the unpruned model's state that enters the block before the first gap, in its dtype.
        top: ``(n, t, k)`` int32, the teacher's most likely next tokens.
        log_p: ``(n, t, k + 1)`` float16, the log-probabilities of these and, last, of all the others.
    """

    ids: Tensor
    states: Tensor
    top: Tensor
    log_p: Tensor

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.ids)

    def rows(self, which: Tensor) -> Kept:
        """Return some of the windows."""
        return Kept(*(tensor[which] for tensor in vars(self).values()))

    def batches(self, size: int) -> Iterator[Kept]:
        """Yield at most ``size`` windows at a time."""
        for part in torch.arange(len(self)).split(size):
            yield self.rows(part)

    @property
    def bytes(self) -> int:
        """Memory of all of it, without the ids."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.states, self.top, self.log_p))


@dataclass(frozen=True, eq=False)
class Teacher:
    """What the unpruned model says, kept for any number of students with the same gaps.

    Attributes:
        loaded: the unpruned model.
        removed: the blocks that every student lacks.
        train: the windows that students learn from.
        held_out: the windows that decide which state is the best.
        units: by gap, ``(C,)`` each: a and b of the module's formula.
    """

    loaded: LoadedModel
    removed: RemovedBlocks
    train: Kept
    held_out: Kept
    units: list[tuple[Tensor, Tensor]]

    @property
    def start(self) -> int:
        """The first block that students run."""
        return self.removed.resumes_at


def read_teacher(
    calibration: Calibration, removed: RemovedBlocks, steps: int, *, kept: int = KEPT,
    limit_bytes: int = TEACHER_BYTES, cancel: CancelFlag | None = None,
) -> Steps[Teacher]:
    """Run the unpruned model once over the windows that ``steps`` steps can use, and keep what it says.

    Args:
        calibration: gives the model and its windows; its kept states spare most of the pass.
        removed: at least one gap.
        steps: of four windows each.
        kept: next tokens kept per token, at most the vocabulary.
        limit_bytes: bound on what is kept; fewer windows are used where it is reached, at least one of each split.
        cancel: checked between batches.
    """
    config = calibration.loaded.model.config.get_text_config(decoder=True)
    kept = min(kept, config.vocab_size)
    element = next(calibration.loaded.model.parameters()).element_size()
    token = calibration.loaded.width * element + (kept + 1) * 2 + kept * 4
    counts: dict[str, int] = {}
    for split, most in (("held_out", HELD_OUT_WINDOWS), ("calibration", steps * WINDOWS_PER_STEP)):
        rows = calibration.splits[split].rows
        whole = sum(len(row) == len(rows[0]) for row in rows)  # a shorter rest at the end is left out
        room = limit_bytes // (token * len(rows[0]))
        counts[split] = max(1, min(whole, most, room))
        limit_bytes -= counts[split] * token * len(rows[0])
    stage = Stage("reading the original's predictions", sum(counts.values()), cancel)
    units = [_Units() for _ in removed.gaps]
    held_out = yield from _read(calibration, "held_out", counts["held_out"], removed, kept, stage, None)
    train = yield from _read(calibration, "calibration", counts["calibration"], removed, kept, stage, units)
    return Teacher(calibration.loaded, removed, train, held_out, [u.result() for u in units])


def _read(
    calibration: Calibration, split: str, count: int, removed: RemovedBlocks, kept: int, stage: Stage,
    units: list[_Units] | None,
) -> Steps[Kept]:
    loaded, start = calibration.loaded, removed.resumes_at
    last = Resumed(pruned_view(loaded.model, RemovedBlocks.of(range(loaded.blocks - 1))))
    size, found = scoring_batch(loaded, calibration.splits[split].window), []
    for ids, states in _states(calibration, split, count):
        for gap, its in zip(removed.gaps, units or (), strict=False):
            its.add(states[gap.start], states[gap.stop])
        entering, before_last = states[start], states[-2]
        for part in torch.arange(len(ids)).split(size):
            with torch.inference_mode(), last.fed(before_last[part]) as view:
                logits = view(input_ids=ids[part], use_cache=False).logits
            # Indexing copies, outside of inference mode: gradients will flow past these states.
            found.append(Kept(ids[part].cpu(), entering[part].cpu(), *_top(logits, kept)))
            del logits
            yield stage.step(len(part))
    return Kept(*(torch.cat(parts) for parts in zip(*(vars(f).values() for f in found), strict=True)))


def _states(calibration: Calibration, split: str, count: int) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield ids and states of the first ``count`` windows: kept ones where there are some, the rest from a new pass."""
    stored = min(count, len(calibration.stores[split]))
    if stored:
        yield from calibration.states(split, stored)
    windows = calibration.splits[split]
    view = pruned_view(calibration.loaded.model, RemovedBlocks())
    with recording(view) as recorder:
        for ids in replace(windows, rows=windows.rows[stored:count]).batches(calibration.batch):
            hidden_forward(view, ids)
            yield ids.to(calibration.loaded.device), list(recorder.states)
            recorder.clear()


def _top(logits: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Return the ``kept`` most likely tokens of ``(b, t, V)`` logits and the log-probabilities of all buckets."""
    batch, length, _ = logits.shape
    top = torch.empty(batch * length, kept, dtype=torch.int32)
    log_p = torch.empty(batch * length, kept + 1, dtype=torch.float16)
    places = torch.arange(batch * length).split(CHUNK)
    for place, part in zip(places, logits.flatten(0, 1).split(CHUNK), strict=True):
        z, exponentials, total = _exponentials(part)
        values, tokens = z.topk(kept, dim=-1)
        rest = exponentials.scatter_(-1, tokens, 0.0).sum(-1, keepdim=True)
        top[place] = tokens.to("cpu", torch.int32)
        log_p[place] = (torch.cat([values, rest.log()], dim=-1) - total.log()).to("cpu", torch.float16)
    return top.view(batch, length, -1), log_p.view(batch, length, -1)


def _exponentials(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return float32 logits less their maximum ``(n, V)``, their exponentials and the sum of those ``(n, 1)``."""
    z = logits.float()
    z = z - z.amax(-1, keepdim=True)
    exponentials = z.exp()
    return z, exponentials, exponentials.sum(-1, keepdim=True)


@dataclass
class _Units:
    """Sums of squares of X_pre and Δ by channel, over tokens weighted by 1/‖x_pre‖²."""

    sums: list[Tensor] = field(default_factory=list)
    weight: float = 0.0

    def add(self, pre: Tensor, post: Tensor) -> None:
        x, delta = pre.float().flatten(0, 1), (post.float() - pre.float()).flatten(0, 1)
        w = 1.0 / x.square().sum(-1, keepdim=True).clamp(min=1e-30)
        new = [(w * y.square()).sum(0, dtype=torch.float64) for y in (x, delta)]
        self.sums = [old + more for old, more in zip(self.sums, new, strict=True)] if self.sums else new
        self.weight += float(w.sum(dtype=torch.float64))

    def result(self) -> tuple[Tensor, Tensor]:
        """Return a and b, float32, no channel below a thousandth of the mean, so that dead ones do no harm."""
        roots = [(s / self.weight).sqrt() for s in self.sums]
        a, b = (r.clamp(min=max(float(r.mean()) * 1e-3, 1e-30)).float() for r in roots)
        return a, b


def bucket_kl(
    logits: Tensor, top: Tensor, log_p: Tensor, gradient: Tensor | None = None, scale: float = 1.0
) -> float:
    """Return the sum over tokens of KL(teacher ‖ student) in nats over the k + 1 buckets, a few tokens at a time.

    Args:
        logits: ``(n, V)`` the student's.
        top: ``(n, k)`` the kept tokens.
        log_p: ``(n, k + 1)`` the teacher's log-probabilities; they are normalised once more after rounding.
        gradient: ``(n, V)``, is filled with ``scale`` times the gradient by the logits.
        scale: see there.
    """
    total = 0.0
    for at in range(0, len(logits), CHUNK):
        place = slice(at, at + CHUNK)
        z, s, partition = _exponentials(logits[place])
        tokens = top[place].to(logits.device, torch.int64)
        log_t = log_p[place].to(logits.device).float().log_softmax(-1)
        t = log_t.exp()
        log_s = z.gather(-1, tokens) - partition.log()
        s.scatter_(-1, tokens, 0.0)  # the rest only, summed without cancellation
        rest = (s.sum(-1, keepdim=True) / partition).clamp(min=1e-30)
        log_s_all = torch.cat([log_s, rest.log()], dim=-1)
        # An empty bucket has t = 0 and log t = -inf; it adds nothing.
        total += float(torch.where(t > 0, t * (log_t - log_s_all), 0.0).sum(dtype=torch.float64))
        if gradient is not None:
            s.mul_((1.0 - t[:, -1:] / rest) * (scale / partition))
            gradient[place] = s.scatter_(-1, tokens, (log_s.exp() - t[:, :-1]) * scale)
    return total


class Student:
    """The pruned model from the block before its first gap on, with operators that can be trained.

    The original's parameters stay as they are: they need no gradient and get none.
    """

    def __init__(self, teacher: Teacher, fits: Sequence[Fitted], rate: float) -> None:
        """Start at the fitted operators, one per gap."""
        loaded, removed = teacher.loaded, teacher.removed
        self._loaded, self._start = loaded, [fit.operator().to(loaded.device) for fit in fits]
        self.M = [M.clone().requires_grad_(True) for M in self._start]
        self.D = [torch.zeros_like(M, requires_grad=True) for M in self._start]
        # In M = M₀ + D·unit, rows are divided by a and columns multiplied by b.
        self._units = [(b[None, :] / a[:, None]).to(loaded.device) for a, b in teacher.units]
        self._optimizer = torch.optim.AdamW(self.D, lr=rate, weight_decay=0.01)
        self._rate = rate
        repairs = [Repair(gap, f.feature, M) for gap, f, M in zip(removed.gaps, fits, self.M, strict=True)]
        shared = RemovedBlocks.of([*range(teacher.start), *removed.blocks])
        self._resumed = Resumed(pruned_view(loaded.model, shared, repairs))

    def _logits(self, part: Kept) -> Tensor:
        with self._resumed.fed(part.states) as view:
            logits = view(input_ids=part.ids.to(self._loaded.device), use_cache=False).logits
        return logits.flatten(0, 1)

    def kl(self, part: Kept) -> float:
        """Return the summed KL in nats of some windows."""
        with torch.inference_mode():
            return bucket_kl(self._logits(part), part.top.flatten(0, 1), part.log_p.flatten(0, 1))

    def learn(self, part: Kept, tokens: int) -> float:
        """Add the gradient of the mean KL over a step's ``tokens``, as far as these windows go; return their sum."""
        with torch.inference_mode(False), torch.enable_grad():
            logits = self._logits(part)
        gradient = torch.empty_like(logits)
        total = bucket_kl(
            logits.detach(), part.top.flatten(0, 1), part.log_p.flatten(0, 1), gradient, 1.0 / tokens
        )
        logits.backward(gradient)
        return total

    @torch.no_grad()
    def update(self, fraction: float) -> None:
        """Take one step of ``fraction`` of the learning rate along what was learnt since the last one."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * fraction
        for M, D, unit in zip(self.M, self.D, self._units, strict=True):
            D.grad, M.grad = M.grad * unit, None
        self._optimizer.step()
        for M, start, D, unit in zip(self.M, self._start, self.D, self._units, strict=True):
            M.copy_(start + D * unit)

    def operators(self) -> list[Tensor]:
        """Return a copy of the operators as they are now, float64."""
        return [M.detach().cpu().double() for M in self.M]


def schedule(step: int, steps: int) -> float:
    """Return the fraction of the learning rate at ``step`` of 1 … ``steps``: a short rise, then half a cosine to 0."""
    rise = max(1, round(WARM_UP * steps))
    if step <= rise:
        return step / rise
    return 0.5 * (1.0 + math.cos(math.pi * (step - rise) / (steps - rise + 1)))


def distill(
    teacher: Teacher, fits: Sequence[Fitted], steps: int, *, name: str = "", seed: int = 0, rate: float = RATE,
    cancel: CancelFlag | None = None,
) -> Steps[tuple[list[Fitted], Distilled]]:
    """Train fitted operators on what the unpruned model says.

    Args:
        teacher: made by :func:`read_teacher` for the same gaps.
        fits: one per gap, none of them plain pruning; they are not changed.
        steps: at most so many; it stops earlier where the held-out KL no longer falls.
        name: of the method, for the progress.
        seed: of the order of the windows.
        rate: the learning rate at its highest.
        cancel: checked between micro-batches.

    Returns:
        The operators of the best state, where that is not the start as full matrices, and how it went.

    Raises:
        Cancelled: ``cancel`` was set.
    """
    begin, student = time.monotonic(), Student(teacher, fits, rate)
    size = scoring_batch(teacher.loaded, teacher.train.ids.shape[1])
    looks = 1 + math.ceil(steps / EVERY)
    stage = Stage(f"distilling {name}".rstrip(), steps * WINDOWS_PER_STEP + looks * len(teacher.held_out), cancel)
    best = before = yield from _held_out_kl(student, teacher.held_out, size, stage)
    operators, best_step, done, patience = None, 0, 0, PATIENCE
    order = _order(len(teacher.train), seed)
    while done < steps and math.isfinite(best) and patience:
        rows = teacher.train.rows(torch.tensor([next(order) for _ in range(WINDOWS_PER_STEP)]))
        for part in rows.batches(size):
            student.learn(part, rows.ids.numel())
            yield stage.step(len(part))
        done += 1
        student.update(schedule(done, steps))
        if done % EVERY and done < steps:
            continue
        kl = yield from _held_out_kl(student, teacher.held_out, size, stage)
        patience = PATIENCE if kl < best else patience - 1 if math.isfinite(kl) else 0
        if kl < best:
            best, best_step, operators = kl, done, student.operators()
    found = list(fits) if operators is None else [
        replace(fit, M=M.to(fit.M.device), structure="full", factors=None, added_parameters=M.numel())
        for fit, M in zip(fits, operators, strict=True)
    ]
    numbers = (value if math.isfinite(value) else None for value in (before, best))
    return found, Distilled(done, best_step, *numbers, time.monotonic() - begin)


def _held_out_kl(student: Student, held_out: Kept, size: int, stage: Stage) -> Steps[float]:
    total = 0.0
    for part in held_out.batches(size):
        total += student.kl(part)
        yield stage.step(len(part))
    return total / held_out.ids.numel()


def _order(count: int, seed: int) -> Iterator[int]:
    """Yield window numbers for ever, each once per round, every round in another order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=generator).tolist()
