"""What do all exports in the transformers layout share? How they are saved, how large they are, what cannot be one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ghosted.errors import NotDefined
from ghosted.models.families import blocks_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.formats._expected import Shape
    from ghosted.models import LoadedModel

INDEX = "model.safetensors.index.json"
SHARD = 5 * 10**9
"""Largest file of weights in bytes where the base is one file, as the Hub's models are split."""


def refuse(model: Shape) -> None:
    """Raise :class:`NotDefined` where a block computes differently at another depth, so that no config describes it."""
    config = model.original.config
    if getattr(config, "scale_attn_by_inverse_layer_idx", False) and model.removed.gaps:
        raise NotDefined(f"This {config.model_type} model scales its attention by the number of the block, which "
                         "changes where blocks are gone; export it as adapter.")  # fmt: skip


def weights_bytes(model: Shape) -> int:
    """Return the bytes of the weights without the removed blocks, shared ones once."""
    original = model.original
    blocks = blocks_of(original)
    gone = {id(p) for block in model.removed.blocks for p in blocks[block].parameters()}
    return sum(p.numel() * p.element_size() for p in original.parameters() if id(p) not in gone)


def save(made: PreTrainedModel, base: LoadedModel, folder: Path) -> None:
    """Save a model and its base's tokenizer: safetensors, split as the base is."""
    from ghosted.models.loaded import quiet

    quiet()
    made.save_pretrained(folder, max_shard_size=shard_bytes(base))
    if base.tokenizer is not None:
        base.tokenizer.save_pretrained(folder)


def shard_bytes(base: LoadedModel) -> int:
    """Return the bytes of the base's largest file where it has several, else :data:`SHARD`."""
    from ghosted.models import hub

    facts = base.facts
    source = Path(facts.name) if facts.kind == "folder" else None
    if facts.kind == "hub":
        source = hub.config_folder(facts.name, facts.revision)
    try:
        files = set(json.loads((source / INDEX).read_text("utf-8"))["weight_map"].values()) if source else ()
        return max((source / name).stat().st_size for name in files) if files else SHARD
    except (OSError, ValueError, KeyError, AttributeError):
        return SHARD
