"""Which panels show something else than what the controls say? Each with the reason, in a few words."""

from __future__ import annotations

from collections.abc import Iterable

from analysis import panels
from analysis.record import Record
from analysis.settings import DEFAULT
from analysis.speech import say
from ghosted.experiment import Experiment

RESULTS = ("boundary", "tokens", "decomposition", "generations", "scores", "downstream")
CAUSES = (
    (("model", "revision", "dtype"), "model", ("all",)),
    (("text", "tokens", "window", "calibration_window", "held_out", "batch"), "calibration", ("all",)),
    (("remove", "criterion", "count"), "blocks", RESULTS),
    (("ridge", "rank", "fit", "distill"), "fit", RESULTS),
    (("methods",), "repairs", RESULTS),
    (("prompt", "chat", "max_new_tokens", "temperature", "seed"), "prompt", ("generations",)),
    (("windows", "evaluate"), "scored", ("scores", "downstream")),
)
"""What changes what: settings, the reason's name, and the panels that then show the past."""


def stale_panels(record: Record | None, experiment: Experiment) -> dict[str, str]:
    """Return the reason for each panel that does not show ``experiment``; the key ``all`` stands for every panel.

    Args:
        record: what is shown. The page's own precomputed one, whose blocks its criterion chose,
            counts as an answer to its default settings.
        experiment: what the controls say.
    """
    if record is None:
        return {}
    own = record.run.experiment
    shown = DEFAULT if record.source == "precomputed" and own.criterion == DEFAULT.criterion else own
    reasons: dict[str, str] = {}
    for fields, reason, names in CAUSES:
        if not any(_differ(name, record, shown, experiment) for name in fields):
            continue
        for name in names:
            reasons.setdefault(name, say(f"stale.{reason}"))
    return {"all": reasons["all"]} if "all" in reasons else reasons


def _differ(name: str, record: Record, shown: Experiment, experiment: Experiment) -> bool:
    if name == "methods":  # a repair that is no longer ticked leaves the others true
        return not set(experiment.methods) <= set(shown.methods)
    if name in ("criterion", "count", "remove") and experiment.criterion == "manual":
        return experiment.remove != str(record.run.removed)
    if name == "remove":
        return False
    return getattr(shown, name) != getattr(experiment, name)


def pending_panels(parts: Iterable[str], record: Record | None) -> dict[str, str]:
    """Return the reason for each panel whose part of a going run is not known yet; nothing where nothing is shown.

    Args:
        parts: the parts that are known.
        record: what was shown when the run began.
    """
    if record is None:
        return {}
    said = say("stale.pending_first" if record.source == "precomputed" else "stale.pending")
    waiting = [name for name in panels.PANELS if panels.module(name).PART not in (None, *parts)]
    return dict.fromkeys(waiting, said)
