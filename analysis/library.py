"""The page's one way into the library: what can be chosen, what a model is, and how an experiment is run.

Whatever pulls in torch is imported on first use, so that the page is up before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import measuring, zero_gpu
from analysis.measuring import Asked, Measured
from analysis.speech import say, say_of
from ghosted.errors import ResourceError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Steps
from ghosted.results import PARTS, Run
from ghosted.turn import Turn

TURN = Turn()
"""Answers that somebody waits for go first; runs, pictures and what is computed ahead stand back."""

if TYPE_CHECKING:
    from analysis.taking import Taken, Wanted


def model_choices() -> list[tuple[str, str]]:
    """Return ``(label, name)`` of the models in the catalogue."""
    from ghosted.models import catalogue

    return [(entry.label, entry.name) for entry in catalogue()]


def text_choices() -> list[tuple[str, str]]:
    """Return ``(label, name)`` of the texts that have a name."""
    from ghosted.texts import sources

    return [(say_of("texts", name, source.LABEL), name) for name, source in sources().items()]


def uploaded(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``(label, path)`` of a visitor's own texts, by their file names."""
    return [(Path(each).name, each) for each in sorted(paths)]


def describe(model: str) -> Any:
    """Return a model's facts (:class:`ghosted.models.ModelFacts`) from its config, before weights are fetched.

    Raises:
        ModelError: it cannot be found or used.
        ResourceError: it does not fit this machine.
    """
    from ghosted import models

    return models.describe(model)


def _run_here(
    experiment: Experiment, cancel: CancelFlag | None = None, parts: tuple[str, ...] = PARTS
) -> Steps[Run]:
    from ghosted.run import run as run_in

    return (yield from run_in(experiment, workspace=_workspace(), cancel=cancel, parts=parts))


def memory_needed(experiment: Experiment) -> int:
    """Return about how many bytes of memory a run takes, from its model's config.

    Raises:
        ModelError, ResourceError: the model cannot be used here.
    """
    from ghosted import plan

    return plan.memory_needed(_workspace().facts(experiment), experiment)


def measure(asked: Asked, cancel: CancelFlag | None = None) -> Steps[Measured]:
    """Measure what was asked for beside a run, in the same workspace."""
    from ghosted.evaluation import Plan, evaluate
    from ghosted.sensitivity import sensitivity

    experiment, what = asked.experiment, asked.what
    texts = (experiment.evaluate or (experiment.text,)) if "texts" in what else ()
    plan = Plan(window=measuring.WINDOW, windows=measuring.WINDOWS, tasks=asked.tasks, limit=asked.limit,
                probe="probe" in what, speed="speed" in what)
    evaluation = sources = None
    if set(what) - {"sensitivity"}:
        evaluation = yield from evaluate(replace(experiment, evaluate=texts), plan, _workspace(), cancel)
    if "sensitivity" in what:
        sources = yield from sensitivity(experiment, [experiment.text], measuring.SEQUENCES, _workspace(), cancel)
    return Measured(asked, evaluation, sources)


def take(wanted: Wanted, cancel: CancelFlag | None = None, limit: int | None = None) -> Steps[Taken]:
    """Export a model as one file among gradio's temporary ones, from the process's one workspace."""
    from gradio.utils import get_upload_folder

    from analysis import taking

    _refuse_lent()
    return (yield from taking.take(wanted, _workspace(), Path(get_upload_folder()), limit, cancel))


def outlook(wanted: Wanted, limit: int | None = None) -> str:
    """Return what :func:`take` will do, or raise what it would refuse."""
    from analysis import taking

    _refuse_lent()
    return taking.outlook(wanted, _workspace(), limit)


def _refuse_lent() -> None:
    if zero_gpu.is_here():
        raise ResourceError(say("refused.lent"))


_run_anywhere = zero_gpu.lent(_run_here, describe)


def run(experiment: Experiment, cancel: CancelFlag | None = None, parts: tuple[str, ...] = PARTS) -> Steps[Run]:
    """Run an experiment, or parts of it, in the process's one workspace, which keeps the one loaded model.

    On a Space that lends GPUs it runs there.
    """
    return (yield from _run_anywhere(experiment, cancel=cancel, parts=parts))


def preview(experiment: Experiment) -> Any:
    """Return what answers for other ranges from states at hand (:class:`ghosted.preview.Preview`), or ``None``."""
    return _workspace().preview(experiment)


def prepare_default() -> None:
    """Fetch and convert the default model now, so that no visitor waits for it; the page comes up without it, too."""
    from ghosted.errors import GhostedError
    from ghosted.models import load_tokenizer

    try:
        load_tokenizer(Experiment().model)
    except GhostedError as reason:
        logging.getLogger(__name__).warning("the default model is not ready: %s", reason)


@cache
def _workspace() -> Any:
    from ghosted.run import Workspace

    return Workspace(keeps_states=True, turn=TURN)
