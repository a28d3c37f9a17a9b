"""Choices that took long are kept on disk, by the content of all that decides them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghosted import cache
from ghosted.errors import ResourceError
from ghosted.results import Candidate, Choice

KIND, VERSION = "choices", 3


def key(criterion: str, count: int, seed: int, evidence_key: Sequence[Any]) -> str:
    """Return the cache key of a choice; ``evidence_key`` stands for the model and the texts."""
    return cache.key_of([VERSION, criterion, count, seed, list(evidence_key)])


def restore(entry: str) -> Choice | None:
    """Return a kept choice, ``None`` if there is none; its cost is nothing."""
    return cache.Cache().read(KIND, entry, _read)


def _read(folder: Path) -> Choice:
    kept = json.loads((folder / "choice.json").read_text("utf-8"))
    runner = kept["runner_up"]
    return Choice(
        kept["criterion"], kept["remove"], kept["score"], kept["higher_is_better"], runner and Candidate(**runner),
        kept["near_tie"], tuple(Candidate(**each) for each in kept["candidates"]),
    )


def save(entry: str, choice: Choice) -> None:
    """Keep a choice; a full disk is no reason to fail."""
    plain = {name: getattr(choice, name) for name in ("criterion", "remove", "score", "higher_is_better", "near_tie")}
    plain["runner_up"] = choice.runner_up and vars(choice.runner_up)
    plain["candidates"] = [vars(each) for each in choice.candidates]
    try:
        cache.Cache().put(KIND, entry, lambda folder: (folder / "choice.json").write_text(json.dumps(plain), "utf-8"))
    except ResourceError:
        return
