"""How is this exact view made without the page? The command line and the Python that give the same numbers."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection
from pathlib import PurePath
from typing import Any

from ghosted import flags
from ghosted.experiment import Experiment

COMPARE = EXPORT = (*flags.MODEL, *flags.BLOCKS, *flags.REPAIR, *flags.CALIBRATION, *flags.SCORING)
GENERATE = (*flags.MODEL, *flags.BLOCKS, *flags.REPAIR, *flags.CALIBRATION, *flags.GENERATION)
LINE = 100
"""Letters from which on a command continues on the next line."""


def meant(experiment: Experiment, uploads: Collection[str] = ()) -> Experiment:
    """Return the experiment as somebody else would write it down.

    Of its choice of blocks only what counts is kept: the blocks where they are chosen by hand, else the criterion and
    its count. An uploaded text goes by its file's name, as its owner has it, and not by where the server put it.

    Args:
        experiment: any.
        uploads: paths of this visitor's uploads.
    """
    def text(name: str) -> str:
        return PurePath(name).name if name in uploads else name

    by_hand = experiment.criterion == "manual"
    return dataclasses.replace(
        experiment, remove=experiment.remove if by_hand else "", count=0 if by_hand else experiment.count,
        text=text(experiment.text), held_out=experiment.held_out and text(experiment.held_out),
        evaluate=tuple(map(text, experiment.evaluate)),
    )


def command_line(experiment: Experiment, uploads: Collection[str] = ()) -> str:
    """Return the ``compare`` command that gives the numbers and, where there is a prompt, ``generate`` for the texts.

    Only what differs from the command line's own defaults is written; every value is quoted for a POSIX shell.

    Args:
        experiment: any.
        uploads: paths of this visitor's uploads.
    """
    chosen = meant(experiment, uploads)
    lines = [_command("compare", chosen, COMPARE)]
    if chosen.prompt.strip():
        lines.append(_command("generate", chosen, GENERATE))
    return "\n\n".join(lines)


def export_command(experiment: Experiment, form: str, uploads: Collection[str] = ()) -> str:
    """Return the command that exports an experiment's one method.

    Args:
        experiment: of one method.
        form: name of the format.
        uploads: paths of this visitor's uploads.
    """
    return _command("export", meant(experiment, uploads), EXPORT, f"--format {form}", f"--out my-{form}")


def python_code(experiment: Experiment, uploads: Collection[str] = ()) -> str:
    """Return a script that runs the experiment and prints the table and the texts.

    Args:
        experiment: any.
        uploads: paths of this visitor's uploads.
    """
    chosen = meant(experiment, uploads)
    default = Experiment()
    given = {name: getattr(chosen, name) for name in _names() if getattr(chosen, name) != getattr(default, name)}
    settings = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    columns = 'for column in found.columns:\n    print(f"\\n{column.method}: {column.text}")\n' if chosen.prompt else ""
    return (
        "from ghosted.commands.compare import table\n"
        "from ghosted.experiment import Experiment\n"
        "from ghosted.progress import drain\n"
        "from ghosted.run import compare_json, run\n\n"
        f"experiment = Experiment(\n{settings})\n"
        f"found = drain(run(experiment))\nprint(table(compare_json(found)))\n{columns}"
    )


def _command(name: str, experiment: Experiment, fields: Collection[str], *more: str) -> str:
    parts = [f"python -m ghosted {name}"]
    parts += [part for field in _names() if field in fields for part in _flag(field, experiment)]
    parts += more
    if sum(map(len, parts)) + len(parts) <= LINE:
        return " ".join(parts)
    return " \\\n  ".join(parts)


def _flag(field: str, experiment: Experiment) -> list[str]:
    value = getattr(experiment, field)
    named = field == "remove" and experiment.criterion == "manual"  # blocks are always named, nothing, too
    if not named and value == getattr(flags.DEFAULTS, field):
        return []
    flag = "--" + field.replace("_", "-")
    if value is True:
        return [flag]
    if field == "evaluate":
        return [" ".join([flag, *map(shlex.quote, value)])]
    said = _written(value)
    joint = "=" if said.startswith("-") else " "
    return [f"{flag}{joint}{shlex.quote(said)}"]


def _written(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _names() -> list[str]:
    return [field.name for field in dataclasses.fields(Experiment)]
