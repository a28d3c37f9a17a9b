"""How does plain transformers run a model whose removed blocks a linear map stands in for? With this one file.

``GhostedForCausalLM`` builds the base architecture's own class from the pruned configuration in ``text_config`` and
hangs one operator per gap on its blocks; it copies no modelling code and works for every family. The operator is
float32 and acts as ``x + (φ.float() @ M).to(x.dtype)``, where φ is (``feature``)

- ``state``: the state x that leaves the gap;
- ``normalised``: x/rms(x);
- ``feed_forward``: what the feed-forward branch of the block before the gap adds to x, which takes x's place;
- ``joint``: [x − A, h] with A what that branch adds and h the hidden channels that its last linear map reads.

This file is copied into every exported checkpoint, from Ghosted Layers Explorer (Apache-2.0).
"""

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel

_OF_THE_BASE = ("hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "vocab_size")

_CALLS = (
    "forward", "prepare_inputs_for_generation", "get_input_embeddings", "set_input_embeddings", "get_output_embeddings",
    "set_output_embeddings",
)


class GhostedConfig(PreTrainedConfig):
    """The base model's configuration without the removed blocks, and where each operator hangs.

    Attributes:
        text_config: the pruned base configuration, of the base's own class.
        blocks_path: path of the list of blocks inside the base model, such as ``model.layers``.
        repairs: one entry per operator: ``gap`` (for people), ``feature``, ``rows`` of M, ``block`` (in the pruned
            model: the one that reads the repaired state; for branches, the one that has it), ``after`` (whether it acts
            on what leaves ``block`` instead), ``eps``, and for branches the paths ``branch`` and ``last_map``, and
            ``copied`` (the block adds to the branch's output in place).
    """

    model_type = "ghosted"
    sub_configs = {"text_config": AutoConfig}  # noqa: RUF012

    def __init__(self, text_config=None, blocks_path="", repairs=(), **kwargs):
        if isinstance(text_config, dict):
            text_config = AutoConfig.for_model(**text_config)
        self.text_config, self.blocks_path = text_config, blocks_path
        self.repairs = [dict(about) for about in repairs]
        if text_config is not None:
            kwargs["tie_word_embeddings"] = getattr(text_config, "tie_word_embeddings", False)
        super().__init__(**kwargs)

    def __getattr__(self, name):
        """Answer what other libraries ask every configuration for."""
        if name in _OF_THE_BASE and self.__dict__.get("text_config") is not None:
            return getattr(self.text_config, name)
        raise AttributeError(name)


class Repair(nn.Module):
    """The operator of one gap."""

    def __init__(self, about, width):
        super().__init__()
        self.about, self.added = about, None
        self.M = nn.Parameter(torch.empty(about["rows"], width, dtype=torch.float32))

    def hang(self, blocks):
        """Put this operator's hooks on the base model's blocks."""
        block, feature = blocks[self.about["block"]], self.about["feature"]
        if feature == "feed_forward":
            block.get_submodule(self.about["branch"]).register_forward_hook(self.on_output)
        elif feature == "joint":
            block.get_submodule(self.about["last_map"]).register_forward_hook(self.on_last_map)
            block.get_submodule(self.about["branch"]).register_forward_hook(self.keep_added)
            block.register_forward_hook(self.on_block)
        elif self.about["after"]:
            block.register_forward_hook(self.on_output)
        else:
            block.register_forward_pre_hook(self.on_input, with_kwargs=True)

    def forward(self, x):
        """Repair rows of states ``(…, C)``."""
        phi = x.float()
        if self.about["feature"] == "normalised":
            phi = phi * torch.rsqrt(phi.square().mean(-1, keepdim=True) + self.about["eps"])
        return x + (phi @ self.M.float().to(x.device)).to(x.dtype)

    def on_input(self, module, args, kwargs):
        """Repair the state that enters a block."""
        return ((self(args[0]), *args[1:]), kwargs) if args else (
            args, kwargs | {"hidden_states": self(kwargs["hidden_states"])})  # fmt: skip

    def on_output(self, module, args, output):
        """Repair what a module returns."""
        return (self(output[0]), *output[1:]) if isinstance(output, tuple) else self(output)

    def on_last_map(self, module, args, output):
        """Add h M to the last map of a branch."""
        hidden = self.M[self.M.shape[1] :].float().to(output.device)
        return output + (args[0].float() @ hidden).to(output.dtype)

    def keep_added(self, module, args, output):
        """Remember A, what a branch adds."""
        self.added = output.clone() if self.about["copied"] else output

    def on_block(self, module, args, output):
        """Add (x − A) M to what leaves a block."""
        x = output[0] if isinstance(output, tuple) else output
        beside = x.float() - self.added.view(x.shape).float()
        self.added = None
        x = x + (beside @ self.M[: self.M.shape[1]].float().to(x.device)).to(x.dtype)
        return (x, *output[1:]) if isinstance(output, tuple) else x


class GhostedForCausalLM(PreTrainedModel, GenerationMixin):
    """A language model of any family, without some blocks, with an operator in the place of each gap."""

    config_class = GhostedConfig
    base_model_prefix = "model"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True
    _keep_in_fp32_modules_strict = ("repairs",)

    def __init__(self, config):
        super().__init__(config)
        self.model = AutoModelForCausalLM.from_config(config.text_config)
        width = config.text_config.hidden_size
        self.repairs = nn.ModuleList(Repair(about, width) for about in config.repairs)
        self.connect()
        self.post_init()

    def connect(self):
        """Hang the operators on the base model, and take its own calls, so that their arguments are the base's."""
        blocks = self.model.get_submodule(self.config.blocks_path)
        for repair in self.repairs:
            repair.hang(blocks)
        for name in _CALLS:
            setattr(self, name, getattr(self.model, name))

    def _init_weights(self, module):
        if isinstance(module, Repair):
            nn.init.zeros_(module.M)


GhostedConfig.register_for_auto_class()
GhostedForCausalLM.register_for_auto_class("AutoModelForCausalLM")
