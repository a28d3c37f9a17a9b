"""The whole of one experiment: model → calibration → choice of blocks → operators → errors, texts, perplexity.

:func:`run` is a generator of :class:`~ghosted.progress.Progress` and :class:`~ghosted.results.Update` events, so
the page can draw what is ready while the rest is still computed, and stop between two batches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ghosted import criteria, operators, plan
from ghosted.errors import NotDefined, ResourceError, TextError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.registry import listing
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import PARTS, MethodResult, Protocol, Run, Update
from ghosted.workspace import Workspace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.calibration import Calibration
    from ghosted.models import ModelFacts
    from ghosted.operators import Fitted
    from ghosted.pruned import Repair
    from ghosted.scores.profile import Profiler
    from ghosted.texts import Slices

TOKENS_PER_CHANNEL = 4  # below this many calibration tokens per channel the fit follows noise


def run(
    experiment: Experiment, workspace: Workspace | None = None, cancel: CancelFlag | None = None,
    parts: tuple[str, ...] = PARTS,
) -> Steps[Run]:
    """Do what the experiment says.

    Args:
        experiment: the settings.
        workspace: holds the model between runs; a new one by default. Its lock is held while this runs.
        cancel: checked between batches.
        parts: which parts of the :class:`~ghosted.results.Run` are wanted; ``similarity`` always comes.

    Yields:
        ``Progress`` and ``Update`` events.

    Returns:
        The finished run.

    Raises:
        GhostedError: any of them; the message is one sentence that says what to do.
    """
    workspace = workspace or Workspace()
    with workspace.lock:
        return (yield from Pipeline(experiment, workspace, cancel).steps(parts))


class Pipeline:
    """One run in the making; whoever drives it holds the workspace's lock.

    Raises:
        InputError: there is no such method or criterion.

    Attributes:
        run: what was found so far.
        fitted: by method, one entry per gap; a method that is not defined here has none.
        slices: the texts, once they are cut.
    """

    def __init__(self, experiment: Experiment, workspace: Workspace, cancel: CancelFlag | None) -> None:
        for name in experiment.methods:
            operators.method(name)
        criteria.criterion(experiment.criterion)
        self.experiment, self.workspace, self.cancel = experiment, workspace, cancel
        self.run = Run(experiment)
        self.fitted: dict[str, list[Fitted]] = {}

    def fit(self, parts: tuple[str, ...]) -> Steps[Calibration]:
        """Read the model and the text, choose the blocks, and fit every method: what all else starts from."""
        calibration = yield from self._similarity(parts)
        yield Update("similarity", self.run)
        yield from self._fit(calibration)
        if self.experiment.distill and self.run.removed.gaps:
            yield from self._distill(calibration)
        return calibration

    def steps(self, parts: tuple[str, ...]) -> Steps[Run]:
        """Do the whole run; see :func:`run`."""
        calibration = yield from self.fit(parts)
        if "boundary" in parts:
            yield from self._boundary(calibration)
            yield Update("boundary", self.run)
        if "decomposition" in parts:
            yield from self._decompose(calibration)
            yield Update("decomposition", self.run)
        if "columns" in parts and self.experiment.prompt:
            yield from self._columns()
        if "scores" in parts:
            yield from self._scores()
            yield Update("scores", self.run)
        if "map" in parts:
            yield from self._map(calibration)
            yield Update("map", self.run)
        return self.run

    def _similarity(self, parts: tuple[str, ...]) -> Steps[Calibration]:
        experiment, run = self.experiment, self.run
        # Everything that can be refused without weights is refused before they are read.
        facts = self.workspace.facts(experiment)
        plan.check_memory(facts, experiment, self.workspace.bytes)
        if experiment.rank is not None and "low-rank" in experiment.methods:
            operators.check_rank(experiment.rank, facts.width)
        run.removed = RemovedBlocks.parse(experiment.remove, facts.blocks)
        if experiment.criterion != "manual":
            criteria.check(experiment.criterion, experiment.count, facts.blocks)
        self.slices = yield from self._early_slices(facts, parts)
        with self.run.timed("model"):
            loaded = yield from self.workspace.model(experiment, self.cancel)
        run.model_label, run.blocks, run.width = loaded.facts.label, loaded.blocks, loaded.width
        run.dtype = loaded.dtype
        if self.slices is None:
            self.slices = yield from self._slices(loaded, parts)
        if self.slices.calibration.tokens < TOKENS_PER_CHANNEL * loaded.width:
            run.warnings.append(
                f"Only {self.slices.calibration.tokens:,} calibration tokens for {loaded.width} channels: with fewer "
                f"than {TOKENS_PER_CHANNEL * loaded.width:,} the operator fits noise; take more tokens."
            )
        needs = operators.needs(experiment.methods)
        with self.run.timed("calibration"):
            manual = experiment.criterion == "manual"
            gaps = run.removed.gaps if manual else ()
            calibration = yield from self.workspace.calibration(experiment, self.slices, gaps, needs, self.cancel)
            run.similarity = calibration.similarity
            if not manual:
                evidence = criteria.Evidence(calibration.similarity, calibration, experiment.seed, self.cancel)
                run.choice = yield from criteria.choose(experiment.criterion, evidence, experiment.count)
                run.removed = RemovedBlocks.parse(run.choice.remove, loaded.blocks)
                run.ranges = calibration.ranges
                calibration = yield from self.workspace.calibration(
                    experiment, self.slices, run.removed.gaps, needs, self.cancel
                )
                calibration.ranges = run.ranges  # also where it had to be made anew, on the same windows
            run.ranges = calibration.ranges
        return calibration

    def _early_slices(self, facts: ModelFacts, parts: tuple[str, ...]) -> Steps[Slices | None]:
        """Cut the slices with the tokenizer alone, where it is here and no text has to be written by the model."""
        from ghosted import models, texts

        e = self.experiment
        texts.check_windows(e, facts.context)
        writes = "generated" in (e.text, e.held_out, *e.evaluate)
        if writes or not facts.cached or self.workspace.holds(e):
            return None
        return (yield from self._slices(models.load_tokenizer(e.model, e.revision), parts))

    def _slices(self, source: Any, parts: tuple[str, ...]) -> Steps[Slices]:
        from ghosted import texts

        held_out = getattr(criteria.criterion(self.experiment.criterion), "NEEDS_HELD_OUT", False)
        held_out = held_out or self.experiment.distill or {"boundary", "scores", "map"} & set(parts)
        with self.run.timed("texts"):
            return (yield from texts.slices(
                self.experiment, source, self.cancel, only_calibration=not held_out, scored="scores" in parts
            ))

    def _fit(self, calibration: Calibration) -> Steps[None]:
        from ghosted.fitting import fit_gaps

        e = self.experiment
        settings = operators.Settings(e.ridge, e.rank, e.seed, cancel=self.cancel)
        stage = Stage("solving", len(e.methods), self.cancel)
        with self.run.timed("solve"):
            for name in e.methods:
                yield stage.step()
                result = MethodResult(name)
                self.run.methods.append(result)
                try:
                    fits = yield from fit_gaps(
                        calibration, self.run.removed, name, settings, sequential=e.fit == "sequential"
                    )
                except NotDefined as reason:
                    result.not_defined = str(reason)
                    continue
                self.fitted[name] = fits
                result.describe(fits)

    def _distill(self, calibration: Calibration) -> Steps[None]:
        from ghosted.distillation import distill, read_teacher

        e, teacher = self.experiment, None
        names = [name for name in self.fitted if operators.distills(name)]
        left = [name for name in self.fitted if name not in names and name != "none"]
        if left or not names:
            self.run.warnings.append(
                f"Not distilled, but as fitted: {listing(left or self.fitted)}; "
                f"only {listing(filter(operators.distills, operators.methods()))} can be distilled."
            )
        with self.run.timed("distill"):
            for name in names:
                if teacher is None:
                    teacher = yield from read_teacher(calibration, self.run.removed, e.distill, cancel=self.cancel)
                fits, how = yield from distill(
                    teacher, self.fitted[name], e.distill, name=name, seed=e.seed, cancel=self.cancel
                )
                result = self.run.method(name)
                self.fitted[name], result.distill = fits, how
                result.added_parameters = sum(f.added_parameters for f in fits)

    def _boundary(self, calibration: Calibration) -> Steps[None]:
        from ghosted.scores.chained import chained_residuals
        from ghosted.scores.profile import Profiler
        from ghosted.scores.residual import boundary_residuals

        run, gaps = self.run, self.run.removed.gaps
        with self.run.timed("held-out error"):
            for number, gap in enumerate(gaps):
                fitted = {name: fits[number] for name, fits in self.fitted.items()}
                statistics = calibration.gaps[gap_name(gap)]
                profiler = None if number else Profiler(calibration, gap)
                less = {} if number else (yield from self._fits_on_less(profiler))
                residuals = yield from boundary_residuals(
                    calibration, gap, fitted | less, statistics, self.cancel, profiler
                )
                if profiler is not None:
                    run.profile = profiler.result(residuals)
                for name in fitted:
                    run.method(name).gaps[gap_name(gap)] = run.method(name).residual = residuals[name]
            if len(gaps) > 1:
                repairs = {name: self.repairs(name) for name in self.fitted}
                chained = yield from chained_residuals(calibration, run.removed, repairs, self.cancel)
                for name, residual in chained.items():
                    run.method(name).residual = residual
        for result in self.run.methods:
            held_out = result.residual and result.residual.held_out
            trained = result.distill and result.distill.best_step  # for what the model says, no longer for this error
            if held_out and held_out > 1 and result.rank is not None and not trained:
                self.run.warnings.append(
                    f"The held-out error of {result.method} is {held_out:.3g}, above 1: on text it has not seen it is "
                    "worse than no repair."
                )

    def _fits_on_less(self, profiler: Profiler) -> Steps[dict[str, Fitted]]:
        from ghosted.scores.profile import SIZED

        if SIZED not in self.fitted:
            profiler.no_sizes = f"Choose the method {SIZED} to see its error against the amount of calibration text."
            return {}
        result = self.run.method(SIZED)
        ridge = self.experiment.ridge if result.ridge is None else result.ridge
        return (yield from profiler.fits_on_less(ridge, whole=result.distill is not None, cancel=self.cancel))

    def _decompose(self, calibration: Calibration) -> Steps[None]:
        from ghosted.decomposition import decompose, linear_operators

        gaps = self.run.removed.gaps
        linear = list(linear_operators(self.fitted, gaps))
        stage = Stage("decomposing", len(linear), self.cancel)
        with self.run.timed("decomposition"):
            for key, name, number in linear:
                errors = self._errors_by_rank(calibration, number, name)
                self.run.decompositions[key] = decompose(self.fitted[name][number].M, name, gaps[number], errors)
                yield stage.step()

    def _errors_by_rank(self, calibration: Calibration, number: int, name: str) -> list[float] | None:
        """Return the curve of ``low-rank``, and of ``ghosted`` where it was fitted from the moments at hand."""
        from ghosted.decomposition import errors_by_rank

        fitted, e = self.fitted[name][number], self.experiment
        if name != "ghosted" or e.distill or (e.fit == "sequential" and number):
            return fitted.error_by_rank
        statistics = calibration.gaps[gap_name(self.run.removed.gaps[number])]
        return errors_by_rank(statistics, e.ridge if fitted.ridge is None else fitted.ridge)

    def repairs(self, name: str) -> list[Repair]:
        """Return one method's repairs, at most one per gap."""
        from ghosted.fitting import repairs_of

        return repairs_of(self.run.removed.gaps, self.fitted[name])

    def _variants(self) -> dict[str, PreTrainedModel]:
        from ghosted.pruned import pruned_view

        model = self.workspace.loaded.model
        return {name: pruned_view(model, self.run.removed, self.repairs(name)) for name in self.fitted}

    def _columns(self) -> Steps[None]:
        from ghosted.generation import generate

        e = self.experiment
        with self.run.timed("generation"):
            models = {"original": self.workspace.loaded.model} | self._variants()
            steps = generate(
                models, self.workspace.loaded.tokenizer, e.prompt, max_new_tokens=e.max_new_tokens,
                temperature=e.temperature, seed=e.seed, chat=e.chat, cancel=self.cancel,
                added_parameters={method.method: method.added_parameters for method in self.run.methods},
            )
            stage, finished = Stage("writing", e.max_new_tokens, self.cancel), False
            while not finished:
                try:
                    self.run.columns = next(steps)
                    yield stage.step()
                    yield Update("columns", self.run)
                except StopIteration as stop:
                    self.run.columns, finished = stop.value.columns, True
                    self.run.warnings += stop.value.notices
        yield Update("columns", self.run)

    def _scores(self) -> Steps[None]:
        from ghosted.scores.perplexity import score

        run, loaded = self.run, self.workspace.loaded
        with self.run.timed("scores"):
            repairs = {name: self.repairs(name) for name in self.fitted}
            for name, windows in self.slices.evaluation.items():
                dense, scores, same = yield from score(loaded, run.removed, repairs, windows, self.cancel)
                run.self_check = same if run.self_check is None else run.self_check and same
                run.dense_perplexity[name] = dense.perplexity
                same_source = self.slices.same_source[name]
                run.protocols[name] = Protocol.of(windows, dense.tokens_scored, run.dtype, same_source)
                for method, result in scores.items():
                    entry = run.method(method)
                    if result.perplexity is None:
                        run.warnings.append(f"The model repaired by {method} gives no finite perplexity on {name}.")
                        continue
                    entry.perplexity[name] = result.perplexity
                    entry.damage[name] = math.log(result.perplexity / dense.perplexity)
                    entry.downstream = entry.downstream or result.downstream
        self._warn_of_harm()

    def _map(self, calibration: Calibration) -> Steps[None]:
        from ghosted.drawn_map import drawn_map

        with self.run.timed("map"):
            try:
                self.run.ranges = yield from drawn_map(calibration, self.experiment.seed, self.cancel)
            except (ResourceError, TextError) as reason:  # everything else is there; only this picture is missing
                self.run.warnings.append(str(reason))

    def _warn_of_harm(self) -> None:
        plain = next((m for m in self.run.methods if m.method == "none"), None)
        if plain is None:
            return
        for result in self.run.methods:
            for name, value in result.perplexity.items():
                if value > plain.perplexity[name] * 1.005:
                    self.run.warnings.append(
                        f"Here {result.method} makes the model worse than plain pruning: perplexity {value:.3g} "
                        f"against {plain.perplexity[name]:.3g} on {name}."
                    )


def compare_json(run: Run) -> dict[str, Any]:
    """Return the object that ``compare --json`` prints: numbers for one evaluation text, objects for several."""
    single = len(run.protocols) == 1

    def by_text(values: dict[str, Any]) -> Any:
        return next(iter(values.values()), None) if single else values

    return {
        "experiment": run.experiment.to_json() | {"remove": str(run.removed), "dtype": run.dtype},
        "dense": {"perplexity": by_text(run.dense_perplexity)},
        "methods": [_method_json(m, by_text) for m in run.methods],
        "protocol": by_text({name: vars(p) for name, p in run.protocols.items()}),
        "warnings": run.warnings,
        "self_check": run.self_check,
        "seconds": run.seconds,
    }


def _method_json(m: MethodResult, by_text: Any) -> dict[str, Any]:
    def residual(r: Any) -> dict[str, Any]:
        return {"calibration": r.calibration, "held_out": r.held_out, "median": r.median}

    entry = {
        "method": m.method,
        "residual": m.residual and residual(m.residual),
        "perplexity": by_text(m.perplexity) if m.perplexity else None,
        "damage": by_text(m.damage) if m.damage else None,
        "downstream": [vars(d) for d in m.downstream],
        "added_parameters": None if m.not_defined else m.added_parameters,
    }
    if m.residual and len(m.gaps) > 1:
        entry["residual"]["gaps"] = {name: residual(r) for name, r in m.gaps.items()}
    names = ("rank", "dof", "ridge", "condition", "note", "error_by_rank", "not_defined")
    optional = {name: getattr(m, name) for name in names} | {"distill": m.distill and vars(m.distill)}
    return entry | {key: value for key, value in optional.items() if value is not None}
