"""Can a repair of the feed-forward branch vanish into the model's own weights? Then nothing runs at run time.

What the branch adds is A = h Kᵀ + b, the output of its last linear map. A repair hands on A T with T = I + M, so

    Kᵀ → Kᵀ T and b → b T,

exactly, for every expert where there are several (the router's weights mix their outputs afterwards). Families that
normalise the branch's output after that map keep the run-time operator; the refusal says why. Of a ``joint`` repair,
x̂ = x + (x − A) M_x + h M_h, the second part vanishes, Kᵀ → Kᵀ + M_h, and the operator M_x stays.

Source: ReplaceMe (arXiv 2505.02819); ours for ``joint``. Cost: one product of order C per stored matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ghosted.errors import NotDefined
from ghosted.models.families import Family, blocks_of, find_family
from ghosted.models.placement import replace_weight, value
from ghosted.pruned import OF_THE_BRANCH, Repair, check_feed_forward, pruned_view, surviving_states
from ghosted.removed import RemovedBlocks

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def merged_tensors(model: PreTrainedModel, repair: Repair) -> dict[str, Tensor]:
    """Return the parameters that take up a repair, by their path inside the block before the gap.

    Args:
        model: the original, or a view that still has the block before the gap; it is only read.
        repair: of the feature ``feed_forward`` or ``joint``.

    Returns:
        New weight and, where the map has one, bias, in the model's dtype and shape (computed in float64).

    Raises:
        NotDefined: the repair is of another feature, the gap starts at block 0, or the family cannot merge it.
    """
    family = find_family(model)
    if repair.feature not in OF_THE_BRANCH:
        raise NotDefined("Only a repair of the feed-forward branch merges into the weights; this one acts on the "
                         "state between two blocks.")  # fmt: skip
    check_merges(repair.gap, family)
    block = blocks_of(model)[surviving_states(model).index(repair.gap.start - 1)]
    path = _last_map(block, family)
    if repair.feature == "joint":
        weight = _value(block, f"{path}.weight")
        hidden = repair.M[repair.M.shape[1] :].to(weight.device).double()
        more = hidden.mT if isinstance(block.get_submodule(path), nn.Linear) else hidden
        return {f"{path}.weight": (weight.detach().double() + more).to(weight.dtype)}
    T = torch.eye(len(repair.M), dtype=torch.float64) + repair.M.double().cpu()
    return {name: _times(_value(block, name), T, transposed) for name, transposed in _parameters(block, path)}


def check_merges(gap: range, family: Family) -> None:
    """Raise :class:`NotDefined` unless the branch before ``gap`` takes up an operator on its output; says why."""
    check_feed_forward(gap, family)
    if family.merge_into is None:
        raise NotDefined(family.no_merge)


def merged_view(model: PreTrainedModel, removed: RemovedBlocks, repairs: Sequence[Repair]) -> PreTrainedModel:
    """Return the pruned view whose repairs are merged into weights of its own, as far as they can be.

    All other weights are the original's; what does not merge hangs on the view as it always does.

    Args:
        model: the original; it is only read.
        removed: which blocks go.
        repairs: at most one per gap.

    Raises:
        NotDefined: a feed-forward repair cannot be merged in this family or at this gap.
        InputError: as :func:`~ghosted.pruned.pruned_view`.
    """
    merges = [repair for repair in repairs if repair.feature in OF_THE_BRANCH]
    new = [merged_tensors(model, repair) for repair in merges]
    pruned_view(model, removed, repairs)  # refuses what does not fit
    left = [
        replace(repair, M=repair.M[: repair.M.shape[1]]) if repair.feature == "joint" else repair
        for repair in repairs if repair.feature != "feed_forward"
    ]
    view = pruned_view(model, removed, left)
    for repair, tensors in zip(merges, new, strict=True):
        block = blocks_of(view)[surviving_states(view).index(repair.gap.start - 1)]
        for name, tensor in tensors.items():
            module, _, parameter = name.rpartition(".")
            owner = block.get_submodule(module)
            replace_weight(owner, parameter, tensor)
    return view


def _value(block: nn.Module, path: str) -> Tensor:
    owner, _, name = path.rpartition(".")
    return value(block.get_submodule(owner), name)


def _last_map(block: nn.Module, family: Family) -> str:
    """Return the path of the branch's last linear map in this block: some blocks of a mixture have no experts."""
    if ".experts." in family.merge_into and not hasattr(block.get_submodule(family.feed_forward), "experts"):
        return family.merge_into.replace(".experts.", ".")
    return family.merge_into


def _parameters(block: nn.Module, path: str) -> list[tuple[str, bool]]:
    """Return the parameters at ``path`` and whether each has its outputs in its last dimension."""
    parent, _, name = path.rpartition(".")
    end = getattr(block.get_submodule(parent), name)
    if isinstance(end, nn.Parameter):
        return [(path, False)]
    bias = [(f"{path}.bias", True)] if getattr(end, "bias", None) is not None else []
    return [(f"{path}.weight", not isinstance(end, nn.Linear)), *bias]


def _times(parameter: Tensor, T: Tensor, outputs_last: bool) -> Tensor:
    """Return the map followed by T; weights are ``(…, out, in)``, or ``(…, out)`` where ``outputs_last``."""
    T = T.to(parameter.device)
    old = parameter.detach().double()
    return (old @ T if outputs_last else T.mT @ old).to(parameter.dtype)
