"""What does a solve cost: factorising G and solving for M, beside one float64 matrix product of the same order?

Synthetic moments of orders 576, 2,048 and 4,096 with a spectrum over six decades. ``ratio`` is that of the default
model's order; ``orders`` holds every order with its seconds. The cost belongs to a gap and grows as C³, whatever the
number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ghosted.bench._rounds import interleaved, medians, ratio
from ghosted.experiment import Experiment
from ghosted.progress import Stage

ORDERS = {576: 3, 2048: 2, 4096: 1}
"""Rounds by order C."""


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Time both at every order, interleaved.

    Args:
        experiment: gives the ridge and the seed; no model is read.
        on_event: receives progress.

    Returns:
        ``ratio`` and ``spread`` at the first order; by order ``ratio``, ``solve_s`` and ``product_s``.
    """
    stage, orders = Stage("solving", len(ORDERS)), {}
    for order, rounds in ORDERS.items():
        orders[str(order)] = _order(order, rounds, experiment)
        on_event(stage.step())
    first = next(iter(orders.values()))
    return {"ratio": first["ratio"], "spread": first["spread"], "orders": orders}


def synthetic_moments(order: int, seed: int) -> tuple[Any, Any]:
    """Return G and B, float64 ``(C, C)``, of random states with a decaying spectrum and a Δ that follows them.

    Args:
        order: C.
        seed: of the random numbers.
    """
    import torch

    from ghosted.machine import device

    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(4 * order, order, generator=generator) * torch.logspace(0, -3, order)
    states = states.to(device())
    G = states.mT @ states
    mixing = torch.randn(order, order, generator=generator).to(states) / order**0.5
    return G.double(), (G @ mixing).double()


def _order(order: int, rounds: int, experiment: Experiment) -> dict[str, Any]:
    from ghosted.solve import Spectrum

    G, B = synthetic_moments(order, experiment.seed)
    works = {"solve": lambda: Spectrum(G).solve(B, experiment.ridge), "product": lambda: G @ B}
    seconds = interleaved(works, rounds, str(G.device))
    return ratio(seconds["solve"], seconds["product"]) | medians(seconds)
