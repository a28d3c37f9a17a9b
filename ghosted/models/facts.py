"""What is this model, will it fit, and can blocks be removed from it: all from its config, before its weights?

The parameters are counted exactly, by building the model without memory (on torch's ``meta`` device).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ghosted import machine
from ghosted.errors import InputError, ModelError, ResourceError

if TYPE_CHECKING:
    from pathlib import Path

BYTES = {"float32": 4, "bfloat16": 2}
OVERHEAD, BASE = 1.2, 500_000_000
"""Memory a run takes: weights × 1.2 (states, logits, statistics) + 0.5 GB (the libraries)."""

EFFICIENCY = 0.6
"""Of a lone product's speed, what a forward pass reaches (measured: 0.5 to 0.75 on two cores)."""

_STATE_SPACE = {
    "mamba", "mamba2", "falcon_mamba", "rwkv", "jamba", "bamba", "zamba", "zamba2", "recurrent_gemma",
    "nemotron_h", "falcon_h1", "xlstm", "granitemoehybrid", "lfm2", "lfm2_moe", "lfm3", "qwen3_next", "qwen3_5",
    "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "minimax", "kimi_linear", "olmo_hybrid", "bailing_hybrid",
    "zaya",
}
_MIXERS = ("mamba", "recurrent", "linear_attention", "conv", "ssm", "rwkv", "hybrid")
_LARGEST = {"num_hidden_layers": 2_000, "hidden_size": 262_144, "vocab_size": 16_000_000}


@dataclass(frozen=True)
class ModelFacts:
    """What is known about a model before its weights are fetched.

    Attributes:
        name: as the user gave it.
        label: as people read it.
        kind: ``offline``, ``hub``, ``folder``, ``gguf`` or ``memory``.
        architecture: ``model_type`` of its config.
        blocks: number of blocks L.
        width: C, numbers per token in a state.
        vocabulary: number of token ids.
        parameters: exact count, shared ones once.
        context: longest sequence in tokens, ``None`` where the architecture sets no limit.
        bos: whether its tokenizer starts a text with a beginning-of-sequence token, ``None`` where not known yet.
        download_bytes: what is still to be fetched, ``None`` where not known, 0 for local files.
        cached: whether it can be loaded without fetching or converting anything.
        revision: commit on the Hub.
    """

    name: str
    label: str
    kind: str
    architecture: str
    blocks: int
    width: int
    vocabulary: int
    parameters: int
    context: int | None = None
    bos: bool | None = None
    download_bytes: int | None = None
    cached: bool = False
    revision: str | None = None

    def weights_bytes(self, dtype: str = "auto") -> int:
        """Return the bytes of the weights in ``dtype`` (``auto``: what this machine would take)."""
        return self.parameters * BYTES[machine.fastest_dtype() if dtype == "auto" else dtype]

    def memory(self, dtype: str = "auto") -> int:
        """Return the bytes of memory that a run with this model takes, roughly."""
        return int(self.weights_bytes(dtype) * OVERHEAD) + BASE

    def pass_seconds(self, tokens: int, dtype: str = "auto") -> float | None:
        """Return about how long one forward pass over ``tokens`` takes here; ``None`` where that is not known.

        Two operations per weight and token, at :data:`EFFICIENCY` of the speed of a lone matrix product; the embedding
        is looked up, not multiplied, and calibrating needs no logits.
        """
        dtype = machine.fastest_dtype() if dtype == "auto" else dtype
        speed = machine.operations_per_second(dtype)
        multiplied = max(self.parameters - self.vocabulary * self.width, 0)
        return None if speed is None else 2 * multiplied * tokens / (EFFICIENCY * speed)

    def check_memory(self, dtype: str = "auto", device: str | None = None) -> None:
        """Refuse a model that does not fit.

        Raises:
            ResourceError: :meth:`memory` is more than is available, on all devices that may be used.
        """
        from ghosted.models import device_map

        needed, free = self.memory(dtype), device_map.capacity(device)
        if free is not None and needed > free:
            dtype = machine.fastest_dtype() if dtype == "auto" else dtype
            raise ResourceError(
                f"{self.label} has {self.parameters / 1e9:.3g} billion parameters and needs about "
                f"{needed / 1e9:.3g} GB of memory in {dtype}, but {free / 1e9:.3g} GB are available here; "
                "choose a smaller model."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain JSON data, with what the model needs here."""
        return dataclasses.asdict(self) | {
            "dtype": machine.fastest_dtype(),
            "weights_bytes": self.weights_bytes(),
            "memory_bytes": self.memory(),
        }


def config_of(folder: str, label: str) -> Any:
    """Read a local ``config.json`` (no code of the model's own is ever run), or refuse it.

    Raises:
        ModelError: it is missing or unreadable, or of an architecture that cannot be used here.
    """
    import json
    from pathlib import Path

    try:
        plain = json.loads((Path(folder) / "config.json").read_text("utf-8"))
        model_type = str(plain.get("model_type") or "")
    except FileNotFoundError:
        _refuse_export(Path(folder), label)
        raise ModelError(f"{label} has no config.json, so it is not a model in the transformers layout.") from None
    except (OSError, ValueError, AttributeError):
        raise ModelError(f"The config.json of {label} cannot be read.") from None
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if model_type not in CONFIG_MAPPING_NAMES:
        _refuse_export(Path(folder), label)
        own_code = " and would need code of its own, which is never run here" if plain.get("auto_map") else ""
        raise ModelError(f"{label} is of an unknown architecture ({model_type[:40] or 'none named'}){own_code}.")
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise ModelError(f"The config.json of {label} does not describe a usable {model_type[:40]} model.") from error
    refuse(config, label)
    return config


def _refuse_export(folder: Path, label: str) -> None:
    """Raise :class:`ModelError` for what this program has exported: it is repaired already, and recognised as such."""
    from ghosted import ghost

    if not (folder / ghost.FILE).is_file():
        return
    try:
        said = ghost.Ghost.read(folder / ghost.FILE)
    except InputError as error:
        raise ModelError(str(error)) from None
    raise ModelError(
        f"{label} is {said.base.label[:60]} without blocks {said.removed[:60]}, repaired by {said.method[:40]}: load "
        "it with ghosted.load, or explore its base model."
    )


def refuse(config: Any, label: str) -> None:
    """Raise :class:`ModelError`, one sentence, unless this is a decoder made of attention blocks."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as DECODERS,
    )
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED,
    )

    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{label} is an encoder-decoder model ({kind}); only decoders can be explored here.")
    mixers = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    if kind in _STATE_SPACE or any(mixer in str(each) for each in mixers for mixer in _MIXERS):
        raise ModelError(f"{label} is a state-space or hybrid model ({kind}); choose one of attention blocks only.")
    if kind in MASKED and not getattr(config, "is_decoder", False):
        raise ModelError(f"{label} is an encoder ({kind}) and writes no text; choose a decoder.")
    if kind not in DECODERS:
        raise ModelError(f"{label} is not a language model that writes text ({kind}); choose a decoder.")
    text = config.get_text_config(decoder=True)
    if text is not config:
        raise ModelError(f"{label} takes more than text ({kind}); choose a decoder for text alone.")
    if getattr(config, "quantization_config", None):
        method = config.quantization_config
        method = method.get("quant_method") if isinstance(method, dict) else getattr(method, "quant_method", None)
        method = getattr(method, "value", method)
        raise ModelError(f"{label} is stored quantised ({method}); choose its original weights.")
    for name, most in _LARGEST.items():
        value = getattr(config, name, None)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise ModelError(f"The config of {label} has no sensible {name} ({str(value)[:20]}).")


def from_config(config: Any, *, name: str, label: str, kind: str, **known: Any) -> ModelFacts:
    """Count everything of a config that :func:`refuse` has let through.

    Raises:
        ModelError: transformers cannot build it, or its blocks cannot be found.
    """
    return from_model(skeleton(config, label), name=name, label=label, kind=kind, **known)


def skeleton(config: Any, label: str, dtype: str | None = None) -> Any:
    """Build a model that has every part and no numbers, on torch's ``meta`` device.

    Args:
        config: of a usable decoder.
        label: the model, for people.
        dtype: of its weights, by default what the config says.

    Raises:
        ModelError: transformers cannot build it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    kind = {} if dtype is None else {"dtype": getattr(torch, dtype)}
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False, **kind)
    except Exception as error:
        raise ModelError(f"The config of {label} does not describe a usable {config.model_type} model.") from error


def from_model(model: Any, *, name: str, label: str, kind: str, **known: Any) -> ModelFacts:
    """Read the facts of a built model (on any device, ``meta`` included).

    Raises:
        ModelError: its blocks cannot be found.
    """
    from ghosted.models import families

    families.find_family(model)
    config = model.config
    return ModelFacts(
        name=name, label=label, kind=kind, architecture=config.model_type, blocks=config.num_hidden_layers,
        width=config.hidden_size, vocabulary=config.vocab_size,
        parameters=sum(p.numel() for p in model.parameters()), context=_context(config), **known,
    )


def _context(config: Any) -> int | None:
    if config.model_type == "bloom" or getattr(config, "alibi", False):
        return None  # positions are distances; nothing sets an end
    value = getattr(config, "max_position_embeddings", None)
    return value if isinstance(value, int) and value > 0 else None
