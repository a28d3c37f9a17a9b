"""How do several processes do one run? Each reads its share of the windows; what is additive is added up.

``torchrun`` or ``accelerate launch`` starts the processes, all of which do the same run on the same settings. Passes
over calibration and evaluation windows are shared out by whole batches, so that every window meets the same neighbours
as in one process; sums are all-reduced. The first process solves and hands its operators on, keeps results, and prints.
In a process that was started alone every function here does nothing.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from ghosted.errors import GhostedError, InputError, ResourceError
from ghosted.progress import Steps

Item = TypeVar("Item")
PATIENCE = "GHOSTED_PATIENCE"
"""Names the variable with the seconds that processes wait for one another; a solve at full width may take minutes."""
DEFAULT_PATIENCE = 1800
_LOST = "Another process of this run ended or went silent, so this one ends, too; start the run again."
_FAILURES = "ghosted/failures"
_alone = False


class PeerLost(ResourceError):
    """Another process of the run does not answer any more."""


def launched() -> bool:
    """Return whether this process was started as one of several."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1") and "RANK" in os.environ


def begin() -> None:
    """Join the other processes, where this one was started as one of several.

    Raises:
        InputError: ``$GHOSTED_PATIENCE`` is no number of seconds.
        PeerLost: they cannot be reached.
    """
    if not launched():
        return
    import torch
    import torch.distributed as dist

    try:
        patience = timedelta(seconds=float(os.environ.get(PATIENCE) or DEFAULT_PATIENCE))
    except (ValueError, OverflowError):
        raise InputError(f"{PATIENCE} must be a number of seconds, not {os.environ[PATIENCE][:20]!r}.") from None
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    with _answered():
        dist.init_process_group(backend, timeout=patience)


def end() -> None:
    """Part from the other processes; says nothing where they are gone."""
    if size() == 1:
        return
    import torch.distributed as dist

    dist.destroy_process_group()


def size() -> int:
    """Return the number of processes that share the work."""
    dist = sys.modules.get("torch.distributed")
    if _alone or dist is None or not dist.is_available() or not dist.is_initialized():
        return 1
    return dist.get_world_size()


def rank() -> int:
    """Return the number of this process, from 0."""
    return 0 if size() == 1 else sys.modules["torch.distributed"].get_rank()


def is_first() -> bool:
    """Return whether this process keeps and prints results: the first, or the only one."""
    return rank() == 0


@contextmanager
def alone() -> Iterator[None]:
    """Work by itself for as long as the ``with`` block lasts: nothing is shared, nobody is waited for."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def mine(items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
    """Yield place and item of this process's share: every n-th of ``items``.

    A sweep shares its cells out like this, and computes each :func:`alone`.
    """
    first, step = rank(), size()
    for place, item in enumerate(items):
        if place % step == first:
            yield place, item


def add_up(tensors: Iterable[Any]) -> None:
    """Replace each tensor, in place, by its sum over all processes; every process gives the same shapes.

    Raises:
        PeerLost: a process does not answer.
    """
    if size() == 1:
        return
    import torch.distributed as dist

    with _answered():
        for tensor in tensors:
            dist.all_reduce(tensor)


def added_up(*numbers: float) -> list[float]:
    """Return the sums of some numbers over all processes, in float64; raises as :func:`add_up`."""
    if size() == 1:
        return list(numbers)
    import torch

    sums = torch.tensor(numbers, dtype=torch.float64)
    add_up([sums])
    return sums.tolist()


def everywhere(condition: bool) -> bool:
    """Return whether a condition holds in all processes; raises as :func:`add_up`."""
    return added_up(float(not condition))[0] == 0


def by_first(work: Steps[Item]) -> Steps[Item]:
    """Let the first process do the work, and give what it returns to all; what it raises is raised in all.

    Args:
        work: nothing in it may wait for other processes.

    Raises:
        PeerLost: a process does not answer.
    """
    if size() == 1:
        return (yield from work)
    import torch
    import torch.distributed as dist

    result = reason = None
    sent = [b""]
    if is_first():
        try:
            result = yield from work
        except GhostedError as why:
            reason = why
        file = io.BytesIO()
        torch.save((result, reason), file)
        sent = [file.getvalue()]
    with _answered():
        dist.broadcast_object_list(sent, src=0)
    if not is_first():  # what comes from this run's own first process is no foreign file
        result, reason = torch.load(io.BytesIO(sent[0]), map_location=_own_device(), weights_only=False)
    if reason is not None:
        raise reason
    return result


def speaks_first() -> bool:
    """Return whether this process is the first of a run to fail, so that one sentence is said and not one by each."""
    if not launched():
        return True
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized():
        return os.environ["RANK"] == "0"
    try:
        return dist.distributed_c10d._get_default_store().add(_FAILURES, 1) == 1
    except RuntimeError:  # who kept the count is gone
        return True


def _own_device() -> dict[str, str]:
    """Return where what was on the first process's accelerator goes: on this one's."""
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"cuda:0": f"cuda:{torch.cuda.current_device()}"}


@contextmanager
def _answered() -> Iterator[None]:
    """Turn whatever the library says of a process that is gone into one sentence."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(_LOST) from error
