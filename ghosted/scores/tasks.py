"""What can the model still do? Zero-shot tasks through the evaluation harness, on the model in memory.

The nine tasks of the papers have short names; any other task of the harness goes by its own, and a folder of task files
(``include_path``) adds local ones, which need no network. Items are read, worded and tokenised by the harness.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ghosted import cache
from ghosted.errors import Cancelled, GhostedError, InputError, ModelError, ResourceError
from ghosted.models import background
from ghosted.models.hub import find_dataset
from ghosted.progress import CancelFlag, Steps
from ghosted.results.evidence import TaskScore

NAMES = {
    "ARC-c": ("arc_challenge", "allenai/ai2_arc"), "ARC-e": ("arc_easy", "allenai/ai2_arc"),
    "BoolQ": ("boolq", "aps/super_glue"), "HellaSwag": ("hellaswag", "Rowan/hellaswag"),
    "PIQA": ("piqa", "baber/piqa"), "WinoGrande": ("winogrande", "allenai/winogrande"),
    "WSC273": ("wsc273", "lighteval/winograd_wsc"), "RACE-h": ("race", "EleutherAI/race"),
    "COPA": ("copa", "aps/super_glue"),
}  # fmt: skip
"""The papers' tasks: what the harness calls them, and the dataset on the Hub."""
HARNESS = "lm-eval 0.4.13"
_PACKAGED = {"json", "csv", "parquet", "text", "arrow"}
_METRICS = ("acc", "exact_match", "f1")
WITHOUT = (
    "without a network give local task files (--include-path DIR --tasks NAME), or run the behaviour probe (--probe)."
)


@dataclass(eq=False)
class Tasks:
    """Tasks that were found and read.

    Attributes:
        labels: what each is called here, by the harness's name.
        loaded: the harness's own objects.
        limit: items per task, ``None`` for all.
    """

    labels: dict[str, str]
    loaded: dict[str, Any]
    limit: int | None

    @classmethod
    def found(
        cls, names: tuple[str, ...], include_path: tuple[str, ...] = (), limit: int | None = None,
        cancel: CancelFlag | None = None,
    ) -> Steps[Tasks]:
        """Find tasks by name and read their items.

        Raises:
            InputError: there is no such task or folder.
            ResourceError: the Hub cannot be reached; the sentence names what works without it.
        """
        for folder in include_path:
            if not Path(folder).expanduser().is_dir():
                raise InputError(f"There is no folder {folder} with task files.")
        ours = {label.lower(): label for label in NAMES}
        labels = {}
        for name in names:
            label = ours.get(name.lower(), name)
            labels[NAMES[label][0] if label in NAMES else name] = label
        # Asked before the harness is imported, which takes seconds of its own.
        for repo in dict.fromkeys(NAMES[label][1] for label in labels.values() if label in NAMES):
            yield from _reachable(repo, cancel)
        manager = yield from background.call(
            "looking for tasks", lambda: _manager(labels, include_path), expected=10.0, cancel=cancel
        )
        _check(labels, manager)
        for task, label in labels.items():
            repo = _dataset_of(manager, task)
            if label not in NAMES and repo is not None:
                yield from _reachable(repo, cancel)
        loaded = yield from background.call(
            "reading tasks", lambda: _read(manager, list(labels)), expected=10.0, cancel=cancel
        )
        for task in loaded["tasks"]:
            labels.setdefault(task, task)  # members of a group
        return cls({task: labels[task] for task in loaded["tasks"]}, loaded, limit)

    @cached_property
    def digest(self) -> str:
        """Sha256 of the tasks' wording and of every item that is scored."""
        said = hashlib.sha256(f"{HARNESS} {self.limit}".encode())
        for name, task in self.loaded["tasks"].items():
            said.update(f"{name} {json.dumps(task.dump_config(), sort_keys=True, default=_name)}".encode())
            for doc in itertools.islice(task.eval_docs, self.limit):
                said.update(json.dumps(doc, sort_keys=True, default=str).encode())
        return said.hexdigest()

    def about(self) -> dict[str, Any]:
        """Return the protocol as plain data."""
        return {"harness": HARNESS, "limit": self.limit, "shots": 0, "softmax": "float32", "average": "mean of acc",
                "names": {label: task for task, label in self.labels.items()}}  # fmt: skip

    def score(
        self, model: Any, tokenizer: Any, name: str, cancel: CancelFlag | None = None
    ) -> Steps[dict[str, TaskScore]]:
        """Score one model.

        Args:
            model: the original or a view.
            tokenizer: its tokenizer.
            name: what the model is called in the progress.
            cancel: checked before each batch.

        Returns:
            Scores by the tasks' names here.
        """
        from ghosted.scores import _harness

        counted, stop = [0, 1], CancelFlag()

        def tick(done: int, total: int) -> None:
            counted[:] = done, total
            for flag in (stop, cancel):
                if flag is not None:
                    flag.check()

        def work() -> dict[str, Any]:
            try:
                return _harness.run(model, tokenizer, self.loaded, self.limit, tick)
            except (GhostedError, MemoryError):
                raise
            except Exception as error:
                raise ModelError(f"The harness cannot score {name}: {_first_line(error)}") from error

        try:
            # The flag is left to the working thread, so that nothing else starts beside its last batch.
            found = yield from background.call(f"tasks, {name}", work, expected=60.0, measure=lambda: tuple(counted))
        finally:
            stop.set()
        return {label: _score(found, task) for task, label in self.labels.items()}


def _name(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__name__)


def kept(key: str) -> dict[str, TaskScore] | None:
    """Return scores that :func:`keep` put on disk, if they are there."""
    return cache.read("scores", key, _read_kept)


def _read_kept(folder: Path) -> dict[str, TaskScore]:
    return {name: TaskScore(**one) for name, one in json.loads((folder / "tasks.json").read_text("utf-8")).items()}


def keep(key: str, scores: dict[str, TaskScore]) -> None:
    """Keep one model's scores on disk: tasks take longest of all, and a run that is stopped should not lose them."""
    said = json.dumps({name: vars(one) for name, one in scores.items()})
    cache.put("scores", key, lambda folder: (folder / "tasks.json").write_text(said, "utf-8"))


def _score(found: dict[str, Any], task: str) -> TaskScore:
    metrics = {key.partition(",")[0]: value for key, value in found["results"][task].items()}
    main = next((name for name in _METRICS if name in metrics), None)
    if main is None:
        raise InputError(f"The task {task} has no accuracy; choose a task with one.")
    spread = metrics.get(f"{main}_stderr")
    norm = metrics.get("acc_norm")
    return TaskScore(
        float(metrics[main]), None if norm is None else float(norm),
        float(spread) if isinstance(spread, int | float) else None, int(found["n-samples"][task]["effective"]),
    )


def _manager(labels: dict[str, str], include_path: tuple[str, ...]) -> Any:
    from ghosted.scores import _harness

    folders = [str(Path(folder).expanduser()) for folder in include_path]
    if folders:
        own = _harness.TaskManager(include_path=folders, include_defaults=False)
        if all(task in own.task_index for task in labels):
            return own  # the harness's own thousands of files need not be read
    return _harness.TaskManager(include_path=folders or None)


def _check(labels: dict[str, str], manager: Any) -> None:
    for task in labels:
        if task in manager.task_index:
            continue
        known = [*NAMES, *manager.all_tasks]
        close = difflib.get_close_matches(task, known, n=1, cutoff=0.7)
        hint = f"did you mean {close[0]}?" if close else f"choose {', '.join(NAMES)}, or give its file's folder."
        raise InputError(f"There is no task {task[:60]!r}; {hint}")


def _dataset_of(manager: Any, task: str) -> str | None:
    """Return the Hub dataset of a task, ``None`` where it is read from local files or its file does not say."""
    from ghosted.scores import _harness

    path = manager.task_index[task].yaml_path
    said = _harness.load_yaml(path, resolve_func=False) if path else {}
    repo = said.get("dataset_path")
    if not isinstance(repo, str) or repo in _PACKAGED or "/" not in repo or Path(repo).exists():
        return None
    return repo


def _reachable(repo: str, cancel: CancelFlag | None) -> Steps[None]:
    if os.environ.get("HF_HUB_OFFLINE") or os.environ.get("HF_DATASETS_OFFLINE"):
        return  # the user says that all is in the local cache
    try:
        yield from find_dataset(repo, cancel)
    except ResourceError as error:
        raise ResourceError(f"The Hub cannot be reached to read {repo}; {WITHOUT}") from error
    except ModelError as error:
        raise ResourceError(f"The Hub has no dataset {repo} that you can see; {WITHOUT}") from error


def _read(manager: Any, names: list[str]) -> dict[str, Any]:
    try:
        return manager.load(names)
    except Cancelled:
        raise
    except Exception as error:
        raise ResourceError(
            f"The items of {', '.join(names)} cannot be read ({_first_line(error)}); {WITHOUT}"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160].rstrip(".")
