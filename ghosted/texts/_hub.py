"""Texts from datasets on the Hub, by full ``owner/name`` id, parquet or JSON only (loading scripts are never run).

What was read is kept in the cache, so that the next run needs no network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ghosted import cache
from ghosted.errors import GhostedError, ResourceError, TextError
from ghosted.models import background, hub
from ghosted.progress import CancelFlag, Steps
from ghosted.texts import Text

_CHARACTERS_PER_TOKEN = 6
_LEAST = 2_000_000


@dataclass(frozen=True)
class Dataset:
    """Where a text lies on the Hub.

    Attributes:
        name: the source's name.
        repo: ``owner/name``.
        field: the column that holds the text.
        splits: the dataset's split by ours (``train``, ``test``).
        config: its configuration, where it has several.
        revision: its branch.
        data_files: files by split, where they are named one by one.
        streaming: whether only the beginning is fetched.
        joint: what stands between two rows.
    """

    name: str
    repo: str
    field: str
    splits: dict[str, str]
    config: str | None = None
    revision: str | None = None
    data_files: dict[str, str] | None = field(default=None)
    streaming: bool = False
    joint: str = "\n\n"


def read_dataset(
    dataset: Dataset, *, tokens_needed: int, split: str = "train", cancel: CancelFlag | None = None, **_: object
) -> Steps[Text]:
    """Read a split of a dataset as one text.

    Raises:
        TextError: the Hub cannot be reached and the text is not in the cache, or its rows are not as expected.
    """
    theirs = dataset.splits[split]
    # A streamed text is cut at one of few lengths: its sha256 must not change with every token count.
    characters = None
    if dataset.streaming:
        characters = max(_LEAST, 1 << (tokens_needed * _CHARACTERS_PER_TOKEN - 1).bit_length())
    key = cache.key_of({"what": "hub text", "version": 1, "repo": dataset.repo, "config": dataset.config,
                        "revision": dataset.revision, "split": theirs, "characters": characters})
    content = cache.read("texts", key, _read)
    if content is None:
        yield from _reachable(dataset, cancel)
        content = yield from background.call(
            f"fetching {dataset.name}", lambda: _fetch(dataset, theirs, characters), expected=20.0, cancel=cancel
        )
        content = _read(cache.put("texts", key, lambda folder: _write(folder, content)))
    return Text.of(content, f"{dataset.name} ({theirs})", dataset.name)


def _read(folder: Path) -> str:
    return (folder / "text.txt").read_bytes().decode("utf-8")


def _write(folder: Path, content: str) -> None:
    (folder / "text.txt").write_bytes(content.encode("utf-8"))


def _reachable(dataset: Dataset, cancel: CancelFlag | None) -> Steps[None]:
    try:
        yield from hub.find_dataset(dataset.repo, cancel)
    except ResourceError as error:
        raise _unreachable(dataset) from error
    except GhostedError as error:
        raise TextError(f"The Hub has no {dataset.repo} any more; choose another text or give a file.") from error


def _unreachable(dataset: Dataset) -> TextError:
    return TextError(
        f"The Hub cannot be reached to fetch {dataset.name}; without a network choose python-docs, generated or a file."
    )


def _fetch(dataset: Dataset, split: str, characters: int | None) -> str:
    import datasets

    try:
        rows = datasets.load_dataset(
            dataset.repo, dataset.config, split=split, revision=dataset.revision, data_files=dataset.data_files,
            streaming=dataset.streaming, token=hub.token(),
        )
        texts, total = [], 0
        for row in rows:
            texts.append(row[dataset.field])
            total += len(texts[-1]) + len(dataset.joint)
            if characters is not None and total >= characters:
                break
    except KeyError as error:
        raise TextError(f"The rows of {dataset.repo} have no field {dataset.field!r}.") from error
    except Exception as error:
        raise _unreachable(dataset) from error
    return dataset.joint.join(texts)
