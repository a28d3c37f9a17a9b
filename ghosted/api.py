"""What does a script call? The steps of a run, one function each, without the events that a page listens to.

Each waits until its work is done; ``on_event`` is handed what happens meanwhile (``print`` shows it).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghosted import criteria, operators
from ghosted.errors import expect
from ghosted.experiment import DTYPES, Experiment
from ghosted.progress import drain
from ghosted.removed import RemovedBlocks
from ghosted.workspace import Workspace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.calibration import Calibration
    from ghosted.formats import Exported
    from ghosted.models import LoadedModel
    from ghosted.pruned import Repair
    from ghosted.results import Choice, Column, Run

OnEvent = Callable[[Any], None] | None


def load_model(
    name: str = "smollm2-135m", *, revision: str | None = None, dtype: str = "auto", device: str | None = None,
    on_event: OnEvent = None,
) -> LoadedModel:
    """Return a model with its tokenizer; ``.model`` is the transformers model.

    Args:
        name: catalogue name, ``owner/name`` on the Hub, folder, or ``.gguf``.
        revision: branch, tag or commit on the Hub.
        dtype: ``float32``, ``bfloat16``, or ``auto``: what this machine is fastest in.
        device: by default the machine's best.
        on_event: sees the progress.

    Raises:
        ModelError, ResourceError: it cannot be used here; the message says why.

    Example:
        >>> import ghosted
        >>> model = ghosted.load_model("smollm2-135m")
    """
    from ghosted import models

    expect(isinstance(name, str), "name", "a text such as 'smollm2-135m'", name)
    expect(dtype in DTYPES, "dtype", "auto, float32 or bfloat16", dtype)
    return drain(models.load(name, revision=revision, dtype=dtype, device=device), on_event)


def calibrate(
    model: LoadedModel, experiment: Experiment | None = None, *, on_event: OnEvent = None, **settings: Any
) -> Calibration:
    """Run calibration text through the unpruned model; what it returns serves every choice of blocks and every fit.

    Args:
        model: from :func:`load_model`.
        experiment: gives text, tokens, window and held-out text.
        on_event: sees the progress.
        **settings: fields of :class:`~ghosted.experiment.Experiment` that differ from it.

    Returns:
        The calibration: ``similarity.cosine`` of all pairs of states, (L + 1) × (L + 1), and each gap's statistics.

    Raises:
        TextError: the text cannot be read or is too short.

    Example:
        >>> calibration = ghosted.calibrate(model, tokens=16_384)
    """
    from ghosted import texts

    _check_model(model)
    experiment = _with(experiment, settings)
    operators.needs(experiment.methods)  # refuses a method that there is not
    workspace = Workspace(model, keeps_states=True)
    removed = RemovedBlocks.parse(experiment.remove, model.blocks)
    with workspace.lock:
        slices = drain(texts.slices(experiment, model, None), on_event)
        needs = operators.needs(experiment.methods) if removed.gaps else frozenset()
        return drain(workspace.calibration(experiment, slices, removed.gaps, needs), on_event)


def choose(
    calibration: Calibration, criterion: str = "cosine", count: int = 5, *, seed: int = 0, on_event: OnEvent = None
) -> Choice:
    """Return the blocks that a criterion removes, with its runner-up and all candidates.

    Args:
        calibration: from :func:`calibrate`.
        criterion: name of a criterion.
        count: blocks to remove.
        seed: of criteria that draw random numbers.
        on_event: sees the progress.

    Returns:
        The choice: ``remove`` (such as ``12-16``), ``score``, ``runner_up`` and ``candidates``.

    Raises:
        InputError: there is no such criterion, or the model has too few blocks.

    Example:
        >>> choice = ghosted.choose(calibration, "cosine", 5)
        >>> removed = choice.remove
    """
    criteria.check(criterion, count, calibration.loaded.blocks)
    evidence = criteria.Evidence(calibration.similarity, calibration, seed, None)
    return drain(criteria.choose(criterion, evidence, count), on_event)


def fit(
    calibration: Calibration, remove: str, method: str = "ghosted", *, ridge: float | str = 1e-6,
    rank: int | None = None, order: str = "sequential", seed: int = 0, on_event: OnEvent = None,
) -> list[Repair]:
    """Fit a method to every gap that ``remove`` leaves, and return the repairs; plain pruning has none.

    Args:
        calibration: from :func:`calibrate`.
        remove: removed blocks, such as ``3,12-17``.
        method: name of a method.
        ridge: λ relative to ``mean(diag G)``, or ``auto``.
        rank: of ``low-rank``.
        order: ``sequential`` or ``independent``, of several gaps.
        seed: of methods that draw random numbers.
        on_event: sees the progress.

    Returns:
        One repair per gap; ``M`` is C × C where the operator is x + xM.

    Raises:
        NotDefined: the method has no meaning here; the message says why.

    Example:
        >>> repairs = ghosted.fit(calibration, "14-18", "ghosted")
        >>> tuple(repairs[0].M.shape) == (model.width, model.width)
        True
    """
    from ghosted.fitting import fit_gaps, repairs_of

    Experiment(methods=(method,), ridge=ridge, rank=rank, fit=order, seed=seed)  # refuses what makes no sense
    removed = RemovedBlocks.parse(remove, calibration.loaded.blocks)
    settings = operators.Settings(ridge, rank, seed)
    fits = drain(fit_gaps(calibration, removed, method, settings, sequential=order == "sequential"), on_event)
    return repairs_of(removed.gaps, fits)


def prune(model: LoadedModel, remove: str, repairs: Sequence[Repair] = ()) -> PreTrainedModel:
    """Return the model without these blocks, repaired; it shares every weight with ``model``, which stays as it is.

    Args:
        model: from :func:`load_model`.
        remove: removed blocks, such as ``3,12-17``.
        repairs: from :func:`fit`, one per gap; none is plain pruning.

    Raises:
        InputError: a block does not exist, none would survive, or a repair does not fit.

    Example:
        >>> repaired = ghosted.prune(model, "14-18", repairs)
    """
    from ghosted.pruned import Repair, pruned_view

    _check_model(model)
    expect(isinstance(remove, str), "remove", "a text such as '14-18'", remove)
    fits = isinstance(repairs, list | tuple) and all(isinstance(each, Repair) for each in repairs)
    expect(fits, "repairs", "what ghosted.fit returned", repairs)
    return pruned_view(model.model, RemovedBlocks.parse(remove, model.blocks), repairs)


def generate(
    model: LoadedModel, prompt: str, variants: Mapping[str, PreTrainedModel] | None = None, *,
    max_new_tokens: int = 64, temperature: float = 0.0, seed: int = 0, chat: bool = False, on_event: OnEvent = None,
) -> list[Column]:
    """Continue a prompt with the original and with variants of it; the first column is ``original``.

    Args:
        model: from :func:`load_model`.
        prompt: what is continued.
        variants: pruned models by name, from :func:`prune`.
        max_new_tokens: of each column.
        temperature: 0 is greedy.
        seed: of sampling; the same noise in every column.
        chat: wrap the prompt in the chat template.
        on_event: sees the columns grow.

    Returns:
        One column per model: ``text``, ``tokens``, ``diverges_at``, ``kl`` in nats at each new token.

    Raises:
        InputError: there is no prompt, or a number makes no sense.

    Example:
        >>> columns = ghosted.generate(model, "The sea", {"repaired": repaired}, max_new_tokens=8)
        >>> [column.method for column in columns]
        ['original', 'repaired']
    """
    from ghosted import generation

    _check_model(model)
    expect(isinstance(prompt, str), "prompt", "a text", prompt)
    expect(variants is None or isinstance(variants, Mapping), "variants", "models by name", variants)
    models = {"original": model.model} | dict(variants or {})
    return drain(generation.generate(
        models, model.tokenizer, prompt, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed, chat=chat,
    ), on_event).columns  # fmt: skip


def evaluate(
    experiment: Experiment | None = None, model: LoadedModel | None = None, *, on_event: OnEvent = None, **settings: Any
) -> Run:
    """Measure what repairs leave: error at the boundary, and perplexity with its protocol, on text never fitted to.

    Args:
        experiment: blocks (or a criterion), methods, texts.
        model: one in memory already, in the place of the experiment's own.
        on_event: sees the progress.
        **settings: fields of :class:`~ghosted.experiment.Experiment` that differ from it.

    Returns:
        The run: ``run.method("ghosted").perplexity`` and ``run.protocols`` by text, ``run.warnings``.

    Raises:
        GhostedError: any of them; the message is one sentence that says what to do.

    Example:
        >>> run = ghosted.evaluate(model=model, remove="14-18", methods=("none", "ghosted"))
        >>> error, perplexities = run.method("ghosted").residual.held_out, run.method("ghosted").perplexity
    """
    from ghosted.run import run

    if model is not None:
        _check_model(model)
    workspace = Workspace(model) if model is not None else None
    return drain(run(_with(experiment, settings), workspace, parts=("boundary", "scores")), on_event)


def export(
    experiment: Experiment, form: str, out: str | Path, *, model: LoadedModel | None = None, overwrite: bool = False,
    on_event: OnEvent = None,
) -> Exported:
    """Fit the experiment's one method, measure it, write it, and read it again in a new process.

    Args:
        experiment: names one method.
        form: ``adapter``, ``checkpoint``, ``merged`` or ``mergekit``.
        out: the folder to make.
        model: one in memory already, in the place of the experiment's own.
        overwrite: replace an earlier export there.
        on_event: sees the progress.

    Raises:
        InputError: several methods are named, or the folder is taken.
        NotDefined: the format does not apply; the message says why.
        ResourceError: the folder cannot be written, or disk or memory are not enough.
        ModelError: what was written does not read back as the same model; then nothing is left.

    Example:
        >>> experiment = ghosted.Experiment(remove="14-18", methods=("ghosted",))
        >>> exported = ghosted.export(experiment, "adapter", "my-adapter", model=model)
    """
    from ghosted import formats
    from ghosted.repaired import repaired

    workspace = Workspace(model)
    formats.prepare(experiment, form, out, overwrite, workspace)
    made = drain(repaired(experiment, workspace), on_event)
    return drain(formats.export(made, form, out, overwrite=overwrite), on_event)


def _with(experiment: Experiment | None, settings: dict[str, Any]) -> Experiment:
    fits = experiment is None or isinstance(experiment, Experiment)
    expect(fits, "experiment", "a ghosted.Experiment", experiment)
    return dataclasses.replace(experiment or Experiment(), **settings)


def _check_model(model: Any) -> None:
    from ghosted.models import LoadedModel

    expect(isinstance(model, LoadedModel), "model", "what ghosted.load_model returned", model)
