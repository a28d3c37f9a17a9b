"""What will an export be, before anything is fitted? Its size follows from the model's shape, blocks and method.

An :class:`Expected` stands in for a :class:`~ghosted.repaired.Repaired` wherever only that is asked: both are a
:class:`Shape`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ghosted import operators
from ghosted.errors import NotDefined
from ghosted.removed import RemovedBlocks

if TYPE_CHECKING:
    from ghosted.experiment import Experiment
    from ghosted.formats import Foreseen
    from ghosted.workspace import Workspace


class Shape(Protocol):
    """What sizes and refusals are read off.

    Attributes:
        original: the transformers model, with or without its numbers.
        removed: which blocks go.
        method: how the gaps are repaired.
        device: where the model runs.
        stored: numbers of the repair that are saved.
        dense: numbers of its operators as the model applies them.
    """

    original: Any
    removed: RemovedBlocks
    method: str
    device: str
    stored: int
    dense: int


@dataclass(frozen=True, eq=False)
class Expected:
    """A repaired model that was not fitted yet; attributes as :class:`Shape`."""

    original: Any
    removed: RemovedBlocks
    method: str
    device: str
    stored: int
    dense: int


def look_ahead(experiment: Experiment, name: str, workspace: Workspace | None = None) -> Foreseen | None:
    """Foresee the export of an experiment without reading any weights.

    Args:
        experiment: of one method.
        name: the format.
        workspace: has the model in memory, perhaps.

    Returns:
        ``None`` where the model's config is not on this machine yet, or a criterion is still to choose the blocks.

    Raises:
        InputError, NotDefined, ResourceError: as :func:`ghosted.formats.foresee`.
        ModelError: the model cannot be used.
    """
    from ghosted import machine, models
    from ghosted.formats import _round_trip, check_removes, foresee
    from ghosted.models.families import blocks_of

    check_removes(experiment.remove, experiment.criterion)
    if experiment.criterion != "manual":
        return None
    here = workspace is not None and workspace.holds(experiment)
    original = workspace.loaded.model if here else models.skeleton(
        experiment.model, experiment.revision, experiment.dtype
    )
    if original is None:
        return None
    removed = RemovedBlocks.parse(experiment.remove, len(blocks_of(original)))
    device = workspace.loaded.device if here else machine.device()
    return foresee(name, expected(original, removed, experiment, device),
                   unread=0 if here else _round_trip.bytes_beside(original))  # fmt: skip


def expected(original: Any, removed: RemovedBlocks, experiment: Experiment, device: str) -> Expected:
    """Return what an experiment of one method will export.

    Args:
        original: the model, or its skeleton on the meta device (:func:`ghosted.models.skeleton`).
        removed: which blocks go.
        experiment: names the method and its rank.
        device: where the model runs.

    Raises:
        InputError: several methods are named, or there is none of that name.
    """
    from ghosted.models.families import find_family
    from ghosted.pruned import hidden_channels
    from ghosted.repaired import method_of

    method, family = method_of(experiment), find_family(original)
    stored = dense = 0
    for gap in removed.gaps:
        try:
            hidden = hidden_channels(original, gap, family)
        except NotDefined:
            hidden = 0
        more = operators.numbers(method, original.config.hidden_size, hidden, experiment.rank)
        stored, dense = stored + more[0], dense + more[1]
    return Expected(original, removed, method, device, stored, dense)
