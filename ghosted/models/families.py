"""Where are the blocks of this model, and what does each block's feed-forward branch add to the residual stream?

Blocks are found by structure, so any decoder works; what a *branch* adds has to be known per family, because a norm or
a multiplier between the branch and the residual stream would silently make its recorded output the wrong quantity.
Only names are looked up: a model on the meta device is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ghosted.errors import ModelError

if TYPE_CHECKING:
    from torch import nn

_LLAMA_LIKE = (
    "llama", "mistral", "qwen2", "qwen3", "mixtral", "phi3", "arcee", "cwm", "gemma", "glm", "helium", "ministral",
    "ministral3", "olmo", "qwen3_moe", "seed_oss", "smollm3",
)  # fmt: skip
_POST_NORM = ("gemma2", "gemma3_text", "gemma3", "olmo2", "olmo3")
_OTHERS = {
    # model type: (branch, linear map at its end)
    "phi": ("mlp", "mlp.fc2"),
    "nemotron": ("mlp", "mlp.down_proj"),
    "starcoder2": ("mlp", "mlp.c_proj"),
    "gpt2": ("mlp", "mlp.c_proj"),
    "gpt_neox": ("mlp", "mlp.dense_4h_to_h"),
    "gptj": ("mlp", "mlp.fc_out"),
    "falcon": ("mlp", "mlp.dense_4h_to_h"),
    # Bloom hands the residual to its mlp, which returns the sum; OPT has no module around its two linear maps.
    "bloom": ("mlp.dense_4h_to_h", "mlp.dense_4h_to_h"),
    "opt": ("fc2", "fc2"),
}
_BESIDE_THE_DECODER = ("vision", "visual", "audio", "encoder", "image")


@dataclass(frozen=True)
class Family:
    """How one family of decoders names its parts.

    Attributes:
        model_type: the configuration's name of the architecture, such as ``llama``.
        blocks_path: path of the list of blocks inside the model, such as ``model.layers``.
        feed_forward: path inside a block of the module whose output is what the feed-forward branch adds to the
            residual stream, ``None`` where there is none.
        no_feed_forward: one sentence why ``feed_forward`` is ``None``.
        changed_in_place: whether the block adds onto that output in place, so that a record of it has to be a copy.
        merge_into: path inside a block of the linear map (or its experts' stacked weights) that ends the branch and
            can take up an operator on its output, ``None`` where there is none.
        no_merge: one sentence why ``merge_into`` is ``None``.
    """

    model_type: str
    blocks_path: str
    feed_forward: str | None
    no_feed_forward: str = ""
    changed_in_place: bool = False
    merge_into: str | None = None
    no_merge: str = ""


def find_family(model: nn.Module) -> Family:
    """Describe the family of ``model``, known or not.

    Args:
        model: a transformers model with a configuration; it may live on the meta device.

    Raises:
        ModelError: there is no list of ``num_hidden_layers`` blocks in it.
    """
    config = _decoder_config(model)
    model_type = config.model_type
    path = _blocks_path(model, config.num_hidden_layers, model_type)
    if model_type in _LLAMA_LIKE:
        down = "mlp.experts.down_proj" if model_type in ("mixtral", "qwen3_moe") else "mlp.down_proj"
        return Family(model_type, path, "mlp", merge_into=down)
    if model_type in _POST_NORM:
        reason = f"{model_type} normalises the feed-forward branch after its last linear map, so nothing can be merged."
        return Family(model_type, path, "post_feedforward_layernorm", no_merge=reason)
    reason = _why_unknown(config)
    if model_type in _OTHERS and not reason:
        branch, down = _OTHERS[model_type]
        return Family(model_type, path, branch, changed_in_place=model_type == "falcon", merge_into=down)
    return Family(model_type, path, None, no_feed_forward=reason, no_merge=reason)


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """Return the list of decoder blocks of ``model``, in order; raises ``ModelError`` where there is none."""
    config = _decoder_config(model)
    return model.get_submodule(_blocks_path(model, config.num_hidden_layers, config.model_type))


def last_map(block: nn.Module, family: Family) -> nn.Module | None:
    """Return the linear map that ends the feed-forward branch of ``block``, ``None`` where there is not just one.

    Its weight is ``(C, F)``, or ``(F, C)`` in GPT-2; what it reads are the branch's F hidden channels.
    """
    if family.merge_into is None:
        return None
    parent, _, name = family.merge_into.rpartition(".")
    try:
        found = getattr(block.get_submodule(parent), name)
    except AttributeError:
        return None
    weight = getattr(found, "weight", None)
    return found if weight is not None and weight.dim() == 2 else None


def norm_eps(model: nn.Module, state: int) -> float:
    """Return the eps of the norm that reads ``state`` first: in block ``state``, or before the head."""
    blocks = blocks_of(model)
    if state < len(blocks):
        readers = list(blocks[state].modules())
    else:  # the decoder's own norm after its blocks, else the last block's (OPT that normalises after adding)
        readers = [*reversed(list(model.base_model.modules())[1:]), *blocks[-1].modules()]
        inside = {id(module) for block in blocks for module in block.modules()}
        readers.sort(key=lambda module: id(module) in inside)
    for module in readers:
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        if isinstance(eps, float):
            return eps
    return 1e-6


def _decoder_config(model: nn.Module):
    config = model.config.get_text_config(decoder=True)
    if not isinstance(getattr(config, "num_hidden_layers", None), int):
        raise ModelError(f"A {config.model_type} model does not say how many blocks it has, so none can be removed.")
    return config


def _blocks_path(model: nn.Module, blocks: int, model_type: str) -> str:
    from torch import nn

    for name, module in model.named_modules():
        if any(part in name for part in _BESIDE_THE_DECODER):
            continue
        if isinstance(module, nn.ModuleList) and len(module) == blocks:
            return name
    raise ModelError(f"No list of {blocks} decoder blocks was found in this {model_type} model; none can be removed.")


def _why_unknown(config) -> str:
    model_type = config.model_type
    if model_type not in _OTHERS:
        return f"What the feed-forward branch of a {model_type} block adds to the residual stream is not known here."
    if model_type == "opt" and not config.do_layer_norm_before:
        return "This OPT model normalises the residual stream after adding the feed-forward branch."
    if model_type == "bloom" and config.slow_but_exact and config.pretraining_tp > 1:
        return "This Bloom model computes its last linear map in slices (slow_but_exact), where it cannot be recorded."
    return ""
