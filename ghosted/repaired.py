"""What is the repaired model of an experiment, with everything that is known of it? What can be exported.

It holds the original, one method's repairs of it, the run that measured them, and the record for a ``ghost.json``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from ghosted.errors import InputError, NotDefined
from ghosted.experiment import Experiment
from ghosted.ghost import Base, Ghost, Numbers, weights_fingerprint
from ghosted.plain import to_plain
from ghosted.progress import CancelFlag, Steps
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.workspace import Workspace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.models import LoadedModel
    from ghosted.operators import Fitted
    from ghosted.pruned import Repair
    from ghosted.results import Run
    from ghosted.texts import Slices

PARTS = ("boundary", "scores")
NO_LICENCE = "not stated; see the base model"
_HERE = ("folder", "gguf", "memory")


@dataclass(frozen=True, eq=False)
class Repaired:
    """A model that can be exported.

    Attributes:
        run: the experiment and its numbers.
        loaded: the original.
        method: how its gaps are repaired.
        fits: one per gap, in order.
        slices: the texts that were read.
    """

    run: Run
    loaded: LoadedModel
    method: str
    fits: list[Fitted]
    slices: Slices

    @property
    def removed(self) -> RemovedBlocks:
        """Which blocks are gone."""
        return self.run.removed

    @property
    def original(self) -> PreTrainedModel:
        """The model that was repaired."""
        return self.loaded.model

    @property
    def device(self) -> str:
        """Where it runs."""
        return self.loaded.device

    @property
    def stored(self) -> int:
        """Numbers of the repair that are saved."""
        return sum(tensor.numel() for fit in self.fits for tensor in fit.tensors().values())

    @property
    def dense(self) -> int:
        """Numbers of the operators as the model applies them."""
        return sum(repair.M.numel() for repair in self.repairs)

    @property
    def repairs(self) -> list[Repair]:
        """At most one per gap."""
        from ghosted.fitting import repairs_of

        return repairs_of(self.removed.gaps, self.fits)

    def view(self) -> PreTrainedModel:
        """Return the repaired model as the page runs it, sharing the original's weights."""
        from ghosted.pruned import pruned_view

        return pruned_view(self.loaded.model, self.removed, self.repairs)

    def ghost(self, kind: str) -> Ghost:
        """Return the record of this model for an export of that kind; no path of this machine is in it."""
        from ghosted.adapter import records

        run = self.run
        return Ghost(
            kind=kind, base=self._base(), removed=str(self.removed), method=self.method,
            repairs=records([gap_name(gap) for gap in self.removed.gaps], self.fits),
            experiment=self._experiment().to_json(), dense_perplexity=dict(run.dense_perplexity),
            numbers=[_numbers(result) for result in run.methods if result.method in ("none", self.method)],
            protocols={name: to_plain(protocol) for name, protocol in run.protocols.items()},
            warnings=list(run.warnings), made_by=_versions(),
        )

    def _base(self) -> Base:
        facts = self.loaded.facts
        name = PurePath(facts.name).name if facts.kind in _HERE else facts.name
        return Base(
            name=name, kind=facts.kind, label=facts.label, architecture=facts.architecture, blocks=facts.blocks,
            width=facts.width, fingerprint=weights_fingerprint(self.loaded.model), dtype=self.loaded.dtype,
            licence=licence(facts), revision=facts.revision,
        )

    def _experiment(self) -> Experiment:
        """Return the settings with each file by the sha256 of its content, and a model of this machine not at all."""
        from ghosted.texts import SOURCES

        e, slices = self.run.experiment, self.slices

        def text(name: str | None, digest: str) -> str | None:
            return name if name is None or name in SOURCES else f"sha256:{digest}"

        by_label = zip(e.evaluate, slices.evaluation.values(), strict=False)
        return dataclasses.replace(
            e, text=text(e.text, slices.calibration.digest),
            held_out=e.held_out and text(e.held_out, slices.held_out.digest),
            evaluate=tuple(text(name, windows.digest) for name, windows in by_label),
            model="local" if self.loaded.facts.kind in _HERE else e.model,
        )


def repaired(
    experiment: Experiment, workspace: Workspace | None = None, cancel: CancelFlag | None = None,
    parts: tuple[str, ...] = PARTS,
) -> Steps[Repaired]:
    """Run an experiment of one method, with plain pruning beside it, and keep what it fitted.

    Args:
        experiment: its ``methods`` are one method; ``none`` may stand beside another.
        workspace: holds the model between runs; a new one by default. Its lock is held while this runs.
        cancel: checked between batches.
        parts: what is measured beside the fit.

    Raises:
        InputError: not just one method is named.
        NotDefined: the method has no meaning here; the message says why.
        GhostedError: as :func:`ghosted.run.run`.
    """
    from ghosted.run import Pipeline

    method = method_of(experiment)
    experiment = dataclasses.replace(experiment, methods=("none", method))
    workspace = workspace or Workspace()
    with workspace.lock:
        pipeline = Pipeline(experiment, workspace, cancel)
        run = yield from pipeline.steps(parts)
        if method not in pipeline.fitted:
            raise NotDefined(run.method(method).not_defined)
        return Repaired(run, workspace.loaded, method, pipeline.fitted[method], pipeline.slices)


def method_of(experiment: Experiment) -> str:
    """Return the one method of an experiment; ``none`` counts only where it stands alone.

    Raises:
        InputError: there are several.
    """
    names = [name for name in experiment.methods if name != "none"]
    if len(names) > 1:
        raise InputError(f"One model is exported at a time: name one method, such as {names[-1]}.")
    return names[0] if names else "none"


def licence(facts: Any) -> str:
    """Return one line on the licence of a base model: the catalogue's, or what its own card says."""
    from ghosted.models import entries

    if entry := entries.find(facts.name):
        return entry.licence
    card = Path(facts.name) / "README.md" if facts.kind == "folder" else None
    try:
        lines = card.read_text("utf-8", errors="replace")[:20_000].splitlines() if card else []
    except OSError:
        lines = []
    said = next((line.partition(":")[2].strip() for line in lines if line.startswith("license:")), "")
    return said[:80] or NO_LICENCE


def _numbers(result: Any) -> Numbers:
    residual = result.residual
    measured = {} if residual is None else {
        name: getattr(residual, name) for name in ("calibration", "held_out", "median")
    }
    return Numbers(result.method, perplexity=dict(result.perplexity), damage=dict(result.damage), **measured)


def _versions() -> dict[str, str]:
    import torch
    import transformers

    from ghosted import __version__

    return {"ghosted": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
