"""How does an export become a model again? Recognised by its ``ghost.json``; no code of its folder is ever run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghosted.adapter import WEIGHTS, Adapter
from ghosted.errors import InputError, ModelError, expect
from ghosted.formats import check_unchanged
from ghosted.ghost import FILE, Ghost, check_folder
from ghosted.progress import drain

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NEEDED = ("config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json")


def load(
    path: str | Path, *, base: str | None = None, revision: str | None = None, dtype: str | None = None,
    device: str | None = None,
) -> PreTrainedModel:
    """Return a model that was exported by this program, ready to run.

    Args:
        path: the export's folder, an adapter's ``ghost.safetensors``, or ``owner/name`` on the Hub.
        base: the base model of an adapter; by default the one that the adapter names.
        revision: of the base model, where ``base`` is given; of the export itself, where ``path`` is on the Hub.
        dtype: ``float32``, ``bfloat16`` or ``auto``; by default what the numbers were measured in.
        device: by default the machine's best.

    Returns:
        A transformers model in ``eval`` mode; ``save_pretrained`` writes a checkpoint.

    Raises:
        InputError: the export is damaged, foreign or contradicts itself.
        ModelError: its base model is another one, or cannot be found.
        ResourceError: no memory, no disk, no network.

    Example:
        >>> reloaded = ghosted.load("my-adapter")
    """
    if not isinstance(path, str | Path) or not str(path).strip():
        raise InputError("Name the folder that `export` wrote, or owner/name on the Hub.")
    where = Path(path).expanduser()
    on_hub = not where.exists()
    if on_hub:
        where = _fetched(str(path), revision)
    if where.is_file() or (where / WEIGHTS).is_file():
        return _load_adapter(Adapter.read(where), base, None if on_hub else revision, dtype, device)
    check_folder(where)
    ghost = Ghost.read(where / FILE)
    if base is not None:
        raise InputError(f"A {ghost.kind[:20]} has all its weights and needs no base model.")
    check_unchanged(where, _is_read)
    return _load_folder(where, ghost, dtype, device)


def apply(model: Any, adapter: Adapter | str | Path) -> PreTrainedModel:
    """Return ``model`` repaired by an adapter; ``model`` is not changed, and its weights are shared.

    Args:
        model: a transformers model, or a :class:`~ghosted.models.LoadedModel`.
        adapter: read already, or its path.

    Raises:
        InputError: the adapter is damaged or foreign.
        ModelError: ``model`` is not its base.

    Example:
        >>> again = ghosted.apply(model, "my-adapter")
    """
    expect(hasattr(model, "config") or hasattr(model, "model"), "model", "what ghosted.load_model returned", model)
    fits = isinstance(adapter, Adapter | str | Path) and str(adapter)
    expect(fits, "adapter", "the folder that `export` wrote", adapter)
    found = adapter if isinstance(adapter, Adapter) else Adapter.read(adapter)
    return found.apply(model if hasattr(model, "config") else model.model)


def _load_adapter(
    adapter: Adapter, base: str | None, revision: str | None, dtype: str | None, device: str | None
) -> PreTrainedModel:
    from ghosted import models

    about = adapter.ghost.base
    if base is None:
        base, revision = about.name, about.revision
        public = ("hub", "offline")
        if about.kind not in public or models.resolve(base, revision).kind not in public:
            raise ModelError(f"The base of this adapter is a model that only its author has ({about.name[:60]}): give "
                             "your copy of it as base.")  # fmt: skip
    loaded = drain(models.load(base, revision=revision, dtype=dtype or about.dtype, device=device))
    return adapter.apply(loaded.model).eval()


def _load_folder(folder: Path, ghost: Ghost, dtype: str | None, device: str | None) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM

    from ghosted import machine
    from ghosted.models.loaded import quiet

    dtype = dtype or ghost.base.dtype
    dtype = machine.fastest_dtype() if dtype == "auto" else dtype
    if dtype not in ("float32", "bfloat16"):
        raise InputError(f"There is no dtype {dtype[:20]!r}; choose one of auto, float32, bfloat16.")
    if not any(folder.glob("*.safetensors")):
        raise InputError(f"This {ghost.kind[:20]} holds no weights that can be loaded.")
    quiet()
    try:
        kind = json.loads((folder / "config.json").read_text("utf-8")).get("model_type")
        reader: Any = AutoModelForCausalLM
        if kind == "ghosted":
            from ghosted.modelling_ghosted import GhostedForCausalLM as reader
        model, info = reader.from_pretrained(
            folder, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False, local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:
        raise ModelError(f"This {ghost.kind[:20]} cannot be read: its weights do not fit its config.") from error
    if wrong := [*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]]:
        raise ModelError(f"This {ghost.kind[:20]} is damaged: {str(sorted(map(str, wrong))[0])[:80]} is missing or was "
                         "not expected; export it again.")  # fmt: skip
    return model.to(device or machine.device()).eval()


def _fetched(repo: str, revision: str | None) -> Path:
    """Fetch an export from the Hub, without any code that may lie beside it, and return its folder."""
    from huggingface_hub import HfApi, hf_hub_download

    from ghosted.models import hub, naming

    local = repo.startswith((".", "/", "~")) or repo.count("/") != 1
    if local or naming.resolve(repo, revision).kind != "hub":
        raise InputError(f"{repo[:80]} is no folder; name the folder that `export` wrote, or owner/name on the "
                         "Hub.")  # fmt: skip
    info = hub.ask(repo, lambda: HfApi(token=hub.token()).model_info(repo, revision=revision, timeout=hub.SECONDS))
    names = {each.rfilename for each in info.siblings or ()}
    if FILE not in names:
        raise InputError(f"{repo} was not exported by the Ghosted Layers Explorer: it has no {FILE}.")
    wanted = list(filter(_is_read, sorted(names)))
    paths = [hub.translated(repo, lambda name=name: hf_hub_download(
        repo, name, revision=info.sha, token=hub.token(), etag_timeout=hub.SECONDS)) for name in wanted]  # fmt: skip
    return Path(paths[0]).parent


def _is_read(name: str) -> bool:
    """Whether a file of an export is ever read here, by its name."""
    from ghosted.models import hub

    return name in (FILE, WEIGHTS, *_NEEDED) or hub.is_shard(name)
