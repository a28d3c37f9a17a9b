"""A local ``.gguf``: what its header says, and its one-time conversion to safetensors in the cache.

llama.cpp's file format packs weights in a few bits; transformers reads many of its architectures.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ghosted import cache
from ghosted.errors import ModelError, ResourceError
from ghosted.models import background
from ghosted.models.facts import ModelFacts
from ghosted.progress import CancelFlag, Progress, Steps

KIND = "models"
"""The cache's kind of converted models; the key is the sha256 of the .gguf."""

_ENCODER_DECODERS = {"t5", "umt5", "t5encoder"}
_STATE_SPACE = {
    "mamba", "mamba2", "rwkv6", "rwkv7", "jamba", "falcon-h1", "lfm2", "nemotron_h", "granitehybrid", "plamo2",
    "qwen3next",
}


@dataclass(frozen=True)
class Header:
    """What a ``.gguf`` says about itself.

    Attributes:
        architecture: llama.cpp's name of it.
        blocks: number of blocks.
        width: C.
        vocabulary: number of token ids.
        parameters: numbers in all tensors, the table of rotation factors excepted.
        context: longest sequence in tokens.
        bos: whether a BOS token is put first, where it says so.
        dtype: what it is dequantised to: its own for plain files, else bfloat16.
    """

    architecture: str
    blocks: int
    width: int
    vocabulary: int
    parameters: int
    context: int | None
    bos: bool | None
    dtype: str


def read_header(path: Path) -> Header:
    """Read the header of a ``.gguf``; its weights are not touched.

    Raises:
        ModelError: it is not a whole GGUF file, or of an architecture that cannot be used here.
    """
    try:
        stat = path.stat()
        with open(path, "rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise ModelError(f"{path.name} cannot be read ({error.strerror}).") from error
    if magic != b"GGUF":
        raise ModelError(f"{path.name} is not a GGUF file.")
    return _read_header(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _read_header(path: Path, size: int, modified: int) -> Header:
    import gguf

    try:
        reader = gguf.GGUFReader(path)
        fields = reader.fields
        architecture = str(fields["general.architecture"].contents())
    except Exception as error:
        raise ModelError(f"{path.name} is not a whole GGUF file; fetch it again.") from error
    _refuse(architecture, path.name)

    def number(name: str) -> int:
        return int(fields[f"{architecture}.{name}"].contents())

    try:
        weights = [t for t in reader.tensors if not t.name.startswith("rope_freqs")]
        types = {t.tensor_type.name for t in weights}
        bos = fields.get("tokenizer.ggml.add_bos_token")
        return Header(
            architecture=architecture, blocks=number("block_count"), width=number("embedding_length"),
            vocabulary=int(next(t for t in weights if t.name == "token_embd.weight").shape[1]),
            parameters=sum(int(t.n_elements) for t in weights),
            context=number("context_length") if f"{architecture}.context_length" in fields else None,
            bos=None if bos is None else bool(bos.contents()),
            dtype="float32" if types == {"F32"} else "float16" if types <= {"F32", "F16"} else "bfloat16",
        )
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise ModelError(f"{path.name} does not describe a whole {architecture[:40]} model.") from error


def _refuse(architecture: str, name: str) -> None:
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    shown = architecture[:40]
    if architecture in _ENCODER_DECODERS:
        raise ModelError(f"{name} is an encoder-decoder model ({shown}); only decoders can be explored here.")
    if architecture in _STATE_SPACE:
        raise ModelError(f"{name} is a state-space or hybrid model ({shown}); choose one of attention blocks only.")
    known = {each.replace("-", "_") for each in GGUF_SUPPORTED_ARCHITECTURES} | {"qwen2moe", "qwen3moe"}
    if architecture.replace("-", "_") not in known:
        raise ModelError(f"{name} is of an architecture that transformers cannot read from a GGUF ({shown}).")


def describe(path: Path, name: str, label: str) -> ModelFacts:
    """Return the facts of a ``.gguf`` from its header."""
    header = read_header(path)
    return ModelFacts(
        name=name, label=label, kind="gguf", architecture=header.architecture, blocks=header.blocks,
        width=header.width, vocabulary=header.vocabulary, parameters=header.parameters, context=header.context,
        bos=header.bos, download_bytes=0, cached=at_hand(path) is not None,
    )


def at_hand(path: Path) -> Path | None:
    """Return the cache's folder of the converted file, ``None`` where it is not there."""
    return cache.get(KIND, sha256(path))


def sha256(path: Path) -> str:
    """Return the file's sha256, hashed once per process and version of the file."""
    stat = path.stat()
    return _sha256(path.resolve(), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=16)
def _sha256(path: Path, size: int, modified: int) -> str:
    return cache.file_sha256(path)


def converted(path: Path, cancel: CancelFlag | None = None) -> Steps[Path]:
    """Return the cache's folder of the converted file, converting it now if it is not there.

    Two processes that ask at once convert once; a kill leaves nothing behind.

    Raises:
        ModelError: transformers cannot convert it.
        ResourceError: not enough disk.
    """
    key = sha256(path)
    lock = cache.file_lock(KIND, key)
    yield from acquire(lock, "waiting for another process that converts this model", cancel)
    try:
        if found := cache.get(KIND, key):
            return found
        header = read_header(path)
        with cache.staging(KIND) as work:
            yield from _convert(path, work / "model", header, cancel)
            return cache.put(KIND, key, lambda folder: _move(work / "model", folder))
    finally:
        lock.release()


def acquire(lock, stage: str, cancel: CancelFlag | None = None) -> Steps[None]:
    """Acquire a file lock, with an event twice a second while another process holds it."""
    from filelock import Timeout

    while True:
        try:
            lock.acquire(timeout=0.5)
            return
        except Timeout:
            if cancel is not None:
                cancel.check()
            yield Progress(stage, 0, 1)


def _convert(path: Path, target: Path, header: Header, cancel: CancelFlag | None) -> Steps[None]:
    log = target.parent / "log"
    needed = header.parameters * (4 if header.dtype == "float32" else 2)
    free = shutil.disk_usage(target.parent).free
    if needed * 1.05 > free:
        raise ResourceError(
            f"Converting {path.name} needs {needed / 1e9:.2g} GB of disk and {free / 1e9:.2g} GB are free in the cache."
        )
    package = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH", "")]))
    code = yield from background.command(
        "converting the model (once)",
        [sys.executable, "-m", "ghosted.models.convert", str(path.resolve()), str(target), header.dtype],
        log=log, expected=15 + header.parameters / 15e6, cancel=cancel,
        environment={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
    )
    if code != 0 or not (target / "config.json").is_file():
        lines = log.read_text("utf-8", "replace").strip().splitlines() or [f"exit code {code}"]
        raise ModelError(f"{path.name} cannot be converted by transformers ({lines[-1][:200]}).")


def _move(source: Path, target: Path) -> None:
    for path in source.iterdir():
        os.replace(path, target / path.name)
