"""What is the model without these blocks, without a second copy of its weights? A view.

A view is a copy of the module tree with its own modules, hook dictionaries and configuration, but the *same* parameter
and buffer objects. The original is never touched, so it and any number of views can run at the same time. Operators
hang on the view as hooks, with one expression everywhere: ``x + (x.float() @ M).to(x.dtype)``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ghosted.errors import InputError, ModelError, NotDefined
from ghosted.models.families import Family, blocks_of, find_family, last_map, norm_eps
from ghosted.models.placement import execution_device, shared_parts
from ghosted.removed import RemovedBlocks, gap_name

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

OF_THE_BRANCH = ("feed_forward", "joint")
"""Features that are read off the feed-forward branch before the gap; only they merge into its weights."""
FEATURES = ("state", "normalised", *OF_THE_BRANCH)
_STATES = "ghosted_surviving_states"
_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Repair:
    """The operator of one gap, W = I + M, acting on rows: ``x + φ M``.

    Attributes:
        gap: the removed blocks it stands in for, half-open.
        feature: what φ is. ``"state"``: the state x that enters the gap. ``"normalised"``: x/rms(x), with the eps of
            the norm that reads x next. ``"feed_forward"``: what the feed-forward branch of the block before the gap
            adds to the residual stream (ReplaceMe, arXiv 2505.02819). ``"joint"``: [x − A, h], what bypasses that
            branch and the F hidden channels that its last linear map reads, side by side.
        M: ``(C, C)`` float32; ``(C + F, C)`` for ``joint``, or ``(C, C)`` where its lower rows are merged into that
            map.
    """

    gap: range
    feature: str
    M: torch.Tensor


def normalised(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x/√(mean(x²) + eps) per token: RMS normalisation without weight; ``x`` is ``(…, C)`` float32."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def pruned_view(model: PreTrainedModel, removed: RemovedBlocks, repairs: Sequence[Repair] = ()) -> PreTrainedModel:
    """Return ``model`` without the removed blocks, repaired, sharing every weight.

    With nothing removed its logits equal the original's bit for bit. Hooks that others put on the original are not
    part of the view.

    Args:
        model: the original, not itself a view; it is only read.
        removed: which blocks go.
        repairs: at most one per gap; a gap without one is plainly cut.

    Raises:
        InputError: a block does not exist, none would survive, or a repair does not fit.
        NotDefined: a feed-forward repair of a gap that starts at block 0, or in a family where the branch is unknown.
        ModelError: the model has no list of blocks, or blocks with configurations of their own.
        ValueError: ``model`` is a view; its repairs would be lost.
    """
    if is_view(model):
        raise ValueError("A view is taken from the original model, not from another view.")
    if getattr(model.config, "is_heterogeneous", False):
        raise ModelError(f"Each block of this {model.config.model_type} model has a configuration of its own; none "
                         "can be removed.")  # fmt: skip
    family, blocks = find_family(model), blocks_of(model)
    removed.check(len(blocks))
    check_repairs(model, removed, repairs)
    kept = removed.survivors(len(blocks))
    view = _copy_sharing_tensors(model, [blocks[i] for i in removed.blocks])
    _keep(view, view.get_submodule(family.blocks_path), kept)
    view.__dict__[_STATES] = (*kept, len(blocks))
    for repair in repairs:
        eps = norm_eps(model, repair.gap.stop)
        _attach(view.get_submodule(family.blocks_path), repair, kept, family, eps)
    return view


def is_view(model: nn.Module) -> bool:
    """Whether ``model`` was made by :func:`pruned_view`, so that hooks may be put on it."""
    return _STATES in vars(model)


def surviving_states(view: nn.Module) -> tuple[int, ...]:
    """Return which state of the original each state of ``view`` stands for.

    One entry per surviving block (the state that enters it) and, last, L: the state that enters the final norm. For
    a model that is no view: 0 … L.
    """
    return vars(view).get(_STATES) or tuple(range(len(blocks_of(view)) + 1))


def with_hidden_state(args: tuple, kwargs: dict[str, Any], state: torch.Tensor) -> tuple[tuple, dict[str, Any]]:
    """Return a block's arguments with its hidden state replaced; some families pass it by position, some by name."""
    return ((state, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": state})


def hidden_state(args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    """Return the hidden state ``(b, t, C)`` among a block's arguments."""
    return args[0] if args else kwargs["hidden_states"]


def check_repairs(model: PreTrainedModel, removed: RemovedBlocks, repairs: Sequence[Repair]) -> None:
    """Raise what :func:`pruned_view` raises where a repair does not fit the gaps that ``removed`` leaves."""
    for repair in repairs:
        _check(repair, removed, repairs, find_family(model), model)


def _check(repair: Repair, removed: RemovedBlocks, repairs: Sequence[Repair], family: Family, model: nn.Module) -> None:
    if repair.gap not in removed.gaps:
        what = f"blocks {removed} are" if removed.gaps else "nothing is"
        raise InputError(f"There is no gap {gap_name(repair.gap)} to repair; {what} removed.")
    if sum(other.gap == repair.gap for other in repairs) > 1:
        raise InputError(f"The gap {gap_name(repair.gap)} has two repairs; give it one.")
    if repair.feature not in FEATURES:
        raise InputError(f"A repair acts on {' or '.join(FEATURES)}, not on {repair.feature!r}.")
    width = model.config.get_text_config(decoder=True).hidden_size
    shapes = [(width, width)]
    if repair.feature == "joint":
        shapes.append((width + hidden_channels(model, repair.gap, family), width))
    if tuple(repair.M.shape) not in shapes:
        expected, found = (" × ".join(map(str, shape)) for shape in (shapes[-1], repair.M.shape))
        raise InputError(f"An operator of this model is {expected}, not {found}.")
    if repair.feature == "feed_forward":
        check_feed_forward(repair.gap, family)


def check_feed_forward(gap: range, family: Family) -> None:
    """Raise :class:`NotDefined` unless a block before ``gap`` has a feed-forward branch that can be recorded."""
    if gap.start == 0:
        raise NotDefined("The gap starts at block 0: there is no block before it whose feed-forward branch could "
                         "be used.")  # fmt: skip
    if family.feed_forward is None:
        raise NotDefined(family.no_feed_forward)


def hidden_channels(model: nn.Module, gap: range, family: Family) -> int:
    """Return F, the hidden channels that the last linear map of the branch before ``gap`` reads.

    Raises:
        NotDefined: the gap starts at block 0, or no single linear map ends that branch.
    """
    check_feed_forward(gap, family)
    end = last_map(blocks_of(model)[gap.start - 1], family)
    if end is None:
        raise NotDefined(family.no_merge or "No single linear map ends the feed-forward branch of this "
                         f"{family.model_type} model.")  # fmt: skip
    return end.weight.numel() // model.config.get_text_config(decoder=True).hidden_size


def _copy_sharing_tensors(model: PreTrainedModel, dropped: Sequence[nn.Module]) -> PreTrainedModel:
    """Deep-copy the module tree; tensors stay the same objects, hooks stay behind, dropped blocks become stubs.

    Only the hooks by which accelerate places a module come along, as copies that read the same weights.
    """
    memo: dict[int, Any] = {id(block): nn.Identity() for block in dropped}
    memo.update((id(part), part) for part in shared_parts(model))
    for module in model.modules():
        tensors = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        memo.update((id(tensor), tensor) for tensor in tensors if isinstance(tensor, torch.Tensor))
        for name in _HOOKS:
            if hooks := vars(module).get(name):
                memo[id(hooks)] = type(hooks)()
    view = copy.deepcopy(model, memo)
    for module in view.modules():
        # transformers puts its own recording hooks on a model once, on demand; the copy has to get them anew.
        vars(module).pop("_output_capturing_hooks_installed", None)
    return view


def _keep(view: PreTrainedModel, blocks: nn.ModuleList, kept: Sequence[int]) -> None:
    """Drop the stubs, renumber what survives (its place in the key-value cache), and make the configuration fit."""
    total, survivors = len(blocks), [blocks[i] for i in kept]
    del blocks[:]
    blocks.extend(survivors)
    for place, (was, block) in enumerate(zip(kept, survivors, strict=True)):
        for module in block.modules():
            if vars(module).get("layer_idx") == was:
                module.layer_idx = place
    for config in _configs(view):
        for name, value in list(vars(config).items()):
            per_block = isinstance(value, list | tuple) and len(value) == total and ("layer" in name or "block" in name)
            if per_block:
                setattr(config, name, type(value)(value[i] for i in kept))
        config.num_hidden_layers = len(kept)


def _configs(view: PreTrainedModel) -> Iterator[PreTrainedConfig]:
    """Every configuration of the decoder in the tree, once: modules hold references, seldom copies."""
    total, seen = view.config.get_text_config(decoder=True).num_hidden_layers, {}
    for module in view.modules():
        config = vars(module).get("config")
        if hasattr(config, "get_text_config"):
            for candidate in (config, config.get_text_config(decoder=True)):
                if getattr(candidate, "num_hidden_layers", None) == total:
                    seen[id(candidate)] = candidate
    yield from list(seen.values())


def _attach(blocks: nn.ModuleList, repair: Repair, kept: Sequence[int], family: Family, eps: float) -> None:
    if repair.feature in OF_THE_BRANCH:
        host = blocks[kept.index(repair.gap.start - 1)]
    else:
        host = blocks[kept.index(repair.gap.stop)] if repair.gap.stop in kept else blocks[-1]
    M = repair.M.to(device=execution_device(host), dtype=torch.float32)

    def apply(x: torch.Tensor) -> torch.Tensor:
        x = x.to(M.device)  # what enters a block may come from another device
        phi = normalised(x.float(), eps) if repair.feature == "normalised" else x.float()
        return x + (phi @ M).to(x.dtype)

    if repair.feature == "joint":
        _attach_joint(host, M, family)
    elif repair.feature == "feed_forward":
        host.get_submodule(family.feed_forward).register_forward_hook(lambda module, args, output: apply(output))
    elif repair.gap.stop in kept:
        host.register_forward_pre_hook(
            lambda module, args, kwargs: with_hidden_state(args, kwargs, apply(hidden_state(args, kwargs))),
            with_kwargs=True,
        )
    else:
        # The gap ends the model: what leaves the last surviving block is what enters the final norm, if there is one.
        host.register_forward_hook(
            lambda module, args, output: (
                (apply(output[0]), *output[1:]) if isinstance(output, tuple) else apply(output)
            )
        )


def _attach_joint(block: nn.Module, M: torch.Tensor, family: Family) -> None:
    """Hang ``[x - A, h] M`` on the block before the gap: h M on the branch's last map, (x - A) M on what leaves it."""
    added: list[torch.Tensor] = []
    bypass, hidden = M[: M.shape[1]], M[M.shape[1] :]
    if len(hidden):
        last_map(block, family).register_forward_hook(
            lambda module, args, output: output + (args[0].float() @ hidden).to(output.dtype)
        )

    def keep(module: nn.Module, args: tuple, output: torch.Tensor) -> None:
        added[:] = [output.clone() if family.changed_in_place else output]

    def apply(module: nn.Module, args: tuple, output: Any) -> Any:
        x = output[0] if isinstance(output, tuple) else output
        beside = x.float() - added.pop().view(x.shape).float()
        x = x + (beside @ bypass).to(x.dtype)
        return (x, *output[1:]) if isinstance(output, tuple) else x

    block.get_submodule(family.feed_forward).register_forward_hook(keep)
    block.register_forward_hook(apply)
