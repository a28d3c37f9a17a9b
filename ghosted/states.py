"""What is the residual stream between the blocks? Recorded where it is: at the blocks' inputs.

``output_hidden_states`` of transformers will not do: its last entry is already normalised. A view of L' blocks has
L' + 1 states; the last one leaves the last block and enters the final norm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ghosted.errors import NotDefined
from ghosted.models.families import blocks_of, find_family, last_map
from ghosted.models.placement import execution_device, is_placed
from ghosted.pruned import hidden_state, is_view, pruned_view, with_hidden_state
from ghosted.removed import RemovedBlocks

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(eq=False)
class Recorder:
    """What the last forward pass left behind; tensors are the model's own, not copies, unless noted.

    Attributes:
        states: ``(b, t, C)`` each, in the model's dtype: what enters each block (repairs applied), then what leaves the
            last one, not normalised.
        feed_forward: ``(b, t, C)`` by block of the view: what its feed-forward branch added to the residual stream (a
            repair of it applied); a copy where the block changes it in place.
        hidden: ``(b, t, F)`` by block of the view: what that branch's last linear map reads, where it has one.
        device: where all of them are put, of a view that is spread over several devices; else they stay where they are.
    """

    states: list[torch.Tensor] = field(default_factory=list)
    feed_forward: dict[int, torch.Tensor] = field(default_factory=dict)
    hidden: dict[int, torch.Tensor] = field(default_factory=dict)
    device: torch.device | None = None

    def here(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor where all of them are put."""
        return tensor if self.device is None else tensor.to(self.device)

    def clear(self) -> None:
        """Let go of all tensors."""
        self.states, self.feed_forward, self.hidden = [], {}, {}


@contextmanager
def recording(view: PreTrainedModel, feed_forward_of: Collection[int] = ()) -> Iterator[Recorder]:
    """Record each forward pass of a view inside the ``with`` block; the hooks go when it ends, however it ends.

    Args:
        view: made by :func:`~ghosted.pruned.pruned_view`; the original itself never gets a hook.
        feed_forward_of: blocks of the *view* whose feed-forward branch is recorded, too.

    Raises:
        ValueError: ``view`` is no view.
        NotDefined: the branch is not known in this family.
    """
    if not is_view(view):
        raise ValueError("States are recorded on a view, never on the original model.")
    family, blocks = find_family(view), blocks_of(view)
    recorder = Recorder(device=execution_device(view) if is_placed(view) else None)
    if feed_forward_of and family.feed_forward is None:
        raise NotDefined(family.no_feed_forward)
    handles = [
        block.register_forward_pre_hook(partial(_record_input, recorder, i), with_kwargs=True)
        for i, block in enumerate(blocks)
    ]
    handles.append(blocks[-1].register_forward_hook(partial(_record_output, recorder)))
    for i in feed_forward_of:
        branch = blocks[i].get_submodule(family.feed_forward)
        record = partial(_record_feed_forward, recorder, i, family.changed_in_place)
        handles.append(branch.register_forward_hook(record))
        if (end := last_map(blocks[i], family)) is not None:
            handles.append(end.register_forward_pre_hook(partial(_record_hidden, recorder, i)))
    try:
        yield recorder
    finally:
        for handle in handles:
            handle.remove()


def _record_input(recorder: Recorder, block: int, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
    if block == 0:
        recorder.clear()
    recorder.states.append(recorder.here(hidden_state(args, kwargs)))


def _record_output(recorder: Recorder, module: nn.Module, args: tuple, output: Any) -> None:
    recorder.states.append(recorder.here(output[0] if isinstance(output, tuple) else output))


def _record_feed_forward(
    recorder: Recorder, block: int, copied: bool, module: nn.Module, args: tuple, output: torch.Tensor
) -> None:
    # OPT flattens (b, t, C) to (b·t, C) around its feed-forward branch.
    branch = recorder.here(output).view(recorder.states[-1].shape)
    recorder.feed_forward[block] = branch.clone() if copied else branch


def _record_hidden(recorder: Recorder, block: int, module: nn.Module, args: tuple) -> None:
    recorder.hidden[block] = recorder.here(args[0]).view(*recorder.states[-1].shape[:2], -1)


def decoder(view: PreTrainedModel) -> nn.Module:
    """Return the model without its head: running it computes no logits."""
    return view.base_model


def hidden_forward(view: PreTrainedModel, ids: torch.Tensor) -> None:
    """Run ``ids`` ``(b, t)``, unpadded, through embeddings and blocks: no logits, no cache, no gradients."""
    with torch.inference_mode():
        decoder(view)(input_ids=ids.to(execution_device(view)), use_cache=False)


class Resumed:
    """A view whose first block is fed a stored state instead of the embeddings.

    Every family prepares masks, rotary angles and ALiBi slopes in its own way, so the family's own forward pass is run:
    only the hidden state that enters the first block is replaced, before anything else on that block sees it.
    """

    def __init__(self, view: PreTrainedModel) -> None:
        """Take over ``view``, made by :func:`~ghosted.pruned.pruned_view`; rows start at position 0."""
        self.view = view
        self._stored: torch.Tensor | None = None
        blocks_of(view)[0].register_forward_pre_hook(self._replace, with_kwargs=True, prepend=True)

    @contextmanager
    def fed(self, states: torch.Tensor) -> Iterator[PreTrainedModel]:
        """Give the view, fed ``states`` ``(b, t, C)`` for as long as the ``with`` block lasts."""
        self._stored = states.to(device=execution_device(self.view), dtype=self.view.dtype)
        try:
            yield self.view
        finally:
            self._stored = None

    def run(self, states: torch.Tensor) -> None:
        """Run the view's blocks on ``states`` ``(b, t, C)``: no logits; record them with :func:`recording`."""
        pad = getattr(self.view.config, "pad_token_id", None)
        ids = torch.full(states.shape[:2], 1 if pad == 0 else 0, device=execution_device(self.view))
        with self.fed(states) as view:
            hidden_forward(view, ids)

    def _replace(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return (args, kwargs) if self._stored is None else with_hidden_state(args, kwargs, self._stored)


class BlockRunner:
    """Runs one block of a model on stored states, with the positions and masks it would see in a full pass.

    The one-block view is built once and holds no weights of its own.
    """

    def __init__(self, model: Any, block: int) -> None:
        """Prepare ``block`` of ``model``: the original model, or anything that holds it as ``.model``."""
        original = model if hasattr(model, "config") else model.model
        others = (i for i in range(len(blocks_of(original))) if i != block)
        self._resumed = Resumed(pruned_view(original, RemovedBlocks.of(others)))
        self._has_branch = find_family(original).feed_forward is not None

    def __call__(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Run the block on ``states`` ``(b, t, C)``, rows starting at position 0.

        Returns:
            The block's output ``(b, t, C)``, what its feed-forward branch added ``(b, t, C)`` and what that branch's
            last linear map read ``(b, t, F)``; the last two are ``None`` where this family has no such thing.
        """
        with recording(self._resumed.view, (0,) if self._has_branch else ()) as recorder:
            self._resumed.run(states)
        return recorder.states[1], recorder.feed_forward.get(0), recorder.hidden.get(0)


def run_block(
    model: Any, block: int, states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Re-run one block on ``states`` ``(b, t, C)``; see :class:`BlockRunner`, which is cheaper for many batches."""
    return BlockRunner(model, block)(states)
