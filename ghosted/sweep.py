"""How do many experiments compare? A sweep over models × texts × criteria × counts, each cell one evaluation.

A spec is a YAML file; a cell is everything that decides its numbers, and its hash names its file. A finished cell is
one JSON file that appears whole: a sweep that was killed goes on where it stopped, and no cell is lost or run twice,
whoever else works on the same folder (a lock per cell). Started as one of several processes, on one machine or on
several that share the folder, a sweep computes its share of the cells, each by itself.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import datetime
import hashlib
import json
import multiprocessing
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghosted import criteria, distributed, operators
from ghosted.cache import file_sha256
from ghosted.errors import GhostedError, InputError, ResourceError
from ghosted.evaluation import Plan, evaluate
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.progress import CancelFlag, Note, Stage, Steps
from ghosted.workspace import Workspace

VERSION = 1
"""Of the cells' files; part of their hash."""
CELLS = "cells"
_SETTINGS = ("tokens", "window", "calibration_window", "held_out", "ridge", "rank", "fit", "dtype", "batch", "seed")
_PLAN = {"evaluation_window": "window", "stride": "stride", "windows": "windows", "limit": "limit"}
_LISTS = ("models", "calibration", "counts", "methods", "evaluate", "tasks", "include_path")


@dataclass(frozen=True)
class Spec:
    """A sweep as its file says.

    Attributes:
        models: names, as on the command line.
        criteria: what each criterion is called in the table, and its name.
        counts: how many blocks go.
        methods: the repairs; all of them are in every cell.
        calibration: calibration texts.
        evaluate: scored texts; empty means each calibration text's rest.
        settings: further fields of the experiment.
        plan: how texts and tasks are scored.
        name: of the sweep.
    """

    models: tuple[str, ...]
    criteria: tuple[tuple[str, str], ...]
    counts: tuple[int, ...]
    methods: tuple[str, ...]
    calibration: tuple[str, ...]
    evaluate: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...]
    plan: Plan
    name: str = "sweep"

    @classmethod
    def read(cls, path: str | Path, **instead: Any) -> Spec:
        """Read a spec; ``instead`` replaces what it says, where it is not ``None`` or empty.

        Raises:
            InputError: it is no YAML mapping, or says something that makes no sense.
        """
        import yaml

        try:
            said = yaml.safe_load(Path(path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise InputError(f"The spec {path} cannot be read ({why}).") from error
        except yaml.YAMLError as error:
            line = getattr(getattr(error, "problem_mark", None), "line", None)
            where = "" if line is None else f" near line {line + 1}"
            raise InputError(f"The spec {path} is not YAML{where}.") from error
        if not isinstance(said, dict):
            raise InputError(f"The spec {path} must be a mapping such as models: [smollm2-135m].")
        return cls.of(said | {key: value for key, value in instead.items() if value}, Path(path).stem)

    @classmethod
    def of(cls, said: Mapping[str, Any], name: str = "sweep") -> Spec:
        """Make a spec of plain data.

        Raises:
            InputError: a field is unknown or missing, or a value makes no sense.
        """
        unknown = set(said) - {*_LISTS, *_SETTINGS, *_PLAN, "criteria", "probe", "about"}
        if unknown:
            raise InputError(f"A sweep has no field {min(unknown)!r}; see assets/sweeps for examples.")
        lists = {field: tuple(_listed(said.get(field))) for field in _LISTS}
        named = said.get("criteria") or {}
        named = dict(named) if isinstance(named, dict) else {each: each for each in _listed(named)}
        for field, value in (("models", lists["models"]), ("criteria", named), ("counts", lists["counts"])):
            if not value:
                raise InputError(f"The sweep names no {field}.")
        for criterion in named.values():
            criteria.criterion(str(criterion))
        if "manual" in named.values():
            raise InputError("A sweep chooses blocks by criteria; manual has none to choose by.")
        methods = lists["methods"] or DEFAULT_METHODS
        for method in methods:
            operators.method(str(method))
        if any(not isinstance(count, int) or isinstance(count, bool) or count < 1 for count in lists["counts"]):
            raise InputError("counts must be whole numbers of blocks, such as [5, 9].")
        plan = Plan(tasks=lists["tasks"], include_path=lists["include_path"], probe=bool(said.get("probe")),
                    **{ours: said.get(theirs) for theirs, ours in _PLAN.items()})  # fmt: skip
        settings = tuple((field, said[field]) for field in _SETTINGS if said.get(field) is not None)
        spec = cls(lists["models"], tuple(named.items()), lists["counts"], tuple(methods),
                   lists["calibration"] or ("python-docs",), lists["evaluate"], settings, plan, name)  # fmt: skip
        spec.cells()  # each experiment checks itself
        return spec

    def cells(self) -> list[Cell]:
        """Return the cells in the order they are run: one model after the other."""
        return [
            Cell(label, Experiment(model=model, criterion=criterion, count=count, methods=self.methods, text=text,
                                   evaluate=self.evaluate, **dict(self.settings)), self.plan)
            for model in self.models for text in self.calibration for count in self.counts
            for label, criterion in self.criteria
        ]  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One evaluation.

    Attributes:
        label: what the criterion is called in the table.
        experiment: model, criterion, count, methods and texts.
        plan: how it is scored.
    """

    label: str
    experiment: Experiment
    plan: Plan

    def key(self) -> str:
        """Return the hash of all that decides the numbers, the content of local texts included."""
        e = self.experiment
        names = [name for name in (e.text, e.held_out, *e.evaluate) if name]
        files = {name: file_sha256(path) for name in names if (path := Path(name).expanduser()).is_file()}
        said = {"version": VERSION, "experiment": e.to_json(), "plan": dataclasses.asdict(self.plan), "files": files}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:24]

    def describe(self) -> str:
        """Return the cell in words."""
        e = self.experiment
        return f"{e.model}, {e.count} blocks by {self.label}, calibrated on {Path(e.text).name}"


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: its evaluation as JSON, or the sentence that says why there is none."""

    cell: Cell
    result: dict[str, Any] | None
    failed: str = ""
    finished: str = ""


def finished(folder: Path, cell: Cell) -> Outcome | None:
    """Return a cell's outcome if it was run to its end, else ``None``."""
    try:
        said = json.loads((folder / CELLS / f"{cell.key()}.json").read_text("utf-8"))
        return Outcome(cell, said["result"], "", said["finished"])
    except (OSError, ValueError, KeyError):
        return None


def run_cell(cell: Cell, folder: Path, workspace: Workspace, cancel: CancelFlag | None = None) -> Steps[Outcome]:
    """Run one cell unless somebody has, and write its file; waits while somebody else is at it."""
    from filelock import FileLock, Timeout

    (folder / CELLS).mkdir(parents=True, exist_ok=True)
    target = folder / CELLS / f"{cell.key()}.json"
    lock, waiting = FileLock(f"{target}.lock"), Stage(f"waiting for {cell.describe()}", 1, cancel)
    while True:
        try:
            lock.acquire(timeout=0.5)
            break
        except Timeout:
            yield waiting.step(0)
    try:
        if (known := finished(folder, cell)) is not None:
            return known
        try:
            result = (yield from evaluate(cell.experiment, cell.plan, workspace, cancel)).to_json()
        except GhostedError as error:
            if cancel is not None and cancel.is_set:
                raise
            return Outcome(cell, None, str(error))
        when = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        write_whole(target, json.dumps({"label": cell.label, "finished": when, "result": result}, ensure_ascii=False))
        return Outcome(cell, result, "", when)
    finally:
        lock.release()


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears all at once.

    Raises:
        ResourceError: the disk is full or not writable.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ResourceError(f"{path} cannot be written ({error.strerror}).") from error
    finally:
        temporary.unlink(missing_ok=True)


def sweep(
    spec: Spec, folder: str | Path, jobs: int = 1, workspace: Workspace | None = None, cancel: CancelFlag | None = None
) -> Steps[list[Outcome]]:
    """Run all cells that are not finished and return the outcome of each, in the spec's order.

    Args:
        spec: the sweep.
        folder: where finished cells are kept; made if it is not there.
        jobs: cells at once, each in a process of its own with a model of its own.
        workspace: holds the model where ``jobs`` is 1.
        cancel: checked between batches; with several jobs, cells that have started are finished and kept.

    Raises:
        InputError: ``jobs`` below 1, or more than 1 in one of several processes.
        ResourceError: so many models do not fit, or the folder cannot be written.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, not {jobs}.")
    if jobs > 1 and distributed.size() > 1:
        raise InputError("Several processes share the cells out already; leave --jobs at 1.")
    folder, cells = Path(folder).expanduser(), spec.cells()
    try:
        (folder / CELLS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder} cannot be written ({error.strerror}).") from error
    outcomes = {cell: found for cell in cells if (found := finished(folder, cell)) is not None}
    left = [cell for cell in cells if cell not in outcomes]
    yield Note(f"{len(cells)} cells, {len(outcomes)} of them finished before.")
    if jobs == 1 or len(left) < 2:
        own = [cell for _, cell in distributed.mine(left)]
        left = own + [cell for cell in left if cell not in own]  # the others' are waited for, or taken over
        workspace = workspace or Workspace(keeps_states=True)
        with distributed.alone():
            for number, cell in enumerate(left, 1):
                yield Note(f"cell {number} of {len(left)}: {cell.describe()}")
                outcomes[cell] = yield from run_cell(cell, folder, workspace, cancel)
    else:
        outcomes |= yield from _at_once(left, folder, jobs, cancel)
    return [outcomes[cell] for cell in cells]


def _at_once(cells: Sequence[Cell], folder: Path, jobs: int, cancel: CancelFlag | None) -> Steps[dict[Cell, Outcome]]:
    _check_memory(cells, jobs)
    outcomes: dict[Cell, Outcome] = {}
    stage = Stage("cells", len(cells), cancel)
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(min(jobs, len(cells)), mp_context=context)
    try:
        running = {pool.submit(_in_process, cell, folder): cell for cell in cells}
        while running:
            done, _ = concurrent.futures.wait(running, 0.5, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                try:
                    outcomes[running.pop(future)] = future.result()
                except concurrent.futures.process.BrokenProcessPool as error:
                    raise ResourceError("A process of the sweep ended before its cell did, perhaps for want of memory; "
                                        "run it again with fewer --jobs, what is finished is kept.") from error
            yield stage.step(len(done))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return outcomes


_own: Workspace | None = None  # of a process of the pool: its model serves its next cell


def _in_process(cell: Cell, folder: Path) -> Outcome:
    from ghosted.progress import drain

    global _own
    _own = _own or Workspace(keeps_states=True)
    return drain(run_cell(cell, folder, _own))


def _check_memory(cells: Sequence[Cell], jobs: int) -> None:
    from ghosted import machine, models

    needed = max(models.describe(e.model, e.revision, dtype=e.dtype).memory(e.dtype)
                 for e in {c.experiment.model: c.experiment for c in cells}.values())  # fmt: skip
    free = machine.available_memory()
    if jobs * needed > free:
        raise ResourceError(
            f"{jobs} models at once need about {jobs * needed / 1e9:.3g} GB and {free / 1e9:.3g} GB are free; take "
            f"--jobs {max(1, free // needed)}."
        )
