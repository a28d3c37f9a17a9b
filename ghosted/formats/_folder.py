"""What do all exports in the transformers layout share? How they are saved, how large they are, what cannot be one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghosted.errors import NotDefined
from ghosted.models.families import blocks_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.repaired import Repaired

SHARD = "5GB"
"""Largest file of weights, as the Hub's models are split."""


def refuse(model: Repaired) -> None:
    """Raise :class:`NotDefined` where a block computes differently at another depth, so that no config describes it."""
    config = model.loaded.model.config
    if getattr(config, "scale_attn_by_inverse_layer_idx", False) and model.removed.gaps:
        raise NotDefined(f"This {config.model_type} model scales its attention by the number of the block, which "
                         "changes where blocks are gone; export it as adapter.")  # fmt: skip


def weights_bytes(model: Repaired) -> int:
    """Return the bytes of the weights without the removed blocks, shared ones once."""
    original = model.loaded.model
    blocks = blocks_of(original)
    gone = {id(p) for block in model.removed.blocks for p in blocks[block].parameters()}
    return sum(p.numel() * p.element_size() for p in original.parameters() if id(p) not in gone)


def save(made: PreTrainedModel, tokenizer: Any, folder: Path) -> None:
    """Save a model and its tokenizer: safetensors, split as on the Hub."""
    from ghosted.models.loaded import quiet

    quiet()
    made.save_pretrained(folder, max_shard_size=SHARD)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
