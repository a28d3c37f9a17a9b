"""Where does a part of a model compute, and what does its weight hold, when the model is larger than one device?

accelerate spreads a model over devices, memory and disk by hooks on its modules: a weight that is not resident is a
placeholder on torch's ``meta`` device, its numbers come from the hook's ``weights_map`` just before the module runs. A
model without such hooks computes where its weights are. Nothing here imports accelerate.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn


def align_hooks(module: nn.Module) -> Iterator[Any]:
    """Yield the hooks by which accelerate places this very module, not its submodules."""
    waiting = [vars(module).get("_hf_hook")]
    while waiting:
        hook = waiting.pop(0)
        if hook is not None:
            yield hook
            waiting.extend(getattr(hook, "hooks", ()))


def execution_device(module: nn.Module) -> torch.device:
    """Return the device on which a module takes its input: the first that its parts name, else the CPU."""
    for part in module.modules():
        for hook in align_hooks(part):
            if getattr(hook, "execution_device", None) is not None:
                return torch.device(hook.execution_device)
        for tensor in part._parameters.values():
            if tensor is not None and not tensor.is_meta:
                return tensor.device
    return torch.device("cpu")


def is_placed(model: nn.Module) -> bool:
    """Return whether accelerate has spread this model, so that it must not be moved as a whole."""
    return any(True for module in model.modules() for _ in align_hooks(module))


def value(module: nn.Module, name: str) -> Tensor:
    """Return the numbers of a module's own parameter or buffer, wherever they are kept."""
    tensor = getattr(module, name)
    if tensor.is_meta:
        for hook in align_hooks(module):
            weights = getattr(hook, "weights_map", None)
            if weights is not None:
                with suppress(KeyError):
                    return weights[name]
    return tensor


def named_values(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield name and numbers of every parameter, then of every buffer, tied ones once; as a model in one piece does."""
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    for kind in ("named_parameters", "named_buffers"):
        for path, tensor in getattr(model, kind)():
            if tensor.is_meta and path in tied:
                continue
            owner, _, name = path.rpartition(".")
            yield path, value(model.get_submodule(owner), name)


def replace_weight(module: nn.Module, name: str, new: Tensor) -> None:
    """Give a module, whose hooks are its own, another weight; a hook that loads weights then loads this one."""
    setattr(module, name, nn.Parameter(new, requires_grad=False))
    for hook in align_hooks(module):
        if getattr(hook, "offload", False) and getattr(hook, "weights_map", None) is not None:
            hook.weights_map = ChainMap({name: new}, hook.weights_map)


def shared_parts(model: nn.Module) -> Iterator[Any]:
    """Yield what copies of a model's hooks must share with it: where the weights come from."""
    for module in model.modules():
        for hook in align_hooks(module):
            for name in ("weights_map", "tied_params_map", "original_devices"):
                if (part := getattr(hook, name, None)) is not None:
                    yield part
