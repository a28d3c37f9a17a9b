"""What else can be measured of the experiment on the page? What was asked for, what it will cost, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.record import Record
from analysis.speech import language, say
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.removed import RemovedBlocks
from ghosted.results.evidence import Evaluation

WHAT = ("texts", "tasks", "probe", "speed", "sensitivity")
"""What can be asked for, by name, in the order in which it is measured."""

WINDOW, WINDOWS = 2048, 4
"""Tokens per scored window and windows per text: the papers' window, but fewer windows than a whole text has."""
SEQUENCES = (4, 8, 16, 32, 64)
TOKENS_PER_ITEM, PROBED, TIMED = 160, 6_000, 5_000
"""What an item of a task, the probe and the clock feed to one model, in tokens, about: for the time beforehand."""


@dataclass(frozen=True)
class Asked:
    """One request, equal to every other of the same kind.

    Attributes:
        experiment: the settings, its blocks named where they are known.
        what: names of :data:`WHAT`.
        tasks: names of tasks.
        limit: items per task.
    """

    experiment: Experiment
    what: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    limit: int = 100

    def __post_init__(self) -> None:
        """Check what can be checked without a model.

        Raises:
            InputError: nothing, something unknown, or tasks without a name.
        """
        if not self.what or not set(self.what) <= set(WHAT):
            raise InputError(say("evidence.nothing"))
        if "tasks" in self.what and not self.tasks:
            raise InputError(say("evidence.no_task"))
        if not 1 <= self.limit <= 100_000:
            raise InputError(say("evidence.wrong_items", count=self.limit))
        if "sensitivity" in self.what and len(self.gaps or ()) != 1:
            raise InputError(say("evidence.one_gap"))

    @property
    def gaps(self) -> tuple[range, ...] | None:
        """The gaps; ``None`` where a criterion is still to choose the blocks."""
        named = self.experiment.criterion == "manual"
        return RemovedBlocks.parse(self.experiment.remove).gaps if named else None


@dataclass(frozen=True, eq=False)
class Measured:
    """What came out: each part ``None`` where it was not asked for."""

    asked: Asked
    evaluation: Evaluation | None = None
    sources: Sequence[Any] | None = None


def measurer(visitor: str) -> str:
    """Return the name under which a visitor's measurement waits: a run of the same page may stand beside it."""
    return f"{visitor} measures"


def named_blocks(experiment: Experiment, record: Record | None) -> Experiment:
    """Return the experiment with the blocks that a run of it chose, so that nothing is chosen twice."""
    if record is None or record.run.experiment != experiment or experiment.criterion == "manual":
        return experiment
    return replace(experiment, criterion="manual", count=0, remove=str(record.run.removed))


def tokens(what: str, asked: Asked) -> int:
    """Return how many tokens one part feeds to the models, about."""
    experiment, models = asked.experiment, 1 + len(asked.experiment.methods)
    texts = max(1, len(experiment.evaluate))
    scored = experiment.windows * experiment.window
    return {
        "texts": models * texts * WINDOWS * WINDOW, "tasks": models * len(asked.tasks) * asked.limit * TOKENS_PER_ITEM,
        "probe": models * PROBED, "speed": models * TIMED,
        "sensitivity": SEQUENCES[-1] * experiment.tokens_per_window + scored * (2 + len(SEQUENCES)),
    }[what]


def cost_line(asked: Asked, seconds: Callable[[int], float | None]) -> str:
    """Return what each part will read and how long it takes here, before it is started.

    Args:
        asked: the request.
        seconds: tokens to the seconds that one pass of the model takes, ``None`` where that is not known.
    """
    said, total = [], 0.0
    for what in (name for name in WHAT if name in asked.what):
        number = tokens(what, asked)
        takes = seconds(number)
        total += takes or 0.0
        time = "" if takes is None else say("evidence.time", seconds=f"{max(takes, 1):,.0f}")
        named = say(f"evidence.{what}")
        named = named.lower() if language() == "en" else named
        said.append(say("evidence.cost", what=named, tokens=f"{number:,}", time=time))
    fitting = seconds(asked.experiment.tokens + max(8192, asked.experiment.tokens // 4))
    end = ""
    if fitting is not None:
        end = say("evidence.total", seconds=f"{total + fitting:,.0f}", fitting=f"{fitting:,.0f}")
    listed = "; ".join(said)
    return (listed.capitalize() if language() == "en" else listed) + f"{end}."
