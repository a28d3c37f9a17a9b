"""Models by name: what is known beforehand, and how one gets into memory.

``describe`` reads a config and refuses honestly before any weights are fetched; ``load`` fetches, converts where
needed, and reads. Both take a catalogue name, an ``owner/name`` id of the Hub, a local folder or a local ``.gguf``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ghosted.models.entries import ENTRIES, Entry
from ghosted.models.facts import ModelFacts
from ghosted.models.loaded import LoadedModel, bos_id
from ghosted.models.naming import Source, resolve
from ghosted.progress import CancelFlag, Progress, Steps, drain

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "LoadedModel", "ModelFacts", "Source", "bos_id", "catalogue", "describe", "load", "load_tokenizer", "resolve",
    "skeleton",
]


def catalogue() -> list[Entry]:
    """Return the models that are offered by name."""
    return list(ENTRIES)


def describe(
    name: str, revision: str | None = None, *, dtype: str = "auto", refuse_too_large: bool = True
) -> ModelFacts:
    """Return what is known about a model before its weights are fetched.

    Args:
        name: catalogue name, ``owner/name``, folder or ``.gguf``.
        revision: branch, tag or commit on the Hub.
        dtype: the dtype it is to run in, for the memory it needs.
        refuse_too_large: whether a model that does not fit is refused.

    Raises:
        ModelError: not found, gated, unreadable, or not a decoder made of attention blocks.
        ResourceError: it does not fit into memory, or there is no network.
    """
    facts = _facts(resolve(name, revision), name.strip(), revision)
    if refuse_too_large:
        facts.check_memory(dtype)
    return facts


def load(
    name: str, *, revision: str | None = None, dtype: str = "auto", device: str | None = None,
    cancel: CancelFlag | None = None,
) -> Steps[LoadedModel]:
    """Fetch, convert (once) and read a model.

    Args:
        name: catalogue name, ``owner/name``, folder or ``.gguf``.
        revision: branch, tag or commit on the Hub.
        dtype: ``float32``, ``bfloat16``, or ``auto``: what this machine is fastest in.
        device: by default the machine's best.
        cancel: stops the work at its next event.

    Yields:
        Progress of each stage.

    Raises:
        ModelError: as :func:`describe`, or the files do not make a whole model.
        ResourceError: no memory, no disk, no network.
    """
    from ghosted import machine
    from ghosted.models import background, loaded

    yield Progress("reading about the model", 0, 1)
    source = resolve(name, revision)
    facts = yield from background.call(
        "reading about the model", lambda: _facts(source, name.strip(), revision), expected=4.0, cancel=cancel
    )
    if dtype == "auto":
        dtype = machine.fastest_dtype()
    facts.check_memory(dtype, device)
    folder = yield from _folder(source, facts, cancel)
    return (yield from background.call(
        "loading the model", lambda: loaded.read_folder(folder, facts, dtype, device),
        expected=3 + facts.weights_bytes(dtype) / 3e8, cancel=cancel,
    ))


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Return the tokenizer of a model; fetches (and converts) the model if nothing of it is here yet.

    Raises:
        ModelError: there is none, or as :func:`describe`.
    """
    from ghosted.models import hub, loaded

    source = resolve(name, revision)
    if source.kind == "hub":
        folder = drain(hub.fetch_tokenizer(source.where, revision))
    else:
        folder = drain(_folder(source, None, None))
    return loaded.read_tokenizer(folder, source.label)


def skeleton(name: str, revision: str | None = None, dtype: str = "auto") -> Any:
    """Return a model without its numbers (on torch's ``meta`` device), ``None`` where its config is not here yet.

    Nothing is fetched or converted.

    Raises:
        ModelError: it is no usable decoder.
    """
    from pathlib import Path

    from ghosted import machine
    from ghosted.models import facts, gguf, hub, offline

    source = resolve(name, revision)
    if source.kind == "hub":
        folder = hub.config_folder(source.where, revision)
    elif source.kind == "folder":
        folder = Path(source.where)
    else:
        folder = offline.at_hand() if source.kind == "offline" else gguf.at_hand(Path(source.where))
    if folder is None:
        return None
    config = facts.config_of(str(folder), source.label)
    return facts.skeleton(config, source.label, machine.fastest_dtype() if dtype == "auto" else dtype)


def _facts(source: Source, name: str, revision: str | None) -> ModelFacts:
    from pathlib import Path

    from ghosted.models import facts, gguf, hub, offline

    if source.kind == "offline":
        return offline.describe()
    if source.kind == "gguf":
        return gguf.describe(Path(source.where), name, source.label)
    if source.kind == "hub":
        return hub.describe(source.where, name, source.label, revision)
    config = facts.config_of(source.where, source.label)
    return facts.from_config(config, name=name, label=source.label, kind="folder", download_bytes=0, cached=True)


def _folder(source: Source, facts: ModelFacts | None, cancel: CancelFlag | None) -> Steps[Path]:
    """Return the local folder in the transformers layout that holds the model, making it first if need be."""
    from pathlib import Path

    from ghosted.models import gguf, hub, offline

    if source.kind == "offline":
        return (yield from offline.folder(cancel))
    if source.kind == "gguf":
        return (yield from gguf.converted(Path(source.where), cancel))
    if source.kind == "hub":
        return (yield from hub.fetch(source.where, facts, cancel))
    return Path(source.where)
