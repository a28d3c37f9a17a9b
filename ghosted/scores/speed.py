"""How much smaller and faster is the pruned model, and what does its repair cost? Measured in turns: drift cancels.

In each round every model reads one prompt (prefill: all blocks, no logits) and then writes a few tokens with its
key-value cache (decode), one after the other, the next round beginning with the next model. Ratios are taken within a
round; medians and quartiles over rounds are what is reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ghosted import machine
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.states import hidden_forward

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ghosted.models import LoadedModel

ROUNDS = 9
PROMPT, WRITTEN = 256, 6
"""Tokens read at once, and tokens written one by one after them."""
PAIR = ("ghosted", "linearpatch")
"""Both are one C × C product: the paper says that they cost the same."""


@dataclass(frozen=True)
class Added:
    """What a repair adds to the model: free numbers, and the bytes that its operators take at run time."""

    parameters: int = 0
    size: int = 0


def speed(
    models: Mapping[str, PreTrainedModel], loaded: LoadedModel, added: Mapping[str, Added],
    cancel: CancelFlag | None = None, *, rounds: int = ROUNDS, prompt: int = PROMPT, written: int = WRITTEN,
) -> Steps[dict[str, Any]]:
    """Measure sizes and speeds.

    Args:
        models: views by name; ``dense`` among them, the one that all are compared with.
        loaded: the original.
        added: what each repair adds, by name.
        cancel: checked between measurements.
        rounds: how often each is measured.
        prompt: tokens of the prefill.
        written: tokens of the decoding.

    Returns:
        ``models`` by name: ``parameters``, ``bytes``, ``prefill`` and ``decode`` (tokens per second, medians), their
        ``…_spread`` (quartiles), and how many times the original's speed each is (``…_ratio``, ``…_ratio_spread``);
        ``ghosted_over_linearpatch`` in seconds, where both are there; ``operator``, one product alone.
    """
    prompt = min(prompt, (loaded.facts.context or prompt) - written - 1)
    ids = torch.randint(0, loaded.facts.vocabulary, (1, prompt), generator=torch.Generator().manual_seed(0))
    ids = ids.to(loaded.device)
    own = _operator(loaded, prompt)
    names, seconds = list(models), {name: {"prefill": [], "decode": []} for name in models}
    stage = Stage("timing", (rounds + 1) * len(names), cancel)
    alone: dict[str, list[float]] = {kind: [] for kind in own}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            read, wrote = _prefill(models[name], ids, loaded.device), _decode(models[name], ids, written, loaded.device)
            if number:  # the first round builds kernels and fills caches
                seconds[name]["prefill"].append(read)
                seconds[name]["decode"].append(wrote)
            yield stage.step()
        for kind, work in own.items():
            alone[kind].append(machine.seconds_of(work, loaded.device))
    result: dict[str, Any] = {
        "models": {name: _sizes(models[name], added.get(name, Added())) for name in names},
        "rounds": rounds, "prompt": prompt, "written": written, "dtype": loaded.dtype, "device": loaded.device,
        "operator": {"prefill_us_per_token": 1e6 * statistics.median(alone["prefill"]) / prompt,
                     "decode_us": 1e6 * statistics.median(alone["decode"])},
    }
    for name, one in result["models"].items():
        for kind, tokens in (("prefill", prompt), ("decode", written)):
            taken = seconds[name][kind]
            one[kind], one[f"{kind}_spread"] = summary([tokens / s for s in taken])
            ratios = [dense / s for dense, s in zip(seconds["dense"][kind], taken, strict=True)]
            one[f"{kind}_ratio"], one[f"{kind}_ratio_spread"] = summary(ratios)
    if all(name in seconds for name in PAIR):
        pairs = {kind: [a / b for a, b in zip(*(seconds[name][kind] for name in PAIR), strict=True)]
                 for kind in ("prefill", "decode")}  # fmt: skip
        ratio, spread = summary(pairs["prefill"])
        decode, decode_spread = summary(pairs["decode"])
        result["ghosted_over_linearpatch"] = {
            "ratio": ratio, "spread": spread, "decode_ratio": decode, "decode_spread": decode_spread,
        }
    return result


def summary(values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the median and the quartiles."""
    if len(values) < 2:
        return values[0], [values[0], values[0]]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, [low, high]


def _sizes(model: PreTrainedModel, added: Added) -> dict[str, Any]:
    parameters = list(model.parameters())  # tied ones come once
    return {"parameters": sum(p.numel() for p in parameters) + added.parameters,
            "bytes": sum(p.numel() * p.element_size() for p in parameters) + added.size,
            "added_parameters": added.parameters}  # fmt: skip


def _prefill(model: PreTrainedModel, ids: torch.Tensor, device: str) -> float:
    return machine.seconds_of(lambda: hidden_forward(model, ids), device)


def _decode(model: PreTrainedModel, ids: torch.Tensor, written: int, device: str) -> float:
    from transformers import DynamicCache

    cache, step = DynamicCache(config=model.config), ids[:, :1]
    with torch.inference_mode():
        model(input_ids=ids[:, :32], cache=cache, use_cache=True)

        def write() -> None:
            for _ in range(written):
                model(input_ids=step, cache=cache, use_cache=True)

        return machine.seconds_of(write, device)


def _operator(loaded: LoadedModel, prompt: int) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the one expression of a repair, on as many tokens as a prefill and as a decoding step have."""
    dtype = next(loaded.model.parameters()).dtype
    M = torch.zeros(loaded.width, loaded.width, device=loaded.device)

    def on(tokens: int) -> Callable[[], torch.Tensor]:
        x = torch.ones(1, tokens, loaded.width, device=loaded.device, dtype=dtype)
        return lambda: x + (x.float() @ M).to(dtype)

    return {"prefill": on(prompt), "decode": on(1)}
