"""What changes when the range of removed blocks changes, from states at hand? Errors and shares, and no model pass.

:class:`Preview` answers from what a calibration kept, in two steps: what follows from the states at the gap's two ends
(at once), then what needs the branch before the gap (one block run on kept states) and the spectra of the operators.
Perplexity, generations, and methods that learn by descent or from text that the model writes, wait for a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ghosted import operators
from ghosted.calibration.kept import RECENT_BYTES, KeptStates
from ghosted.calibration.statistics import MOMENTS
from ghosted.decomposition import decompose, linear_operators
from ghosted.errors import NotDefined, TextError
from ghosted.operators import Fitted, Settings
from ghosted.pruned import OF_THE_BRANCH
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import MethodResult, Residual, Run
from ghosted.scores.residual import calibration_error
from ghosted.turn import Turn

if TYPE_CHECKING:
    from ghosted.calibration import Calibration
    from ghosted.experiment import Experiment
    from ghosted.progress import CancelFlag

LATER = "Follows in a moment: it needs the branch before the gap."
WAITS = "Waits for Run: it is not solved in closed form."


class Preview:
    """Errors, shares and spectra for any range, from the states of a calibration, which it does not change.

    Args:
        calibration: holds the states.
        experiment: gives ridge, rank and seed, and is recorded in the result.
        kept: what earlier previews of the same calibration computed; a new one by default.
        turn: held while one answer is computed, the quick ones first; share it where ``kept`` is shared.
    """

    def __init__(
        self, calibration: Calibration, experiment: Experiment, kept: KeptStates | None = None,
        turn: Turn | None = None,
    ) -> None:
        self.calibration, self.experiment = calibration, experiment
        self._kept = kept or KeptStates(calibration)
        self._turn = turn or Turn()

    def quick(self, removed: RemovedBlocks, methods: Sequence[str], cancel: CancelFlag | None = None) -> Run:
        """Return residuals and shares of the methods that are solved from the states at the gap's ends.

        The others are in the run with a ``note`` that says what they wait for. A decomposition holds W and its shares;
        its spectra are empty.

        Raises:
            InputError: unknown method, or blocks that do not exist.
            TextError: no states are kept.
            Cancelled: ``cancel`` was set.
        """
        return self._run(removed, methods, quick_methods(methods), cancel, spectra=False)

    def rest(self, removed: RemovedBlocks, methods: Sequence[str], cancel: CancelFlag | None = None) -> Run:
        """Return the same with the methods that need the branch before the gap, and all spectra; raises likewise."""
        return self._run(removed, methods, [m for m in methods if is_closed_form(m)], cancel, spectra=True)

    def warm(self, methods: Sequence[str], cancel: CancelFlag | None = None) -> None:
        """Compute what belongs to single states, while there is nothing else to do; then no range starts from nothing.

        Of a model whose sums would not all be kept, nothing is computed ahead.
        """
        loaded, needs = self.calibration.loaded, operators.needs(tuple(quick_methods(methods)))
        if 16 * loaded.width**2 * loaded.blocks > RECENT_BYTES * 2 // 3:
            return
        for state in range(loaded.blocks + 1):
            with self._turn.patient(cancel) as polite:
                self._kept.read(state, needs, polite)

    def prefetch(self, removed: RemovedBlocks, methods: Sequence[str], cancel: CancelFlag | None = None) -> None:
        """Compute what :meth:`quick` will be asked next: one gap with either end, or both, moved by one block."""
        blocks = self.calibration.loaded.blocks
        for gap in neighbours(removed, blocks):
            self._answers(gap, quick_methods(methods), Run(self.experiment), cancel, self._turn.patient)

    def _run(
        self, removed: RemovedBlocks, methods: Sequence[str], answered: Sequence[str], cancel: CancelFlag | None,
        spectra: bool,
    ) -> Run:
        loaded = self.calibration.loaded
        removed.check(loaded.blocks)
        if not self._kept.windows("calibration"):
            raise TextError("No states are at hand for this text; press Run.")
        experiment = replace(self.experiment, remove=str(removed), criterion="manual", count=0, methods=tuple(methods))
        run = Run(
            experiment, model_label=loaded.facts.label, blocks=loaded.blocks, width=loaded.width, dtype=loaded.dtype,
            removed=removed, similarity=self.calibration.similarity, methods=[MethodResult(name) for name in methods],
            warnings=self._notices(removed),
        )
        fits: dict[str, list[Fitted]] = {name: [] for name in answered}
        turn = self._turn.patient if spectra else self._turn.urgent
        for gap in removed.gaps:
            for name, answer in self._answers(gap, answered, run, cancel, turn).items():
                result = run.method(name)
                if answer.not_defined is not None:
                    result.not_defined = answer.not_defined
                    fits.pop(name, None)
                elif name in fits:
                    fits[name].append(answer.fitted)
                    result.gaps[gap_name(gap)] = answer.residual
                    result.residual = answer.residual if len(removed.gaps) == 1 else None
        for name in methods:
            _describe(run.method(name), fits.get(name))
        with run.timed("decomposition"):
            for key, name, number in linear_operators(fits, removed.gaps):
                if cancel is not None:
                    cancel.check()
                if spectra:
                    self._turn.let_pass(cancel=cancel)
                M = fits[name][number].M
                run.decompositions[key] = decompose(M, name, removed.gaps[number], spectra=spectra)
        return run

    def _answers(
        self, gap: range, methods: Iterable[str], run: Run, cancel: CancelFlag | None, turn: Callable[..., Any]
    ) -> dict[str, _Answer]:
        """Return what is known of each method at one gap, computing what is not."""
        e = self.experiment
        with turn(cancel) as cancel:
            found = {name: self._kept.recent.get(_key(gap, name, e)) for name in methods}
            missing = [name for name, answer in found.items() if answer is None]
            # The branch's methods apart: their states cost a block, and no fast product is made beside one.
            for several in (quick_methods(missing), [m for m in missing if not is_quick(m)]):
                for name, answer in self._solved(gap, several, run, cancel).items() if several else ():
                    found[name] = answer
                    size = answer.fitted.M.nbytes if answer.fitted and answer.fitted.M is not None else 0
                    self._kept.recent.put(_key(gap, name, e), answer, size)
        return found

    def _solved(
        self, gap: range, methods: Sequence[str], run: Run, cancel: CancelFlag | None
    ) -> dict[str, _Answer]:
        kept, e, needs = self._kept, self.experiment, operators.needs(tuple(methods))
        statistics = self.calibration.new_statistics(gap, needs)
        found = {name: _Answer(not_defined=str(statistics.no_feed_forward)) for name in methods
                 if statistics.no_feed_forward and not is_quick(name)}  # fmt: skip
        methods = [name for name in methods if name not in found]
        if not methods:
            return found
        with run.timed("statistics"):
            statistics = kept.statistics("calibration", gap, needs, cancel)
            held_out = None
            if e.ridge == "auto" and needs and kept.windows("held_out"):
                held_out = kept.statistics("held_out", gap, needs, cancel)
        settings, fitted = Settings(e.ridge, e.rank, e.seed, held_out=held_out, cancel=cancel), {}
        with run.timed("solve"):
            for name in methods:
                if cancel is not None:
                    cancel.check()
                try:
                    fitted[name] = operators.method(name).fit(statistics, settings)
                except NotDefined as reason:
                    found[name] = _Answer(not_defined=str(reason))
            kept.keep_spectra("calibration", statistics)
        with run.timed("held-out error"):
            errors = kept.errors(gap, fitted, statistics.eps, cancel)
        for name, fit in fitted.items():
            found[name] = _Answer(fit, errors[name].residual(calibration_error(fit, statistics)))
        return found

    def _notices(self, removed: RemovedBlocks) -> list[str]:
        said, kept = [], self._kept
        for split, what in (("calibration", "Fitted on"), ("held_out", "Held-out errors are")):
            windows, of = kept.windows(split), self.calibration.splits[split]
            if not windows and len(of):
                said.append("No held-out states are kept; the held-out error waits for Run.")
            elif windows < len(of):
                tokens = of.first(windows).tokens
                said.append(f"{what} from the first {tokens:,} of {of.tokens:,} tokens, whose states are kept.")
        if len(removed.gaps) > 1:
            each = "Each gap is repaired by itself from the original's states"
            said.append(f"{each}; the error after all gaps, through the repaired model, waits for Run.")
        if self.experiment.distill:
            said.append("The operators are as fitted; distillation waits for Run.")
        return said


@dataclass(frozen=True, eq=False)
class _Answer:
    fitted: Fitted | None = None
    residual: Residual | None = None
    not_defined: str | None = None


def is_closed_form(name: str) -> bool:
    """Return whether a method is solved from sums at once: no descent, and no text that the model writes."""
    module = operators.method(name)
    return not inspect.isgeneratorfunction(module.fit) and not getattr(module, "GENERATED_TOKENS", 0)


def is_quick(name: str) -> bool:
    """Return whether a method is solved in closed form from the states at the gap's two ends."""
    branch = any(need in MOMENTS and MOMENTS[need][0] in OF_THE_BRANCH for need in operators.method(name).NEEDS)
    return is_closed_form(name) and not branch


def quick_methods(names: Iterable[str]) -> list[str]:
    """Return those of the methods that :meth:`Preview.quick` answers."""
    return [name for name in names if is_quick(name)]


def neighbours(removed: RemovedBlocks, blocks: int) -> Iterator[range]:
    """Yield the gaps one key press away from a single gap: both ends moved by one block, as arrows do, or either."""
    if len(removed.gaps) != 1:
        return
    gap = removed.gaps[0]
    for first, last in ((1, 1), (-1, -1), (0, 1), (0, -1), (-1, 0), (1, 0)):
        moved = range(gap.start + first, gap.stop + last)
        if moved and moved.start >= 0 and moved.stop <= blocks and len(moved) < blocks:
            yield moved


def _key(gap: range, name: str, experiment: Experiment) -> tuple:
    return ("answer", gap, name, experiment.ridge, experiment.rank, experiment.seed)


def _describe(result: MethodResult, fits: Sequence[Fitted] | None) -> None:
    """Fill in what a fit says about itself, or what the method waits for."""
    if fits:
        result.describe(fits)
    elif fits is None and result.not_defined is None:
        result.note = LATER if is_closed_form(result.method) else WAITS
