"""What will a run on a large model take, in memory and in time, before any of its weights are here?

Memory is counted from the config. Time is that of this machine: products, a solve and a decomposition are measured once
(and kept in the cache) at a small size and scaled by their number of operations, 2 per weight and token for a forward
pass and C³ for what is done per gap. So a plan is right within the efficiency of larger products, not to the second.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache as once
from typing import Any

from ghosted import cache, machine, operators
from ghosted.errors import InputError, ResourceError
from ghosted.experiment import Experiment
from ghosted.models.facts import BYTES, EFFICIENCY, ModelFacts

ORDER = 1024
GPU_OPERATIONS_PER_S = 2e13
"""Assumed of a lent GPU, not measured: a small part of what its maker states, so that time is seldom too short."""
SHAPES: dict[str, dict[str, int]] = {
    "llama-3-8b": {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14_336,
                   "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256},
    "llama-3-70b": {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28_672,
                    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128_256},
}  # fmt: skip
"""Shapes of published models that can be planned for without a network."""


@dataclass(frozen=True)
class Plan:
    """What a run takes, with the default methods and one gap.

    Attributes:
        model: its label.
        parameters: exact count.
        blocks: number of blocks L.
        width: C.
        removed: blocks that go.
        tokens: of calibration.
        window: tokens per window.
        dtype: of the weights.
        device: on which the times were measured.
        bytes: by part: ``weights``, ``states`` of one batch, ``statistics``, ``solve``, ``operators`` (kept, float32),
            ``kept_states`` (the page's bounded store), ``total``.
        seconds: by part: ``forward``, ``statistics``, ``solve`` (of all methods), ``decomposition``, ``total``.
    """

    model: str
    parameters: int
    blocks: int
    width: int
    removed: int
    tokens: int
    window: int
    dtype: str
    device: str
    bytes: dict[str, int]
    seconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON data."""
        return asdict(self)


def facts_of(name: str, revision: str | None = None) -> ModelFacts:
    """Return the facts of a model from its config: one of :data:`SHAPES`, or whatever ``models`` knows.

    Raises:
        ModelError, ResourceError: its config cannot be had.
    """
    from ghosted import models
    from ghosted.models import facts

    if name not in SHAPES:
        return models.describe(name, revision, refuse_too_large=False)
    from transformers import AutoConfig

    config = AutoConfig.for_model("llama", **SHAPES[name], tie_word_embeddings=False, max_position_embeddings=8192)
    return facts.from_config(config, name=name, label=name, kind="hub")


def plan(facts: ModelFacts, experiment: Experiment) -> Plan:
    """Plan a run.

    Args:
        facts: of the model.
        experiment: gives count (of blocks that go), tokens, window, dtype and methods.

    Raises:
        InputError: more blocks are to go than the model can spare.
    """
    if not 0 <= experiment.count < facts.blocks:
        raise InputError(f"{facts.label} has {facts.blocks} blocks; remove from 0 to {facts.blocks - 1}, "
                         f"not {experiment.count}.")  # fmt: skip
    dtype = machine.fastest_dtype() if experiment.dtype == "auto" else experiment.dtype
    sizes = _bytes(facts, experiment, dtype)
    seconds = _seconds(facts, experiment, dtype)
    return Plan(
        facts.label, facts.parameters, facts.blocks, facts.width, experiment.count, experiment.tokens,
        experiment.window, dtype, machine.device(), sizes, seconds,
    )


def memory_needed(facts: ModelFacts, experiment: Experiment) -> int:
    """Return about how many bytes a run takes on top of Python itself: weights, statistics, states, operators."""
    dtype = machine.fastest_dtype() if experiment.dtype == "auto" else experiment.dtype
    return facts.memory(dtype) - facts.weights_bytes(dtype) + _bytes(facts, experiment, dtype)["total"]


def check_memory(facts: ModelFacts, experiment: Experiment, held: int = 0) -> None:
    """Refuse a run whose sums and states will not fit beside its model, before anything is read.

    What is kept for other ranges is bounded, and counted only as far as the text fills it. Where models may be spread
    over accelerators or a disk, only their own size is looked at, by :meth:`ModelFacts.check_memory`.

    Args:
        facts: of the model.
        experiment: the run.
        held: bytes of memory that an earlier run holds, and that this one uses or lets go.

    Raises:
        ResourceError: it will not fit.
    """
    from ghosted.models import device_map

    if machine.device() != "cpu" or device_map.capacity() is None:
        return
    needed, free = memory_needed(facts, experiment), machine.available_memory() + held
    if needed > free:
        raise ResourceError(
            f"This run needs about {needed / 1e9:.3g} GB of memory and {free / 1e9:.3g} GB are free; take fewer "
            "tokens, fewer methods, a smaller batch or a smaller model."
        )


def gpu_seconds(facts: ModelFacts, experiment: Experiment) -> float:
    """Return for how long a GPU should be asked for, to do the whole of an experiment.

    Reading the weights, a pass over every text for each model that reads it, and one step per new token; a GPU's speed
    cannot be measured before there is one, so :data:`GPU_OPERATIONS_PER_S` is assumed.
    """
    variants = 1 + len(experiment.methods)
    tokens = experiment.tokens * 3 + experiment.windows * experiment.window * variants
    written = experiment.max_new_tokens * variants if experiment.prompt else 0
    reading = 5 + facts.weights_bytes("bfloat16") / 1e9
    return 2 * (2 * facts.parameters * tokens / GPU_OPERATIONS_PER_S + 0.05 * written + reading)


def _moments(experiment: Experiment) -> int:
    """Return how many kinds of moments the methods stream."""
    from ghosted.calibration.statistics import MOMENTS

    return len(set(MOMENTS) & set(operators.needs(experiment.methods)))


def _bytes(facts: ModelFacts, experiment: Experiment, dtype: str) -> dict[str, int]:
    from ghosted.calibration import windows_per_batch
    from ghosted.calibration.store import bytes_per_token, limit

    C, element = facts.width, BYTES[dtype]
    batch = windows_per_batch(experiment.batch, experiment.window) * experiment.window
    token = bytes_per_token(facts.blocks, C, element)
    linear = [name for name in experiment.methods if name != "none"]
    parts = {
        "weights": facts.weights_bytes(dtype),
        "states": batch * token,
        "statistics": 16 * _moments(experiment) * C**2 + 12 * C**2,  # G and B in float64; the rotation
        "solve": 40 * C**2,  # eigenvectors, their copy, two products and W
        "operators": 4 * len(linear) * C**2,
        "kept_states": min(limit(), (experiment.tokens + experiment.tokens // 4) * token),
    }
    return parts | {"total": sum(parts.values())}


def _seconds(facts: ModelFacts, experiment: Experiment, dtype: str) -> dict[str, float]:
    costs, C = _costs(), facts.width
    multiplied = max(facts.parameters - facts.vocabulary * C, 0)  # the embedding is looked up, not multiplied
    times = (C / ORDER) ** 3
    methods = sum(bool(operators.method(name).NEEDS) for name in experiment.methods)
    parts = {
        "forward": 2 * multiplied * experiment.tokens / (EFFICIENCY * costs[f"{dtype}_per_s"]),
        "statistics": (2 * _moments(experiment) + 2) * 2 * C**2 * experiment.tokens
        / (EFFICIENCY * costs["float32_per_s"]),
        "solve": methods * costs["solve_s"] * times,
        "decomposition": costs["decompose_s"] * times,
    }  # fmt: skip
    return parts | {"total": sum(parts.values())}


@once
def _costs() -> dict[str, float]:
    """Return operations per second by dtype, and seconds of a solve and a decomposition of order :data:`ORDER`."""
    import torch

    about = {"cpu": machine.cpu_name(), "cores": machine.cores(), "torch": torch.__version__, "order": ORDER,
             "device": machine.device(), "threads": torch.get_num_threads()}  # fmt: skip
    key = cache.key_of(about)
    found = cache.read("machine", key, lambda folder: json.loads((folder / "costs.json").read_text()))
    if found is None:
        found = _measure_costs()
        cache.put("machine", key, lambda folder: (folder / "costs.json").write_text(json.dumps(found)))
    return found


@once
def _measure_costs() -> dict[str, float]:
    import torch

    from ghosted.solve import Spectrum

    def quickest(work: Any, times: int) -> float:
        return min(machine.seconds_of(work, machine.device()) for _ in range(times))

    with torch.inference_mode():
        X = torch.randn(2 * ORDER, ORDER, device=machine.device())
        costs = {}
        for name in BYTES:
            left, right = X.to(getattr(torch, name)), X[:ORDER].to(getattr(torch, name))
            costs[f"{name}_per_s"] = 2 * left.numel() * ORDER / quickest(lambda a=left, b=right: a @ b, 5)
        G = (X.mT @ X).double()
        costs["solve_s"] = quickest(lambda: Spectrum(G).solve(G, 1e-6), 2)
        M = X[:ORDER] / ORDER
        spectra = (lambda: torch.linalg.eigvals(M), lambda: torch.linalg.eigvalsh(M + M.mT),
                   lambda: torch.linalg.svdvals(M), lambda: torch.linalg.svdvals(M - M.mT))  # fmt: skip
        costs["decompose_s"] = sum(quickest(each, 2) for each in spectra)
    return costs
