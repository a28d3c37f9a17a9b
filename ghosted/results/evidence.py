"""What does a model score? Perplexity, tasks, speed and the probe of each variant beside the original.

Plain data. A perplexity, and what follows from it, means nothing without its protocol: :func:`same_protocol` refuses to
set two beside each other that were measured differently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ghosted.errors import InputError
from ghosted.results import Protocol, Run

if TYPE_CHECKING:
    from ghosted.texts.whole import WholeText


@dataclass(frozen=True, eq=False)
class TextScore:
    """One model on one text.

    Attributes:
        perplexity: exp of the mean loss; ``None`` where that is no finite number.
        bits_per_byte: summed loss in bits over the UTF-8 bytes of the scored tokens.
        tokens: how many were scored.
        losses: ``(T,)`` float16, nats, of the first scored tokens in their order: where the model is surprised.
    """

    perplexity: float | None
    bits_per_byte: float | None
    tokens: int
    losses: np.ndarray | None = None

    @classmethod
    def of(cls, loss: float, tokens: int, size: int, losses: np.ndarray | None = None) -> TextScore:
        """Make a score of a summed loss in nats over ``tokens`` tokens that are ``size`` bytes of text."""
        mean = loss / max(tokens, 1)
        if not mean < 700:  # NaN, too
            return cls(None, None, tokens, losses)
        return cls(math.exp(mean), loss / math.log(2) / size if size else None, tokens, losses)


@dataclass(frozen=True)
class TaskScore:
    """One model on one task of the harness.

    Attributes:
        acc: share of items whose right answer is the likeliest.
        acc_norm: the same by likelihood per byte, where the task states it.
        stderr: standard error of ``acc``.
        n: items.
    """

    acc: float
    acc_norm: float | None
    stderr: float | None
    n: int


@dataclass(eq=False)
class Evidence:
    """What one model scores.

    Attributes:
        method: how the gap was repaired; ``dense`` for the original.
        texts: by label.
        tasks: by name.
        probe: the behaviour probe's finding, where it was asked for.
        speed: sizes and speeds, where they were asked for.
        not_defined: why the method has no meaning here; then all else is empty.
    """

    method: str
    texts: dict[str, TextScore] = field(default_factory=dict)
    tasks: dict[str, TaskScore] = field(default_factory=dict)
    probe: Any = None
    speed: dict[str, Any] | None = None
    not_defined: str | None = None

    @property
    def average(self) -> float | None:
        """Mean accuracy over the tasks, as the papers print it."""
        return sum(task.acc for task in self.tasks.values()) / len(self.tasks) if self.tasks else None

    def retained(self, dense: Evidence) -> float | None:
        """Return the average in percent of the original's, over the same tasks and items.

        Raises:
            InputError: the two were not scored on the same items.
        """
        if not self.tasks or not dense.average:
            return None
        if {n: t.n for n, t in self.tasks.items()} != {n: t.n for n, t in dense.tasks.items()}:
            raise InputError("The two models were not scored on the same tasks and items; score both alike.")
        return 100 * self.average / dense.average

    def to_json(self, dense: Evidence) -> dict[str, Any]:
        """Return the object R of ``evaluate --json``: numbers for one text, objects by text for several."""
        if self.not_defined:
            return {"not_defined": self.not_defined}
        result: dict[str, Any] = {
            "perplexity": by_text({name: t.perplexity for name, t in self.texts.items()}),
            "bits_per_byte": by_text({name: t.bits_per_byte for name, t in self.texts.items()}),
            "tasks": {name: vars(task) for name, task in self.tasks.items()},
            "average": self.average,
            "retained": self.retained(dense),
        }
        if self.probe is not None:
            result["probe"] = self.probe.to_json(dense.probe)
        return result | ({"speed": self.speed} if self.speed else {})


@dataclass(eq=False)
class Evaluation:
    """Everything that one ``evaluate`` found.

    Attributes:
        run: the experiment and what was fitted.
        dense: the original's scores.
        methods: one entry per method, in the order asked for.
        protocols: of each text, by label.
        scored: the texts as they were cut, by label: what :attr:`TextScore.losses` belong to.
        about_tasks: how the tasks were scored, if any were.
        speed: sizes and speeds of all models, and the ratio between methods, if they were measured.
    """

    run: Run
    dense: Evidence = field(default_factory=lambda: Evidence("dense"))
    methods: list[Evidence] = field(default_factory=list)
    protocols: dict[str, Protocol] = field(default_factory=dict)
    scored: dict[str, WholeText] = field(default_factory=dict)
    about_tasks: dict[str, Any] | None = None
    speed: dict[str, Any] | None = None

    def method(self, name: str) -> Evidence:
        """Return one method's scores by name."""
        return next(m for m in self.methods if m.method == name)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``evaluate --json`` prints."""
        run = self.run
        protocol: dict[str, Any] = {"texts": {name: vars(p) for name, p in self.protocols.items()}}
        if self.about_tasks:
            protocol["tasks"] = self.about_tasks
        return {
            "experiment": run.experiment.to_json() | {"remove": str(run.removed), "dtype": run.dtype},
            "model": run.model_label,
            "dense": self.dense.to_json(self.dense),
            "methods": [{"method": m.method} | m.to_json(self.dense) for m in self.methods],
            "protocol": protocol,
            "speed": self.speed,
            "self_check": run.self_check,
            "warnings": run.warnings,
            "seconds": run.seconds,
        }


def by_text(values: dict[str, Any]) -> Any:
    """Return the one value there is, or all by name where there are several; ``None`` where there is none."""
    return next(iter(values.values()), None) if len(values) < 2 else values


_MEANING = ("sha256", "window", "stride", "windows", "tokens_scored", "bos", "dtype")


def same_protocol(one: Protocol | Mapping[str, Any], other: Protocol | Mapping[str, Any]) -> None:
    """Refuse to compare two perplexities of different protocols.

    Args:
        one: a protocol, or its JSON.
        other: the same.

    Raises:
        InputError: they differ; the sentence says in what.
    """
    one, other = (p if isinstance(p, Mapping) else vars(p) for p in (one, other))
    different = [name for name in _MEANING if one[name] != other[name]]
    if different:
        said = ", ".join(
            f"{name.replace('_', ' ')} {str(one[name])[:12]} and {str(other[name])[:12]}" for name in different
        )
        raise InputError(f"These perplexities cannot be compared: their protocols differ ({said}); score both alike.")


def protocol_sentence(p: Mapping[str, Any], what: str = "perplexity") -> str:
    """Return what a perplexity (or what it is called) means in one line, from a protocol's JSON."""
    return (
        f"{what} on {p['text']}: {p['windows']} windows of {p['window']}, stride {p['stride']}, "
        f"{p['tokens_scored']:,} tokens scored, {'BOS' if p['bos'] else 'no BOS'}, {p['dtype']}"
        f"{', same source as the calibration text' if p['same_source'] else ''}"
    )
