"""How does a repaired model leave the page? What was asked for, what it will be, and the one file that holds it.

The file is a zip of the checked export, in gradio's own folder of temporary files, from which alone the page serves. It
is there for as long as somebody holds the :class:`Taken` that names it: a visitor's job does, and their session.
"""

from __future__ import annotations

import dataclasses
import weakref
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.names import label_in, method_label
from analysis.numbers import three
from analysis.portable import file_name
from analysis.speech import say
from analysis.words import said
from ghosted import formats
from ghosted.cache import staged
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.repaired import method_of, repaired
from ghosted.results import Run

if TYPE_CHECKING:
    from ghosted.formats import Foreseen
    from ghosted.workspace import Workspace

LARGEST = 500_000_000
"""Bytes of an export at most, from a page that is open to others."""
PREFIX = "ghosted-export-"
CHUNK = 2**24
NOT_HERE = said("take.not_here", "en")


@dataclass(frozen=True)
class Wanted:
    """One export, equal to every other of the same kind.

    Attributes:
        experiment: of one method.
        form: name of the format.
    """

    experiment: Experiment
    form: str

    @property
    def method(self) -> str:
        """The one method; raises :class:`~ghosted.errors.InputError` where there are several."""
        return method_of(self.experiment)


@dataclass(eq=False)
class Taken:
    """An export as one file, which goes when nobody holds this any more.

    Attributes:
        wanted: what was asked for.
        path: the zip.
        check: what the round trip found.
        kept: is closed to remove the file.
    """

    wanted: Wanted
    path: Path
    check: dict[str, Any]
    kept: ExitStack

    def __post_init__(self) -> None:
        """See to it that the file goes, at the latest when the server ends."""
        weakref.finalize(self, self.kept.close)

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size

    def said(self) -> str:
        """Return one sentence: what is in the file, and how it was checked."""
        label = f"{label_in('ghosted.formats', self.wanted.form)}, {method_label(self.wanted.method)}"
        if "logits" not in self.check:
            return say("take.done", what=label, size=size(self.bytes))
        return say("take.checked", what=label, size=size(self.bytes), logits=three(self.check["logits"]),
                   perplexity=three(100 * self.check["perplexity"]))


def exportable(run: Run) -> list[str]:
    """Return the methods of a run that are defined for its blocks."""
    return [result.method for result in run.methods if not result.not_defined]


def wanted(run: Run, method: str, form: str) -> Wanted:
    """Return the export of one method of a run: its blocks are named, so that nothing is chosen again.

    Raises:
        InputError: the run has no such method.
    """
    if method not in exportable(run):
        raise InputError(say("take.no_method"))
    default = Experiment()
    texts = {name: getattr(default, name) for name in ("prompt", "chat", "temperature", "max_new_tokens")}
    named = {"criterion": "manual", "count": 0, "remove": str(run.removed), "methods": (method,)}
    return Wanted(dataclasses.replace(run.experiment, **named, **texts), form)


def outlook(asked: Wanted, workspace: Workspace | None = None, limit: int | None = None) -> str:
    """Return what an export will be: size, what it takes to load it, and what is done.

    Args:
        asked: the export.
        workspace: has the model in memory, perhaps.
        limit: bytes that may leave.

    Raises:
        GhostedError: it would be refused; the sentence says why.
    """
    formats.check_method(asked.form, asked.method)
    foreseen = formats.look_ahead(asked.experiment, asked.form, workspace)
    if foreseen is None:
        return say("take.not_here")
    check_size(foreseen, limit)
    module = formats.formats()[asked.form]
    check = "" if module.LIMIT is None else say("take.check")
    return say("take.outlook", form=label_in("ghosted.formats", asked.form), size=size(foreseen.bytes),
               says=foreseen.says, method=method_label(asked.method), check=check)


def check_size(foreseen: Foreseen | None, limit: int | None) -> None:
    """Raise :class:`InputError` where an export is larger than may leave."""
    if foreseen is not None and limit is not None and foreseen.bytes > limit:
        raise InputError(say("refused.large", size=size(foreseen.bytes), limit=size(limit)))


def take(
    asked: Wanted, workspace: Workspace, folder: Path, limit: int | None = None, cancel: CancelFlag | None = None
) -> Steps[Taken]:
    """Fit, write, check and pack what was asked for.

    Args:
        asked: the export.
        workspace: holds the model and the calibration between runs.
        folder: where the file is put, under a name of its own.
        limit: bytes that may leave.
        cancel: stops the work; nothing is left behind.

    Raises:
        GhostedError: any of them; the message is one sentence that says what to do.
    """
    with formats.disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        formats.check_method(asked.form, asked.method)
        foreseen = formats.look_ahead(asked.experiment, asked.form, workspace)
        check_size(foreseen, limit)
        if foreseen is not None:
            formats.check_space(folder, foreseen.bytes)
        work = stack.enter_context(staged(folder, PREFIX))
        model = yield from repaired(asked.experiment, workspace, cancel)
        check_size(formats.foresee(asked.form, model), limit)
        name = file_name(model.run, asked.method, asked.form)
        done = yield from formats.export(model, asked.form, work / name, cancel=cancel)
        path = yield from packed(Path(done.path), cancel)
        return Taken(asked, path, done.check, stack.pop_all())


def packed(source: Path, cancel: CancelFlag | None = None) -> Steps[Path]:
    """Put a folder of files into one zip beside it, as they are; each file goes when it is in, to spare the disk."""
    target, files = source.with_name(f"{source.name}.zip"), sorted(source.iterdir())
    stage = Stage("packing", sum(1 + path.stat().st_size // CHUNK for path in files), cancel)
    with formats.disk(target):
        with zipfile.ZipFile(target, "w") as archive:
            for path in files:
                with open(path, "rb") as stream, archive.open(f"{source.name}/{path.name}", "w",
                                                              force_zip64=True) as out:
                    while chunk := stream.read(CHUNK):
                        out.write(chunk)
                        yield stage.step()
                path.unlink()
        source.rmdir()
    return target


def size(number: float) -> str:
    """Return bytes as people read them: ``4.1 kB``, ``1.33 MB``, ``16.1 GB``."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if number >= unit:
            return f"{three(number / unit)} {name}"
    return f"{three(number / 1e3)} kB"


def taker(visitor: str) -> str:
    """Return the name under which a visitor's export waits: a run of the same page may stand beside it."""
    return f"{visitor} takes"
