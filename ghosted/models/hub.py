"""Any ``owner/name`` on the Hugging Face Hub: facts first, then safetensors, config and tokenizer, and nothing else.

Each refusal is told apart by the Hub client's own error types. Without a network every call ends within ten
seconds, and what is in the Hub's local cache is still used.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ghosted.errors import ModelError, ResourceError
from ghosted.models import background, facts
from ghosted.models.facts import ModelFacts
from ghosted.progress import CancelFlag, Steps, drain

Result = TypeVar("Result")

SECONDS = 8.0
"""How long a first answer of the Hub may take."""

_CONFIG = ("config.json", "generation_config.json")
_TOKENIZER = re.compile(
    r"(tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|vocab\.json|vocab\.txt|merges\.txt"
    r"|tokenizer\.model|spiece\.model|sentencepiece\.bpe\.model|chat_template\.(jinja|json))"
)
_INDEX, _WHOLE = "model.safetensors.index.json", "model.safetensors"
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


@dataclass(frozen=True)
class Files:
    """What of a repository is fetched.

    Attributes:
        revision: commit.
        sizes: bytes by file name, 0 where not known.
    """

    revision: str
    sizes: dict[str, int]


def token() -> bool | None:
    """Return ``False`` (fetch anonymously) on a public page: visitors must not use its owner's token."""
    return False if os.environ.get("SPACE_ID") or os.environ.get("GHOSTED_DEMO") else None


def describe(repo: str, name: str, label: str, revision: str | None = None) -> ModelFacts:
    """Return the facts of a model on the Hub, from its config and its list of files.

    Raises:
        ModelError: not found, gated, no safetensors, or not a usable decoder.
        ResourceError: there is no network and the model is not in the Hub's local cache.
    """
    files, folder = _files_or_folder(repo, revision)
    if files is None:
        config = facts.config_of(str(folder), label)
        return facts.from_config(
            config, name=name, label=label, kind="hub", download_bytes=0, cached=True, revision=folder.name
        )
    if "config.json" not in files.sizes:
        raise ModelError(f"{repo} has no config.json, so it is not a model in the transformers layout.")
    # Asked for by branch, the Hub client notes which commit it is, and finds it again without a network.
    folder = Path(ask(repo, lambda: _download(repo, "config.json", revision or "main"))).parent
    if folder.name != files.revision:
        folder = Path(ask(repo, lambda: _download(repo, "config.json", files.revision))).parent
    config = facts.config_of(str(folder), label)
    if not any(name.endswith(".safetensors") for name in files.sizes):
        raise ModelError(f"{repo} has no .safetensors weights; other formats can run code and are not read.")
    left = [each for each in files.sizes if _in_cache(repo, each, files.revision) is None]
    return facts.from_config(
        config, name=name, label=label, kind="hub", cached=not left, revision=files.revision,
        download_bytes=sum(files.sizes[each] for each in left),
    )


def fetch(repo: str, known: ModelFacts, cancel: CancelFlag | None = None) -> Steps[Path]:
    """Fetch what :func:`describe` has found into the Hub's own cache and return the folder.

    Runs in a process of its own, so that a cancelled download ends; what is there already is kept and resumed.

    Raises:
        ResourceError: no disk or no network.
    """
    from huggingface_hub import constants

    if known.cached:
        return _in_cache(repo, "config.json", known.revision).parent
    Path(constants.HF_HUB_CACHE).mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(constants.HF_HUB_CACHE).free
    total = known.download_bytes or 0
    if total * 1.02 > free:
        raise ResourceError(f"{repo} takes {total / 1e9:.3g} GB of disk and {free / 1e9:.3g} GB are free.")
    files = yield from background.call("asking the Hub", lambda: _files(repo, known.revision), cancel=cancel)
    blobs = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "blobs"
    before = _bytes_in(blobs)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        code = yield from background.command(
            "fetching the model",
            [sys.executable, "-c", _FETCH, repo, files.revision, "no" if token() is False else "", *files.sizes],
            log=log, expected=5 + total / 20e6, limit=86_400.0, cancel=cancel,
            measure=lambda: (_bytes_in(blobs) - before, total),
        )
        if code != 0:
            raise ResourceError(f"Fetching {repo} stopped before its end; run again, what has come so far is kept.")
    return _in_cache(repo, "config.json", files.revision).parent


_FETCH = """
import sys
from huggingface_hub import hf_hub_download
repo, revision, anonymous, *names = sys.argv[1:]
for name in names:
    hf_hub_download(repo, name, revision=revision, token=False if anonymous else None)
"""


def fetch_tokenizer(repo: str, revision: str | None = None) -> Steps[Path]:
    """Fetch config and tokenizer only, and return their folder.

    Raises:
        ModelError: as :func:`describe`.
        ResourceError: there is no network and nothing in the Hub's local cache.
    """
    files, folder = _files_or_folder(repo, revision)
    if files is None:
        return folder
    wanted = [name for name in files.sizes if not name.endswith(".safetensors") and name != _INDEX]
    paths = yield from background.call(
        "fetching the tokenizer",
        lambda: [translated(repo, lambda name=name: _download(repo, name, files.revision)) for name in wanted],
    )
    if not paths:
        raise ModelError(f"{repo} has no config.json, so it is not a model in the transformers layout.")
    return Path(paths[0]).parent


def translated(repo: str, work: Callable[[], Result]) -> Result:
    """Run a call of the Hub client and turn its errors into ours, by type."""
    from huggingface_hub import errors
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # its retries would be told to people line by line
    try:
        return work()
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{repo} is gated: accept its licence on the Hub and log in with `hf auth login`, or choose an open model."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"{repo} has no such revision; give a branch, a tag or a commit of it.") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"There is no {repo} on the Hub that you can see; check the owner/name id.") from error
    except errors.EntryNotFoundError as error:
        raise _no_network(repo, error) if isinstance(error, errors.LocalEntryNotFoundError) else ModelError(
            f"{repo} lacks a file that a model in the transformers layout has."
        ) from error
    except errors.HFValidationError as error:
        raise ModelError(f"{repo[:80]!r} is not an owner/name id of the Hub.") from error
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise ModelError(f"The Hub does not let you read {repo}; log in or choose an open model.") from error
        if status == 429:
            raise ResourceError(
                f"The Hub has had too many requests from here and lets {repo} wait; try again in some minutes."
            ) from error
        if status is not None and status >= 500:
            raise ResourceError(f"The Hub fails to give {repo} (its error {status}); try again later.") from error
        raise _no_network(repo, error) from error


def ask(repo: str, work: Callable[[], Result]) -> Result:
    """Run a call of the Hub client that must be answered within ten seconds, its errors as ours."""
    try:
        return drain(background.call("asking the Hub", lambda: translated(repo, work), limit=SECONDS + 1))
    except TimeoutError as error:
        raise _no_network(repo, error) from error


def find_dataset(repo: str, cancel: CancelFlag | None = None) -> Steps[None]:
    """Ask, within ten seconds, whether the Hub has a dataset.

    Raises:
        ResourceError: the Hub cannot be reached.
        ModelError: it has none of that name that may be read.
    """
    from huggingface_hub import HfApi

    def look() -> Any:
        return translated(repo, lambda: HfApi(token=token()).dataset_info(repo, timeout=SECONDS))

    try:
        yield from background.call(f"asking the Hub for {repo}", look, limit=SECONDS + 1, cancel=cancel)
    except TimeoutError as error:
        raise _no_network(repo, error) from error


def _no_network(repo: str, error: BaseException) -> ResourceError:
    return ResourceError(
        f"The Hub cannot be reached to fetch {repo}; without a network choose smollm2-135m, a local folder or a .gguf."
    )


def _files(repo: str, revision: str | None) -> Files:
    from huggingface_hub import HfApi

    info: Any = ask(repo, lambda: HfApi(token=token()).model_info(
        repo, revision=revision, files_metadata=True, timeout=SECONDS
    ))
    sizes = {each.rfilename: each.size or 0 for each in info.siblings or ()}
    return Files(info.sha, {name: size for name, size in sorted(sizes.items()) if _wanted(name, sizes)})


def _wanted(name: str, present: dict[str, int]) -> bool:
    if name in _CONFIG or _TOKENIZER.fullmatch(name):
        return True
    if _INDEX in present:
        return name == _INDEX or is_shard(name)
    return name == _WHOLE


def is_shard(name: str) -> bool:
    """Whether a file is one of several that hold a model's weights."""
    return _SHARD.fullmatch(name) is not None


def _download(repo: str, name: str, revision: str) -> str:
    from huggingface_hub import hf_hub_download

    return hf_hub_download(repo, name, revision=revision, token=token(), etag_timeout=SECONDS)


def config_folder(repo: str, revision: str | None = None) -> Path | None:
    """Return the local folder that holds the model's config, ``None`` where it was not fetched yet."""
    found = _in_cache(repo, "config.json", revision)
    return None if found is None else found.parent


def _in_cache(repo: str, name: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, name, revision=revision)
    return Path(found) if isinstance(found, str) else None


def _files_or_folder(repo: str, revision: str | None) -> tuple[Any, Path | None]:
    """Return the Hub's list of files or, where it cannot be reached, the folder of the local copy."""
    try:
        return _files(repo, revision), None
    except ResourceError:
        folder = _local(repo, revision)
        if folder is None:
            raise
        return None, folder


def _local(repo: str, revision: str | None) -> Path | None:
    """Return the folder of a model that is wholly in the Hub's local cache."""
    import json

    config = _in_cache(repo, "config.json", revision)
    if config is None:
        return None
    if (config.parent / _WHOLE).exists():
        return config.parent
    try:
        shards = set(json.loads((config.parent / _INDEX).read_text("utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return config.parent if all((config.parent / shard).exists() for shard in shards) else None


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.glob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # renamed while we looked
    return total
