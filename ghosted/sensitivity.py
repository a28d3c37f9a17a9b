"""How much calibration text is enough, and does it matter which? Error and perplexity against sequences and source.

Moments are additive, so each text is read once: the sums are solved each time as many sequences have been seen as asked
for. What the operators leave on held-out text, and what the repaired models say about a scored text, is then measured
in one pass for all sizes. A text *saturates* at the smallest size whose held-out error is within 2 % of the largest's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ghosted.errors import InputError, TextError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.removed import RemovedBlocks
from ghosted.results import Protocol
from ghosted.workspace import Workspace

if TYPE_CHECKING:
    from ghosted.models import LoadedModel
    from ghosted.texts import Slices

SIZES = (8, 16, 32, 64, 128, 256, 512)
"""Sequences of the window."""
NEAR = 1.02
"""A held-out error within this factor of the largest size's counts as saturated."""


@dataclass(frozen=True)
class Size:
    """One operator fitted on the first so many sequences.

    Attributes:
        sequences: windows of the calibration text.
        tokens: positions in them.
        held_out: residual boundary error on held-out tokens of the same text; ``None`` where Δ = 0.
        median: median over held-out tokens of the per-token ratio.
        perplexity: of the repaired model on the scored text.
    """

    sequences: int
    tokens: int
    held_out: float | None
    median: float | None
    perplexity: float | None


@dataclass(frozen=True)
class Source:
    """One calibration text and one method.

    Attributes:
        text: label of the text.
        method: how the gap is repaired.
        sizes: smallest first.
        saturates: sequences from which on more change little; ``None`` where there was nothing to repair.
        dense: perplexity of the original on the scored text.
        plain: perplexity of plain pruning.
        protocol: how these were scored.
        note: a sentence, where fewer sizes were measured than asked for.
    """

    text: str
    method: str
    sizes: tuple[Size, ...]
    saturates: int | None
    dense: float | None
    plain: float | None
    protocol: dict[str, Any]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self) | {"sizes": [dataclasses.asdict(size) for size in self.sizes]}


def saturation(sizes: Sequence[Size]) -> int | None:
    """Return the smallest number of sequences whose held-out error is within 2 % of the largest size's."""
    errors = [size.held_out for size in sizes]
    if not errors or any(error is None for error in errors):
        return None
    return next(size.sequences for size in sizes if size.held_out <= NEAR * errors[-1])


def sensitivity(
    experiment: Experiment, texts: Sequence[str], sizes: Sequence[int] = SIZES, workspace: Workspace | None = None,
    cancel: CancelFlag | None = None,
) -> Steps[list[Source]]:
    """Measure one gap's repairs against the amount and the source of the calibration text.

    Args:
        experiment: model, gap, methods, window, scored text; its tokens and calibration text are replaced.
        texts: calibration texts, names or paths.
        sizes: sequences to fit on.
        workspace: holds the model; its lock is held while this runs.
        cancel: checked between batches.

    Returns:
        One entry per text and method.

    Raises:
        InputError: not one gap, or a size below 1.
        TextError: a text is too short even for the smallest size.
    """
    removed = RemovedBlocks.parse(experiment.remove)
    if len(removed.gaps) != 1:
        raise InputError("Sensitivity is measured on one gap; name one run of blocks, such as --remove 14-18.")
    if not sizes or min(sizes) < 1:
        raise InputError("Each number of sequences must be at least 1.")
    workspace, found = workspace or Workspace(), []
    with workspace.lock:
        loaded = yield from workspace.model(experiment, cancel)
        removed.check(loaded.blocks)
        for text in texts:
            found += yield from _source(experiment, text, sorted(set(sizes)), loaded, removed, cancel)
    return found


def _source(
    experiment: Experiment, text: str, sizes: list[int], loaded: LoadedModel, removed: RemovedBlocks,
    cancel: CancelFlag | None,
) -> Steps[list[Source]]:
    from ghosted import operators
    from ghosted.calibration import Calibration, windows_per_batch
    from ghosted.errors import NotDefined
    from ghosted.operators import Settings
    from ghosted.progress import settled
    from ghosted.pruned import Repair
    from ghosted.scores.perplexity import score
    from ghosted.scores.residual import boundary_residuals

    slices, kept = yield from _longest(experiment, text, sizes, loaded, cancel)
    gap, note = removed.gaps[0], ""
    if len(kept) < len(sizes):
        note = f"{slices.calibration.text} is too short for {sizes[len(kept)]} sequences and more."
    windows = slices.calibration
    batch = windows_per_batch(experiment.batch, windows.window)
    calibration = Calibration(loaded, {"calibration": windows, "held_out": slices.held_out}, batch)
    names = tuple(name for name in experiment.methods if name != "none")
    statistics = calibration.new_statistics(gap, operators.needs(names))
    settings = Settings(experiment.ridge, experiment.rank, experiment.seed, cancel=cancel)
    fits, tokens, undefined = {}, {}, set()
    stage = Stage(f"reading {windows.text}", len(windows), cancel)
    for boundary in calibration.boundaries("calibration", gap, statistics.wants_feed_forward):
        for row in range(len(boundary.pre)):
            statistics.add(boundary[row])
            if (seen := statistics.sequences) in kept:
                tokens[seen] = statistics.tokens
                for name in names:
                    try:
                        fits[name, seen] = yield from settled(operators.method(name).fit(statistics, settings))
                    except NotDefined:
                        undefined.add(name)
        yield stage.step(len(boundary.pre))
    keyed = {f"{name} {seen}": fit for (name, seen), fit in fits.items()}
    residuals = yield from boundary_residuals(calibration, gap, keyed, statistics, cancel)
    repairs = {key: [Repair(gap, fit.feature, fit.operator())] for key, fit in keyed.items() if fit.M is not None}
    (label, scored), = slices.evaluation.items()
    dense, scores, _ = yield from score(loaded, removed, {"none": []} | repairs, scored, cancel, downstream=False)
    protocol = vars(Protocol.of(scored, dense.tokens_scored, loaded.dtype, slices.same_source[label]))
    result = []
    for name in names:
        if name in undefined:
            continue
        line = tuple(
            Size(n, tokens[n], residuals[f"{name} {n}"].held_out, residuals[f"{name} {n}"].median,
                 scores[f"{name} {n}"].perplexity) for n in kept
        )  # fmt: skip
        result.append(Source(windows.text, name, line, saturation(line), dense.perplexity, scores["none"].perplexity,
                             protocol, note))  # fmt: skip
    return result


def _longest(
    experiment: Experiment, text: str, sizes: list[int], loaded: LoadedModel, cancel: CancelFlag | None
) -> Steps[tuple[Slices, list[int]]]:
    """Cut the text for the largest size it has enough tokens for; return the slices and the sizes that are left."""
    from ghosted import texts as reading

    window, kept = experiment.tokens_per_window, list(sizes)
    while True:
        # The held-out slice has one length, whatever the size: errors are measured on as many tokens.
        e = dataclasses.replace(experiment, text=text, tokens=kept[-1] * window)
        try:
            return (yield from reading.slices(e, loaded, cancel)), kept
        except TextError:
            if len(kept) == 1:
                raise
            kept.pop()
