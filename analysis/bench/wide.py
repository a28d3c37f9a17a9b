"""Can the operator of a model as wide as Llama-3-8B be solved, decomposed and drawn on a small machine?

Synthetic moments of order C = 4,096, in a process of its own. ``ratio``: seconds of decomposition and all its figures
against their bound of 120 s. ``memory_ratio``: peak memory against 4 GB. ``spectra_error``: the largest difference of
the float32 spectra from float64 ones at order 1,024, relative to the largest value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ghosted.bench._peak import measured
from ghosted.experiment import Experiment
from ghosted.progress import Stage

ORDER = 4096
BOUND_S, BOUND_BYTES = 120, 4 * 10**9
COMPARED = 1024


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Measure all of it once.

    Args:
        experiment: not used; no model is read.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread`` (one value), ``memory_ratio``, ``spectra_error``, seconds of each step, bytes.

    Raises:
        ResourceError: the process failed.
    """
    stage = Stage("solving and drawing", 1)
    found = measured(drawn, order=ORDER)
    on_event(stage.step())
    seconds = found["decompose_s"] + found["draw_s"]
    return {
        "ratio": seconds / BOUND_S,
        "spread": [seconds / BOUND_S] * 2,
        "memory_ratio": found["peak_bytes"] / BOUND_BYTES,
        **{name: value for name, value in found.items() if name != "seconds"},
        "order": ORDER,
    }


def drawn(order: int) -> Callable[[], dict[str, Any]]:
    """Return the work: moments, solve, decomposition, figures."""
    import torch

    from analysis.figures import spectra
    from analysis.figures.operator import operator_maps, portrait
    from ghosted.bench.solve import synthetic_moments
    from ghosted.decomposition import decompose
    from ghosted.solve import Spectrum

    error = spectra_error()

    def work() -> dict[str, Any]:
        clock = [time.perf_counter()]

        def lap() -> None:
            clock.append(time.perf_counter())

        G, B = synthetic_moments(order, 0)
        lap()
        M = Spectrum(G).solve(B, 1e-6).M
        del G, B
        lap()
        found = decompose(M.float(), "ghosted", range(8, 16))
        del M
        lap()
        picture = portrait(found)
        pictures = [*operator_maps(picture).values(), spectra.eigenvalue_plane(picture),
                    spectra.symmetric_line(picture), spectra.rotation_rates(picture),
                    spectra.singular_values(picture)]  # fmt: skip
        size = sum(len(figure.to_json()) for figure in pictures)
        lap()
        steps = zip(("moments_s", "solve_s", "decompose_s", "draw_s"), clock, clock[1:], strict=False)
        return {name: end - start for name, start, end in steps} | {
            "payload_bytes": size, "spectra_error": error, "threads": torch.get_num_threads(),
        }

    return work


def spectra_error() -> float:
    """Return how far float32 spectra are from float64 ones, relative to the largest value; eigenvalues by size."""
    import torch

    from ghosted.bench.solve import synthetic_moments
    from ghosted.solve import Spectrum

    G, B = synthetic_moments(COMPARED, 0)
    M = Spectrum(G).solve(B, 1e-6).M
    A, S, W = (M - M.mT) / 2, (M + M.mT) / 2, torch.eye(COMPARED).to(M) + M
    errors = []
    for values, matrix in ((torch.linalg.svdvals, M), (torch.linalg.svdvals, A), (torch.linalg.eigvalsh, S),
                           (lambda X: torch.linalg.eigvals(X).abs(), W)):  # fmt: skip
        exact, rough = (values(X).double().sort().values for X in (matrix, matrix.float()))
        errors.append(float((exact - rough).abs().max() / exact.abs().max()))
    return max(errors)
