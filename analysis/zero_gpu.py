"""How does a run get the GPU of a Space that lends one for seconds at a time (ZeroGPU)?

The package ``spaces`` runs a decorated function in another process, which has the GPU for as long as was asked for;
what goes in and comes out is pickled. So an experiment goes in as plain data, events come out as plain data, and here
they become what the library itself would have yielded. Elsewhere, and where ``spaces`` is absent, runs stay in this
process. This module has to be imported before torch.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

from ghosted import errors
from ghosted.errors import GhostedError
from ghosted.experiment import Experiment
from ghosted.plain import from_plain, to_plain
from ghosted.progress import CancelFlag, Note, Progress, Steps
from ghosted.results import PARTS, Column, Run, Update

try:
    import spaces
except ModuleNotFoundError:
    spaces = None

LEAST_S, MOST_S = 30, 120
"""What may be asked for: less is not worth the start, more is refused to most visitors."""


def is_here() -> bool:
    """Return whether this process runs on a Space that lends GPUs."""
    return spaces is not None and os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true")


def lent(run: Callable[..., Steps[Run]], facts: Callable[[str], Any]) -> Callable[..., Steps[Run]]:
    """Return a run that borrows the Space's GPU, or ``run`` itself where there is none to borrow.

    Args:
        run: ``run(experiment, cancel=flag, parts=names)``; in the other process it is called without a flag.
        facts: model name to its facts, for the time to ask for.
    """
    if not is_here():
        return run

    def seconds(experiment: dict[str, Any], parts: tuple[str, ...]) -> int:
        from ghosted.plan import gpu_seconds

        settings = from_plain(Experiment, experiment)
        return int(min(max(gpu_seconds(facts(settings.model), settings), LEAST_S), MOST_S))

    @spaces.GPU(duration=seconds)
    def on_gpu(experiment: dict[str, Any], parts: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        yield from plain_events(run, experiment, parts)

    def run_there(
        experiment: Experiment, cancel: CancelFlag | None = None, parts: tuple[str, ...] = PARTS
    ) -> Steps[Run]:
        return (yield from events(on_gpu(experiment.to_json(), parts), cancel))

    return run_there


def plain_events(
    run: Callable[..., Steps[Run]], experiment: dict[str, Any], parts: tuple[str, ...] = PARTS
) -> Iterator[tuple[str, Any]]:
    """Run an experiment given as plain data, and yield ``(kind, data)`` of every event, all of it plain."""
    try:
        steps = run(from_plain(Experiment, experiment), cancel=None, parts=parts)
        while True:
            try:
                event = next(steps)
            except StopIteration as stop:
                yield "run", to_plain(stop.value)
                return
            if isinstance(event, Progress):
                yield "progress", dataclasses.asdict(event)
            elif isinstance(event, Note):
                yield "note", event.text
            elif isinstance(event, Update) and event.part == "columns":
                yield "columns", to_plain(event.run.columns)  # many times; the rest of the run has not changed
            elif isinstance(event, Update):
                yield "update", (event.part, to_plain(event.run))
    except GhostedError as reason:
        yield "failed", (type(reason).__name__, str(reason))


def events(plain: Iterator[tuple[str, Any]], cancel: CancelFlag | None = None) -> Steps[Run]:
    """Turn what :func:`plain_events` gave back into events and a run.

    Raises:
        GhostedError: what ended the run there, or ``cancel`` was set.
        ResourceError: the GPU was taken away before the run was over.
    """
    found: Run | None = None
    try:
        for kind, data in plain:
            if cancel is not None:
                cancel.check()
            if kind == "progress":
                yield Progress(**data)
            elif kind == "note":
                yield Note(data)
            elif kind == "columns" and found is not None:
                found = dataclasses.replace(found, columns=from_plain(list[Column], data))
                yield Update("columns", found)
            elif kind == "update":
                part, run = data
                found = from_plain(Run, run)
                yield Update(part, found)
            elif kind == "run":
                return from_plain(Run, data)
            elif kind == "failed":
                name, said = data
                raise getattr(errors, name, GhostedError)(said)
    finally:
        if hasattr(plain, "close"):
            plain.close()
    raise errors.ResourceError("The GPU was lent for too short a time; take fewer tokens, or try again in a minute.")
