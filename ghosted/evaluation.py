"""What do the papers' tables say about this experiment? Perplexity on whole texts, tasks, speed, and a probe.

:func:`evaluate` fits what :func:`ghosted.run.run` fits, by the same pipeline, and then scores the original and every
variant: texts first (one pass over each for all models), then the tasks, the probe and the clock, model by model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ghosted import cache
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Note, Steps
from ghosted.results import Protocol
from ghosted.results.evidence import Evaluation, Evidence, TextScore
from ghosted.run import Pipeline
from ghosted.workspace import Workspace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.scores.tasks import Tasks
    from ghosted.texts import Windows

LONG = 120.0
"""Seconds; a text that takes longer is announced."""


@dataclass(frozen=True)
class Plan:
    """What is scored, beside what the experiment says.

    Attributes:
        window: positions per scored window, ``None`` for 2,048 or the model's context.
        stride: from one window to the next, ``None`` for no overlap.
        windows: windows per text at most, ``None`` for the whole text.
        tasks: names of the harness's tasks, or the papers' (:data:`ghosted.scores.tasks.NAMES`).
        limit: items per task, the first ones; ``None`` for all.
        include_path: folders with task files of one's own.
        speed: whether sizes and speeds are measured.
        probe: whether the behaviour probe is run.
    """

    window: int | None = None
    stride: int | None = None
    windows: int | None = None
    tasks: tuple[str, ...] = ()
    limit: int | None = None
    include_path: tuple[str, ...] = ()
    speed: bool = False
    probe: bool = False

    def __post_init__(self) -> None:
        """Check what can be checked without a model; raises :class:`InputError`."""
        for name in ("windows", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")


def evaluate(
    experiment: Experiment, plan: Plan | None = None, workspace: Workspace | None = None,
    cancel: CancelFlag | None = None,
) -> Steps[Evaluation]:
    """Fit the experiment's methods and score the original and all variants.

    Args:
        experiment: the settings; ``evaluate`` names the texts (none where only tasks, speed or the probe are asked for;
            else the calibration text's unused rest).
        plan: what is scored and how.
        workspace: holds the model between runs; its lock is held while this runs.
        cancel: checked between batches.

    Yields:
        ``Progress`` and ``Update`` events.

    Raises:
        GhostedError: any of them; the message is one sentence that says what to do.
    """
    plan, workspace = plan or Plan(), workspace or Workspace()
    pipeline = Pipeline(experiment, workspace, cancel)
    with workspace.lock:
        which = ("read tasks", plan.tasks, plan.include_path, plan.limit)
        tasks = workspace.kept.get(which)
        if plan.tasks and tasks is None:
            from ghosted.scores.tasks import Tasks

            # Names and the network are looked at before anything is computed.
            tasks = yield from Tasks.found(plan.tasks, plan.include_path, plan.limit, cancel)
        yield from pipeline.fit(("boundary",))
        workspace.kept[which] = tasks
        scoring = _Scoring(pipeline, plan, workspace, cancel)
        yield from scoring.texts()
        if tasks is not None:
            yield from scoring.tasks(tasks)
        if plan.probe:
            yield from scoring.probe()
        if plan.speed:
            yield from scoring.speed()
        return scoring.result


class _Scoring:
    """One evaluation in the making."""

    def __init__(self, pipeline: Pipeline, plan: Plan, workspace: Workspace, cancel: CancelFlag | None) -> None:
        self.pipeline, self.plan, self.cancel = pipeline, plan, cancel
        self.loaded, self.run = workspace.loaded, pipeline.run
        self.result = Evaluation(self.run)
        for found in self.run.methods:
            self.result.methods.append(Evidence(found.method, not_defined=found.not_defined))

    def models(self) -> Iterator[tuple[Evidence, PreTrainedModel]]:
        """Give the original (as a view with nothing removed) and every variant, one view at a time."""
        from ghosted.pruned import pruned_view
        from ghosted.removed import RemovedBlocks

        yield self.result.dense, pruned_view(self.loaded.model, RemovedBlocks())
        for name in self.pipeline.fitted:
            view = pruned_view(self.loaded.model, self.run.removed, self.pipeline.repairs(name))
            yield self.result.method(name), view

    def texts(self) -> Steps[None]:
        from ghosted.scores.perplexity import score
        from ghosted.texts.whole import whole_text, window_and_stride

        e, plan, run = self.run.experiment, self.plan, self.run
        names = e.evaluate or (() if plan.tasks or plan.probe or plan.speed else (e.text,))
        window, stride = window_and_stride(plan.window, plan.stride, self.loaded.facts.context)
        slices = self.pipeline.slices
        repairs = {name: self.pipeline.repairs(name) for name in self.pipeline.fitted}
        with run.timed("scores"):
            for name in names:
                text = yield from whole_text(
                    name, self.loaded, window=window, stride=stride, most=plan.windows, seed=e.seed,
                    split="test" if e.evaluate else "train", used=(slices.calibration, slices.held_out),
                    cancel=self.cancel,
                )
                windows = text.windows
                yield from self._cost(windows)
                dense, variants, same = yield from score(
                    self.loaded, run.removed, repairs, windows, self.cancel, fresh=text.fresh, downstream=False,
                    keep=True,
                )
                run.self_check = same if run.self_check is None else run.self_check and same
                label = windows.text if windows.text not in self.result.protocols else name
                self.result.scored[label] = text
                self.result.protocols[label] = Protocol.of(
                    windows, dense.tokens_scored, self.loaded.dtype, text.same_source, stride
                )
                for evidence, found in [(self.result.dense, dense)] + [
                    (self.result.method(method), found) for method, found in variants.items()
                ]:
                    evidence.texts[label] = TextScore.of(found.loss, found.tokens_scored, text.size, found.losses)
                    if found.perplexity is None:
                        run.warnings.append(f"The model repaired by {evidence.method} gives no finite perplexity on "
                                            f"{label}.")  # fmt: skip

    def _cost(self, windows: Windows) -> Steps[None]:
        """Say beforehand what a long text takes."""
        left = 1 - self.run.removed.count / self.loaded.blocks
        seconds = self.loaded.facts.pass_seconds(windows.tokens, self.loaded.dtype)
        if seconds is not None and (total := seconds * (1 + left * len(self.pipeline.fitted))) > LONG:
            yield Note(f"Scoring {windows.tokens:,} tokens of {windows.text} takes about {total / 60:.0f} min here; "
                       "a bound on its windows shortens it.")  # fmt: skip

    def tasks(self, tasks: Tasks) -> Steps[None]:
        from ghosted.scores.tasks import keep, kept

        with self.run.timed("tasks"):
            for evidence, model in self.models():
                key = self._key(tasks, evidence.method)
                if (found := kept(key)) is None:
                    found = yield from tasks.score(model, self.loaded.tokenizer, evidence.method, self.cancel)
                    keep(key, found)
                evidence.tasks = found
            self.result.about_tasks = tasks.about()

    def _key(self, tasks: Tasks, method: str) -> str:
        """Return the key of one model's scores: its weights, its operators to the last bit, the items, the machine."""
        import torch

        operators = [] if method == "dense" else self.pipeline.repairs(method)
        removed = "" if method == "dense" else str(self.run.removed)
        loaded = self.loaded
        return cache.key_of({
            "what": "task scores", "version": 1, "model": loaded.fingerprint, "dtype": loaded.dtype,
            "device": loaded.device, "threads": torch.get_num_threads(), "torch": torch.__version__,
            "variant": method != "dense", "removed": removed, "tasks": tasks.digest, "names": tasks.labels,
            "operators": [[r.gap.start, r.feature, hashlib.sha256(r.M.cpu().numpy().tobytes()).hexdigest()]
                          for r in operators],
        })  # fmt: skip

    def probe(self) -> Steps[None]:
        from ghosted.scores.probe import probe

        with self.run.timed("probe"):
            for evidence, model in self.models():
                evidence.probe = yield from probe(model, self.loaded.tokenizer, evidence.method, self.cancel)
                dense = self.result.dense.probe
                if evidence.method != "dense" and (said := evidence.probe.verdict(dense)):
                    self.run.warnings.append(f"{evidence.method}: {said}")

    def speed(self) -> Steps[None]:
        from ghosted.scores.speed import Added, speed

        with self.run.timed("speed"):
            models = {evidence.method: model for evidence, model in self.models()}
            added = {
                name: Added(self.run.method(name).added_parameters, sum(4 * r.M.numel() for r in repairs))
                for name in self.pipeline.fitted for repairs in (self.pipeline.repairs(name),)
            }
            self.result.speed = yield from speed(models, self.loaded, added, self.cancel)
            for evidence in (self.result.dense, *self.result.methods):
                evidence.speed = self.result.speed["models"].get(evidence.method)
