"""How does an export get onto the Hugging Face Hub? As it was checked, by its owner's own token, and never by surprise.

Only a folder whose files are still those of its check goes up; a repository that is there already is replaced only
after its owner was asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghosted import formats
from ghosted.errors import Cancelled, InputError, ModelError, ResourceError
from ghosted.ghost import FILE, Ghost, check_folder

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def push(repo: str, folder: str | Path, *, agrees: Callable[[str], bool], private: bool = False) -> dict[str, Any]:
    """Upload a checked export.

    Args:
        repo: ``owner/name``.
        folder: an export.
        agrees: is asked a question where something is there already; ``False`` ends it.
        private: whether a repository that has to be made can be seen by its owner alone.

    Returns:
        ``{"repo", "files", "commit"}``.

    Raises:
        InputError: no such id, or the folder is no checked export.
        Cancelled: the owner did not agree.
        ModelError, ResourceError: the Hub refuses, or cannot be reached.
    """
    folder = Path(folder).expanduser()
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise InputError(f"{repo[:80]!r} is not an owner/name id of the Hub.")
    check_folder(folder)
    ghost, check = Ghost.read(folder / FILE), formats.unseal(folder)
    if formats.formats()[check["format"]].LIMIT is None:
        raise InputError(f"A {ghost.kind} recipe is no model; push an adapter, a checkpoint or merged weights.")
    from huggingface_hub import HfApi

    api = HfApi()
    present = _files(api, repo)
    if present and not agrees(f"{repo} holds {len(present)} files already ({', '.join(sorted(present)[:3])} …). "
                              "Replace what has the same name?"):  # fmt: skip
        raise Cancelled("Nothing was uploaded.")

    def upload() -> Any:
        if present is None:
            api.create_repo(repo, private=private, exist_ok=True)
        return api.upload_folder(
            repo_id=repo, folder_path=folder,
            commit_message=f"{ghost.base.label} without blocks {ghost.removed}, {ghost.method} ({ghost.kind})",
        )

    done = _asked(repo, upload)
    return {"repo": repo, "files": sorted(check["sha256"]), "commit": getattr(done, "oid", None)}


def _files(api: HfApi, repo: str) -> set[str] | None:
    """Return the files of a repository, git's own left out; ``None`` where there is none yet."""
    from huggingface_hub import errors

    def look() -> set[str] | None:
        try:
            return {each.rfilename for each in api.model_info(repo).siblings or ()} - {".gitattributes"}
        except errors.RepositoryNotFoundError:
            return None

    return _asked(repo, look)


def _asked(repo: str, work: Callable[[], Any]) -> Any:
    """Call the Hub; its refusals as sentences about writing."""
    from huggingface_hub import errors

    try:
        return work()
    except errors.LocalTokenNotFoundError as error:
        raise ModelError("You are not logged in to the Hub: run `hf auth login` with a token that can "
                         "write.") from error  # fmt: skip
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise ModelError(f"The Hub does not let you write {repo}: run `hf auth login` with a token of its owner "
                             "that can write.") from error  # fmt: skip
        raise ResourceError(f"The Hub refused the upload to {repo} (status {status}); try again later.") from error
    except OSError as error:
        raise ResourceError(f"The Hub cannot be reached to write {repo}; try again with a network.") from error
    except Exception as error:  # the client's own network errors share no type with ours
        if not type(error).__module__.startswith(("httpx", "httpcore", "requests")):
            raise
        raise ResourceError(f"The Hub cannot be reached to write {repo}; try again with a network.") from error
