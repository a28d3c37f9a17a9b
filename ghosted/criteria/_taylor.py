"""How much would the loss change without a block, to first order? Σ |w · ∂loss/∂w|, one block's gradients at a time.

The states that enter the blocks are kept from one forward pass without gradients. Then the loss is carried back block
by block, last one first: each block is run again on its kept state, with gradients, and the gradient of that state is
handed to the block before. So at most one block's gradients exist; embeddings, final norm and head need none.

The original model is not touched: each block is a view of its own whose parameters are new leaves on the same memory.
No parameter of the original ever requires or holds a gradient, whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ghosted.calibration import not_finite
from ghosted.criteria import Evidence, lowest_blocks
from ghosted.models.families import blocks_of
from ghosted.progress import Stage, Steps
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, Cost
from ghosted.scores.perplexity import chunk_losses
from ghosted.states import Resumed, decoder, recording

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

SAMPLES = 10
"""Calibration windows whose loss is differentiated, as many as the paper's samples."""


def taylor_cost(evidence: Evidence, allowed: range) -> Cost:
    """Return tokens and memory: one pass forward (none where the states are kept), the blocks again, and the way back.

    The way back counts as two passes, as usual. Memory is that of the kept states, one block's gradients (float32
    sums, one window's in the model's dtype, one product), one block's activations and one window's logits.
    """
    calibration = evidence.calibration
    model, width = calibration.loaded.model, calibration.loaded.width
    config = model.config.get_text_config()
    windows = calibration.splits["calibration"].first(SAMPLES)
    kept = len(calibration.stores["calibration"]) >= len(windows)
    size = next(model.parameters()).element_size()
    block = max(sum(p.numel() for p in b.parameters()) for b in blocks_of(model))
    t = max(len(row) for row in windows.rows)
    states = windows.tokens * width * size * (calibration.loaded.blocks + 1 - allowed.start)
    gradients = block * (4 + size + 8)
    activations = t * (block // width) * 2 * (size + 4) + config.num_attention_heads * t * t * (size + 4)
    logits = t * config.vocab_size * (2 * size + 8)
    return Cost(windows.tokens * (3 if kept else 4), states + gradients + activations + logits)


def lowest_taylor(name: str, evidence: Evidence, count: int, allowed: range) -> Steps[Choice]:
    """Choose the ``count`` allowed blocks whose weights matter least to the loss.

    The score of block i is Σ |w · ḡ| over its parameters, ḡ the gradient of the mean loss over all samples. Per window
    it is Σ |w · g| with that window's own gradient, scaled so that the mean over windows is the score: the noise of
    single windows cancels in ḡ only.

    Raises:
        InputError: fewer than ``count`` blocks may go.
        ModelError: a gradient is not a finite number in this dtype.
        Cancelled: ``evidence.cancel`` was set.
    """
    calibration, first = evidence.calibration, allowed.start
    blocks = calibration.loaded.blocks
    windows = calibration.splits["calibration"].first(SAMPLES)
    scored = sum(len(row) - 1 for row in windows.rows)
    stage = Stage("first-order importance", len(windows) * (1 + blocks - first), evidence.cancel)
    samples: list[tuple[Tensor, list[Tensor]]] = []
    for ids, states in calibration.states("calibration", len(windows)):
        for row in range(len(ids)):
            samples.append((ids[row : row + 1], [s[row : row + 1] for s in states[first:blocks]]))
        yield stage.step(len(ids))
    scores, by_text = np.full(blocks, np.inf), np.full((len(windows), blocks), np.inf)
    leaving: list[Tensor | None] = [None] * len(samples)  # gradient of the loss in the state that leaves the block
    for block in reversed(range(first, blocks)):
        salience = _Salience(calibration.loaded.model, block, scored)
        for number, (ids, states) in enumerate(samples):
            by_text[number, block], leaving[number] = salience.add(ids, states.pop(), leaving[number])
            yield stage.step()
        scores[block] = salience.total()
        if not np.isfinite([scores[block], *by_text[:, block]]).all():
            raise not_finite("gradients", calibration.loaded.dtype)
    mean = by_text[:, first:].mean(0)
    by_text[:, first:] *= np.divide(scores[first:], mean, out=np.zeros_like(mean), where=mean > 0)
    return lowest_blocks(name, count, scores, by_text, allowed)


class _Salience:
    """Σ |w · ∂loss/∂w| over one block's parameters, whose gradients are summed over windows in float32."""

    def __init__(self, model: PreTrainedModel, block: int, scored: int) -> None:
        blocks = len(blocks_of(model))
        view = pruned_view(model, RemovedBlocks.of(i for i in range(blocks) if i != block))
        self._resumed, self._is_last, self._scored = Resumed(view), block == blocks - 1, scored
        self._parameters = _own_leaves(blocks_of(view)[0])
        self._sums = [torch.zeros(p.shape, dtype=torch.float32, device=p.device) for p in self._parameters]

    def add(self, ids: Tensor, state: Tensor, leaving: Tensor | None) -> tuple[float, Tensor]:
        """Add one window ``(1, t)``, given the state ``(1, t, C)`` that enters the block.

        ``leaving`` is the gradient of the loss in the state that leaves it (not used for the last block, from which
        the loss itself is computed). Returns the window's own sum, and the gradient in the entering state.
        """
        with torch.inference_mode(False), torch.enable_grad():
            entering = state.clone().requires_grad_()
            target = self._loss(entering, ids) if self._is_last else self._output(entering, ids)
            gradients = torch.autograd.grad(
                target, [entering, *self._parameters], None if self._is_last else leaving, allow_unused=True
            )
        own = 0.0
        for parameter, total, gradient in zip(self._parameters, self._sums, gradients[1:], strict=True):
            if gradient is not None:  # an expert that no token of this window was sent to has none
                total += gradient
                own += _salience(parameter, gradient)
        return own, gradients[0]

    def total(self) -> float:
        """Return the sum for all windows that were added."""
        return sum(_salience(p, g) for p, g in zip(self._parameters, self._sums, strict=True))

    def _output(self, entering: Tensor, ids: Tensor) -> Tensor:
        with self._resumed.fed(entering) as view, recording(view) as recorder:
            decoder(view)(input_ids=ids, use_cache=False)
            return recorder.states[1]

    def _loss(self, entering: Tensor, ids: Tensor) -> Tensor:
        with self._resumed.fed(entering) as view:
            logits = view(input_ids=ids, use_cache=False).logits
        return torch.stack(list(chunk_losses(logits[0], ids[0]))).sum() / self._scored


def _salience(parameter: Tensor, gradient: Tensor) -> float:
    return float((parameter.detach().float() * gradient.float()).abs_().sum(dtype=torch.float64))


def _own_leaves(block: nn.Module) -> Sequence[Tensor]:
    """Give a view's block parameters of its own, on the original's memory; return them."""
    own: dict[int, nn.Parameter] = {}
    for module in block.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_floating_point():
                leaf = own.setdefault(id(parameter), nn.Parameter(parameter.detach()))
                module._parameters[name] = leaf
    return list(own.values())
