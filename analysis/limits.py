"""How much may be asked of one page? A :class:`Limits`: on one's own machine, on a shared server, in a public demo.

Each bound has a default, a flag of ``app.py`` and a sentence that is shown when it is reached. A page that is not
bound to the loopback address is taken for a shared server: no files of the machine, and tighter bounds.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.settings import refuse_paths
from analysis.speech import say
from ghosted.errors import InputError, ResourceError
from ghosted.experiment import Experiment

SCALE = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Limits:
    """What one server does for its visitors.

    Attributes:
        local_paths: whether files and folders of this machine may be named.
        any_model: whether models beside the catalogue's may be named.
        memory: bytes that one run may need; ``None`` leaves it at what is free.
        cache: bytes kept on disk; the least recently used makes room.
        upload: bytes of one uploaded file.
        uploads: uploaded texts per open page.
        text: tokens of calibration, and of scored text.
        letters: of the prompt.
        new_tokens: written per column.
        columns: models side by side, the original among them.
        steps: of distillation.
        items: of a zero-shot task.
        sessions: open pages.
        queue: runs that wait.
    """

    local_paths: bool = True
    any_model: bool = True
    memory: int | None = None
    cache: int = 20 * 2**30
    upload: int = 50 * 2**20
    uploads: int = 50
    text: int = 4_000_000
    letters: int = 100_000
    new_tokens: int = 4096
    columns: int = 32
    steps: int = 100_000
    items: int = 100_000
    sessions: int = 200
    queue: int = 200

    def check(self, experiment: Experiment, uploads: Collection[str] = (), texts: Collection[str] = ()) -> None:
        """Refuse what is not done here, before anything is read or queued.

        Args:
            experiment: what is asked for.
            uploads: paths that this visitor has uploaded.
            texts: names of the texts that everybody may use.

        Raises:
            InputError: a file of the server, a model outside the catalogue, or more than a bound allows.
        """
        if not self.local_paths:
            refuse_paths(experiment, uploads, texts)
        if not self.any_model:
            _refuse_other_models(experiment)
        e = experiment
        for name, what, asked in (
            ("text", "calibration", e.tokens), ("text", "scored", e.windows * e.window),
            ("text", "window", e.tokens_per_window),
            ("letters", "letters", len(e.prompt)), ("new_tokens", "new_tokens", e.max_new_tokens),
            ("columns", "columns", 1 + len(e.methods)), ("steps", "steps", e.distill),
            ("text", "batch", e.batch or 0),
        ):
            self.within(name, what, asked)

    def check_tasks(self, tasks: Sequence[str], items: int) -> None:
        """Refuse zero-shot tasks that are not offered here: where paths may not be named, a task is a plain name.

        Raises:
            InputError: a task by its file, one that the demo does not offer, or more items than are scored here.
        """
        self.within("items", "items", items)
        if self.local_paths:
            return
        from ghosted.scores.tasks import NAMES

        known = {name.lower() for name in NAMES}
        for task in tasks:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", task):
                raise InputError(say("refused.task"))
            if not self.any_model and task.lower() not in known:
                raise InputError(say("refused.demo_tasks", names=", ".join(NAMES)))

    def check_upload(self, held: int) -> None:
        """Refuse another upload of a visitor who has ``held`` texts already.

        Raises:
            InputError: there are too many.
        """
        self.within("uploads", "uploads", held + 1)

    def within(self, name: str, what: str, asked: int) -> None:
        """Refuse more than a bound.

        Raises:
            InputError: ``asked`` is more; the sentence names the bound and the flag that raises it.
        """
        most = getattr(self, name)
        if asked > most:
            raise InputError(say("refused.most", most=f"{most:,}", what=say(f"bound.{what}"), asked=f"{asked:,}",
                                 flag=flag_of(name)))

    def check_memory(self, needed: int) -> None:
        """Refuse a run beforehand that may need more memory than is lent to one.

        Raises:
            ResourceError: ``needed`` bytes are too many.
        """
        if self.memory is not None and needed > self.memory:
            raise ResourceError(
                f"This run needs about {needed / 2**30:.3g} GiB of memory, and this page lends a run "
                f"{self.memory / 2**30:.3g} GiB; take a smaller model, fewer tokens or fewer methods."
            )

    @property
    def watchers(self) -> int:
        """Handlers that wait at the same time when every page has a run under way: they must not keep others out."""
        return 8 * self.sessions


ALONE = Limits()
"""On the loopback address: bounds against slips only."""
SHARED = Limits(
    local_paths=False, cache=20 * 2**30, upload=20 * 2**20, uploads=10, text=262_144, letters=20_000, new_tokens=512,
    columns=16, steps=1_000, items=1_000, sessions=120, queue=90,
)
"""A classroom: everybody who reaches the address may use it."""
DEMO = replace(
    SHARED, any_model=False, memory=8 * 2**30, cache=8 * 2**30, upload=2 * 2**20, uploads=3, text=32_768, letters=4_000,
    new_tokens=128, columns=8, steps=100, items=100, sessions=60, queue=20,
)
"""A public Space: models of the catalogue only."""

FLAGS = {
    "memory": "memory that one run may need, such as 8G (default: what is free)",
    "cache": "what is kept on disk at most, such as 20G",
    "upload": "size of an uploaded file, such as 20M",
    "uploads": "uploaded texts per open page",
    "text": "tokens of calibration or scored text per run",
    "letters": "letters of a prompt",
    "new_tokens": "new tokens per column",
    "columns": "models side by side, the original among them",
    "steps": "steps of distillation",
    "items": "items per zero-shot task",
    "sessions": "open pages",
    "queue": "runs that wait",
}
"""What each flag bounds."""
_BYTES = ("memory", "cache", "upload")


def flag_of(name: str) -> str:
    """Return the flag of a bound."""
    return f"--max-{name.replace('_', '-')}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every bound."""
    group = parser.add_argument_group("bounds", "tighter where others can reach the page, tightest with --demo")
    for name, said in FLAGS.items():
        read = _size if name in _BYTES else _number
        group.add_argument(flag_of(name), dest=f"max_{name}", type=read, default=None, metavar="N", help=said)


def limits_from(args: Any, alone: bool) -> Limits:
    """Return the limits that the flags say.

    Args:
        args: parsed flags, ``demo`` among them.
        alone: whether only this machine can reach the page.
    """
    start = DEMO if args.demo else ALONE if alone else SHARED
    given = {name: value for name in FLAGS if (value := getattr(args, f"max_{name}")) is not None}
    return replace(start, **given)


def _refuse_other_models(experiment: Experiment) -> None:
    from ghosted.models import entries

    if entries.find(experiment.model) is None:
        names = ", ".join(entry.name for entry in entries.ENTRIES[:4])
        raise InputError(say("refused.demo_models", names=names))
    if experiment.revision is not None:
        raise InputError(say("refused.demo_revision"))


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number of at least 1, not {text[:40]!r}")
    return int(text)


def _size(text: str) -> int:
    read = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    size = int(float(read[1]) * SCALE[read[2].upper()]) if read else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"it must be a size such as 500M or 8G, not {text[:40]!r}")
    return size
