"""Does an export read back as the model that it was made from? Asked of a new process, which knows only the files.

The original's repaired view computes logits here; the new process reads the export, computes them on the same tokens,
and looks for missing weights and at generation with and without the cache. ``python -m ghosted.formats._round_trip
FOLDER`` is that process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghosted.errors import GhostedError, ModelError, ResourceError
from ghosted.progress import CancelFlag, Steps

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from ghosted.formats._expected import Shape
    from ghosted.repaired import Repaired

TOKENS, WINDOWS, NEW_TOKENS = 64, 4, 16


def memory(model: Shape, form: str) -> int:
    """Return the bytes that the new process takes: its model, states and logits, and the libraries."""
    from ghosted.formats import _folder
    from ghosted.models.facts import BASE, OVERHEAD

    if form == "adapter":
        return bytes_beside(model.original) + int(OVERHEAD * 4 * model.dense)
    return int(OVERHEAD * (_folder.weights_bytes(model) + 4 * model.dense)) + BASE


def bytes_beside(original: PreTrainedModel) -> int:
    """Return the bytes that one process with the whole model takes; it may be a skeleton."""
    from ghosted.models.facts import BASE, OVERHEAD

    return int(OVERHEAD * sum(p.numel() * p.element_size() for p in original.parameters())) + BASE


def check_memory(model: Shape, form: str, unread: int = 0) -> None:
    """Refuse a check that does not fit beside the model in this process.

    Args:
        model: what is exported.
        form: the format.
        unread: bytes that this process will take before, where its model is not in memory yet.

    Raises:
        ResourceError: that and :func:`memory` are more than is free.
    """
    from ghosted.models import device_map

    needed, free = memory(model, form) + unread, device_map.capacity(model.device)
    if free is not None and needed > free:
        raise ResourceError(
            "An export is read again in a new process before it is offered, which needs "
            f"about {needed / 1e9:.3g} GB of memory{' for both' if unread else ''}, and {free / 1e9:.3g} GB are free; "
            "close other programs or choose a smaller model."
        )


def check(
    model: Repaired, form: str, folder: Path, work: Path, limit: float, cancel: CancelFlag | None = None
) -> Steps[dict[str, Any]]:
    """Read ``folder`` in a new process and compare.

    Args:
        model: what was exported.
        form: the format.
        folder: the export.
        work: a folder for what the two processes tell each other.
        limit: largest relative difference in perplexity; 0 asks for the same logits to the last bit.
        cancel: ends the process.

    Returns:
        ``{"logits": largest difference, "perplexity": relative difference, "keys": "complete", "cache": "agrees"}``.

    Raises:
        ModelError: they differ, or the export cannot be read.
    """
    from ghosted.models import background

    _ask(model, form, folder, work)
    environment = background.environment(Path(__file__).parents[2])
    environment |= {"HF_MODULES_CACHE": str(work / "modules"), "HF_HUB_OFFLINE": "1"}
    code = yield from background.command(
        "reading it again in a new process", [sys.executable, "-m", __spec__.name, str(work)], log=work / "log",
        expected=12.0, environment=environment, cancel=cancel,
    )
    try:
        found = json.loads((work / "answer.json").read_text("utf-8"))
    except (OSError, ValueError):
        found = {"error": f"the process that read it ended with code {code}"}
    _judge(found, limit)
    return {name: found[name] for name in ("logits", "perplexity")} | {"keys": "complete", "cache": "agrees"}


def _judge(found: dict[str, Any], limit: float) -> None:
    """Raise :class:`ModelError` unless the answer is that of the same model."""
    wrong = found.get("error")
    if not wrong and found["keys"]:
        wrong = f"{found['keys'][0]} is missing or was not expected"
    if not wrong and limit == 0 and found["logits"] != 0:
        wrong = f"its logits differ by {found['logits']:.3g}"
    if not wrong and not abs(found["perplexity"]) <= limit:  # false for NaN, too
        wrong = f"its perplexity differs by {100 * found['perplexity']:.3g} %"
    if not wrong and found["cache"] > found["rounding"]:
        wrong = "it generates differently with and without its cache"
    if wrong:
        raise ModelError(f"Nothing was exported: read again in a new process, {wrong}.")


def _ask(model: Repaired, form: str, folder: Path, work: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from ghosted.models.loaded import quiet

    windows = next((w for w in model.slices.evaluation.values() if len(w)), model.slices.calibration).first(WINDOWS)
    view = model.view()
    ids = torch.cat(list(windows.rows))
    save_file(
        {"logits": logits(view, ids[None, :TOKENS]).float().contiguous(), "text": ids,
         "lengths": torch.tensor([len(row) for row in windows.rows]),
         "loss": torch.tensor([mean_loss(view, windows.rows)], dtype=torch.float64)},
        work / "ask.safetensors",
    )
    base = None
    if form == "adapter":
        facts = model.loaded.facts
        base = facts.name
        if facts.kind == "memory":
            quiet()
            base = str(work / "base")
            model.loaded.model.save_pretrained(base)
            if model.loaded.tokenizer is not None:
                model.loaded.tokenizer.save_pretrained(base)
    (work / "ask.json").write_text(json.dumps({
        "form": form, "folder": str(folder), "base": base, "revision": model.loaded.facts.revision,
        "dtype": model.loaded.dtype, "device": model.loaded.device, "threads": torch.get_num_threads(),
    }), "utf-8")  # fmt: skip


def logits(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return ``(b, t, V)`` logits of ``ids`` ``(b, t)`` on the CPU, without a cache."""
    import torch

    with torch.inference_mode():
        return model(input_ids=ids.to(model.device), use_cache=False).logits.cpu()


def mean_loss(model: PreTrainedModel, rows: Any) -> float:
    """Return the mean next-token loss in nats over windows ``(t,)``."""
    from ghosted.scores.perplexity import Loss

    loss = Loss()
    for row in rows:
        loss.add(logits(model, row[None]), row[None])
    return loss.total / max(loss.tokens, 1)


def cache_gap(model: PreTrainedModel, ids: Tensor) -> tuple[float, float]:
    """Return by how much a token written with the cache falls short of the likeliest without it, and rounding."""
    import torch

    ids = ids[:, : TOKENS // 2].to(model.device)
    with torch.inference_mode():
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, use_cache=True,
            pad_token_id=0,
        )
    scores = logits(model, written)[0, ids.shape[1] - 1 : -1].float()
    chosen = scores.gather(-1, written[0, ids.shape[1] :, None].cpu())
    rounding = 4 * torch.finfo(model.dtype).eps * float(scores.abs().max())
    return float((scores.max(-1, keepdim=True).values - chosen).max()), rounding


def _answer(work: Path) -> dict[str, Any]:
    """Read the export and compare it; this is the new process."""
    import torch
    from safetensors.torch import load_file

    ask = json.loads((work / "ask.json").read_text("utf-8"))
    expected = load_file(work / "ask.safetensors")
    torch.set_num_threads(ask["threads"])
    model, keys = _read(ask)
    ids = expected["text"][None, :TOKENS]
    found = logits(model, ids).float()
    loss = mean_loss(model, expected["text"].split(expected["lengths"].tolist()))
    gap, rounding = cache_gap(model, ids)
    return {
        "logits": float((found - expected["logits"]).abs().max()), "keys": keys, "cache": gap, "rounding": rounding,
        "perplexity": float(torch.tensor(loss - float(expected["loss"]), dtype=torch.float64).expm1()),
    }


def _read(ask: dict[str, Any]) -> tuple[PreTrainedModel, list[str]]:
    import torch

    from ghosted.models.loaded import quiet

    quiet()
    if ask["form"] == "adapter":
        from ghosted.loading import load

        return load(ask["folder"], base=ask["base"], revision=ask["revision"], dtype=ask["dtype"],
                    device=ask["device"]), []  # fmt: skip
    from transformers import AutoModelForCausalLM

    # Our own file, just written: nobody else had a chance to put another in its place.
    model, info = AutoModelForCausalLM.from_pretrained(
        ask["folder"], dtype=getattr(torch, ask["dtype"]), trust_remote_code=ask["form"] == "checkpoint",
        local_files_only=True, output_loading_info=True,
    )
    wrong = ("missing_keys", "unexpected_keys", "mismatched_keys")
    return model.to(ask["device"]).eval(), sorted(str(key) for name in wrong for key in info.get(name) or ())


def _main(work: Path) -> None:
    try:
        answer = _answer(work)
    except GhostedError as error:
        answer = {"error": f"it was refused ({error})"}
    except Exception as error:
        answer = {"error": f"it cannot be read ({type(error).__name__}: {str(error).splitlines()[0][:200]})"}
    (work / "answer.json").write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
