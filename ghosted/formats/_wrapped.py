"""How does a pruned and repaired model become one that transformers can save? Wrapped in ``modelling_ghosted``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ghosted.models.families import Family, blocks_of, find_family, norm_eps
from ghosted.pruned import OF_THE_BRANCH, Repair, check_repairs, pruned_view
from ghosted.removed import RemovedBlocks, gap_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.modelling_ghosted import GhostedForCausalLM


def wrapped(model: PreTrainedModel, removed: RemovedBlocks, repairs: Sequence[Repair]) -> GhostedForCausalLM:
    """Return the repaired model as the class that an exported checkpoint has, sharing every weight with ``model``.

    Args:
        model: the original; it is only read.
        removed: which blocks go.
        repairs: at most one per gap.

    Raises:
        GhostedError: as :func:`~ghosted.pruned.pruned_view`.
    """
    from ghosted.modelling_ghosted import GhostedConfig, GhostedForCausalLM

    view, family = pruned_view(model, removed), find_family(model)
    check_repairs(model, removed, repairs)
    kept = removed.survivors(len(blocks_of(model)))
    base = copy.deepcopy(view.config)
    base._name_or_path = ""  # where it lay on this machine
    config = GhostedConfig(
        text_config=base, blocks_path=family.blocks_path,
        repairs=[_about(model, repair, kept, family) for repair in repairs], dtype=view.dtype,
    )
    with torch.device("meta"):
        made = GhostedForCausalLM(config)
    made.model = view
    for place, repair in zip(made.repairs, repairs, strict=True):
        place.M = torch.nn.Parameter(repair.M.to(device=view.device, dtype=torch.float32))
    made.connect()
    made.generation_config = view.generation_config
    return made.eval().requires_grad_(False)


def _about(model: PreTrainedModel, repair: Repair, kept: Sequence[int], family: Family) -> dict[str, Any]:
    """Return where an operator hangs in the pruned model, as the configuration of ``modelling_ghosted`` says it."""
    about = {"gap": gap_name(repair.gap), "feature": repair.feature, "rows": len(repair.M)}
    if repair.feature in OF_THE_BRANCH:
        return about | {
            "block": kept.index(repair.gap.start - 1), "branch": family.feed_forward, "last_map": family.merge_into,
            "copied": family.changed_in_place,
        }
    after = repair.gap.stop not in kept
    about |= {"block": len(kept) - 1 if after else kept.index(repair.gap.stop), "after": after}
    return about | ({"eps": norm_eps(model, repair.gap.stop)} if repair.feature == "normalised" else {})
