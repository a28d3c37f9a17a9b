"""The one model in memory: weights, tokenizer, facts, and a fingerprint that says exactly which numbers it holds."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ghosted import machine
from ghosted.errors import ModelError
from ghosted.models import facts as facts_of
from ghosted.models.facts import ModelFacts


@dataclass(eq=False)
class LoadedModel:
    """A model ready to run; it is shared by everything and never changed.

    Attributes:
        facts: what is known about it.
        model: a transformers decoder in ``eval`` mode whose parameters need no gradient.
        tokenizer: its tokenizer, ``None`` only for models made in memory.
        dtype: ``float32`` or ``bfloat16``.
        device: such as ``cpu`` or ``cuda``.
        fingerprint: sha256 of config, tokenizer and every number of the weights; the cache key of what it computes.
    """

    facts: ModelFacts
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    dtype: str
    device: str
    fingerprint: str

    @classmethod
    def of(cls, model: Any, tokenizer: Any = None, name: str = "in-memory") -> LoadedModel:
        """Wrap a model that was made in memory (tests, library users).

        Raises:
            ModelError: its blocks cannot be found.
        """
        facts = facts_of.from_model(model, name=name, label=name, kind="memory", download_bytes=0, cached=True)
        return cls.from_parts(facts, model, tokenizer)

    @classmethod
    def from_parts(cls, facts: ModelFacts, model: Any, tokenizer: Any) -> LoadedModel:
        """Put ``model`` into its final mode and take its fingerprint."""
        from ghosted.models.placement import execution_device

        model.eval().requires_grad_(False)
        first = next(model.parameters())  # of a model that is spread, its number format only: it may be a placeholder
        bos = None if tokenizer is None else bos_id(tokenizer) is not None
        return cls(
            facts=replace(facts, bos=bos, cached=True, download_bytes=0), model=model, tokenizer=tokenizer,
            dtype=str(first.dtype).removeprefix("torch."), device=str(execution_device(model)),
            fingerprint=fingerprint(model, tokenizer),
        )

    @property
    def blocks(self) -> int:
        """Number of blocks L."""
        return self.facts.blocks

    @property
    def width(self) -> int:
        """C: numbers per token in a state."""
        return self.facts.width

    @cached_property
    def bos_id(self) -> int | None:
        """The id that every window and prompt starts with: the BOS id iff the tokenizer adds one by default."""
        return None if self.tokenizer is None else bos_id(self.tokenizer)


def bos_id(tokenizer: Any) -> int | None:
    """Return the id of BOS iff the tokenizer puts it before a text by itself."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return None
    with_special = tokenised(tokenizer, "a", add_special_tokens=True)["input_ids"]
    without = tokenised(tokenizer, "a")["input_ids"]
    return bos if len(with_special) > len(without) and with_special[0] == bos else None


def tokenised(tokenizer: Any, text: str, **settings: Any) -> Any:
    """Return what a tokenizer gives for a text, no special tokens added unless ``settings`` say so.

    Raises:
        ModelError: it fails; a tokenizer comes with its model and may be broken like it.
    """
    try:
        return tokenizer(text, **{"add_special_tokens": False, "verbose": False} | settings)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:120].rstrip(" .:")
        raise ModelError(f"The tokenizer of this model fails ({said}); choose another model.") from error


def fingerprint(model: Any, tokenizer: Any = None) -> str:
    """Return a sha256 (hex) over config, tokenizer, and name, shape, dtype and bytes of every parameter and buffer."""
    import torch

    from ghosted.models import placement

    digest = hashlib.sha256()
    config = {k: v for k, v in model.config.to_dict().items() if k not in ("_name_or_path", "transformers_version")}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in placement.named_values(model):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if tensor.numel():
            plain = tensor.detach().reshape(-1).contiguous().view(torch.uint8).cpu().numpy()
            digest.update(plain.data)
    if tokenizer is not None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        text = backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
        digest.update(text.encode())
        digest.update(f"{tokenizer.bos_token_id} {tokenizer.eos_token_id} {tokenizer.chat_template}".encode())
    return digest.hexdigest()


def read_tokenizer(folder: Path, label: str) -> Any:
    """Read the tokenizer of a local folder.

    Raises:
        ModelError: there is none, or it needs code of its own.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise ModelError(f"{label} has no tokenizer that can be read here.") from error


def read_folder(folder: Path, facts: ModelFacts, dtype: str, device: str | None = None) -> LoadedModel:
    """Read a local folder in the transformers layout: safetensors only, no code of the model's own.

    A model that does not fit its device is spread over several, see :mod:`ghosted.models.device_map`.

    Args:
        folder: holds ``config.json``, ``*.safetensors`` and the tokenizer.
        facts: what its config said.
        dtype: ``float32`` or ``bfloat16``.
        device: by default the machine's best.

    Raises:
        ModelError: the files do not make a whole model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from ghosted.models import device_map

    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{facts.label} has no .safetensors weights; other formats can run code and are not read.")
    tokenizer = read_tokenizer(folder, facts.label)
    spread = device_map.choose(facts.memory(dtype), device)
    quiet()
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False, local_files_only=True,
            output_loading_info=True, **spread,
        )
    except Exception as error:
        raise ModelError(f"The weights of {facts.label} cannot be read: they do not fit its config.") from error
    missing = sorted(info.get("missing_keys") or ())
    if missing or info.get("mismatched_keys"):
        example = missing[0] if missing else "shapes differ"
        raise ModelError(f"The weights of {facts.label} are incomplete ({len(missing)} missing; {example}).")
    if not spread:
        model = model.to(device or machine.device())
    return LoadedModel.from_parts(facts, model, tokenizer)


def quiet() -> None:
    """Silence the libraries' own progress bars and notices: ours are the ones people see."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
