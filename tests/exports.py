"""Repaired tiny models that are ready to be exported, without the run that would fit them."""

import torch
from tiny import TINY, WIDTH, prompt_ids, tokenizer

from ghosted.experiment import Experiment
from ghosted.models import LoadedModel
from ghosted.models.families import find_family
from ghosted.operators import Fitted
from ghosted.pruned import hidden_channels
from ghosted.removed import RemovedBlocks
from ghosted.repaired import Repaired
from ghosted.results import MethodResult, Protocol, Residual, Run
from ghosted.texts import Slices, Windows

FEATURE = {"ghosted": "state", "normalised": "normalised", "replaceme": "feed_forward", "best": "joint"}


def windows(rows=2, length=64):
    ids = prompt_ids(length, rows=rows)
    return Windows(tuple(ids), "text.txt", "ab" * 32, 0, rows * length, length, False)


def fitted(loaded, gap, method, seed=1):
    feature = FEATURE.get(method, "state")
    if method == "none":
        return Fitted("state", None)
    generator = torch.Generator().manual_seed(seed)
    if method == "scalar":
        return Fitted("state", 0.3 * torch.eye(WIDTH, dtype=torch.float64), 1, structure="scalar")
    if method == "low-rank":
        left, right = (torch.randn(*shape, generator=generator).double() * 0.2 for shape in ((WIDTH, 4), (4, WIDTH)))
        return Fitted("state", left @ right, 2 * WIDTH * 4, factors=(left, right))
    rows = WIDTH
    if feature == "joint":
        rows += hidden_channels(loaded.model, gap, find_family(loaded.model))
    return Fitted(feature, torch.randn(rows, WIDTH, generator=generator).double() * 0.2, WIDTH**2)


def repaired(name="llama", method="ghosted", remove="1,3-4", model=None):
    """A repaired tiny model, its operators random; every gap has another one."""
    loaded = LoadedModel.of(model or TINY(name), tokenizer(), name=name)
    removed = RemovedBlocks.parse(remove)
    result = MethodResult(method, residual=Residual(0.5, 0.6, 0.55), perplexity={"text.txt": 12.5})
    run = Run(Experiment(remove=remove, methods=("none", method)), model_label=name, removed=removed, methods=[result],
              dense_perplexity={"text.txt": 10.0},
              protocols={"text.txt": Protocol("text.txt", "ab" * 32, 64, 64, 2, 126, False, "float32", False)})
    fits = [fitted(loaded, gap, method, seed) for seed, gap in enumerate(removed.gaps)]
    return Repaired(run, loaded, method, fits, Slices(windows(), windows(), {}, {}))
