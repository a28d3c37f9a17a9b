"""What is kept on disk, where, and how does it stay whole?

Every entry is a folder ``root/kind/key`` of plain files with an ``entry.json`` that lists them and their checksums.
It is written under a temporary name and renamed when it is complete, so a reader sees all of it or nothing; a
process that is killed in between leaves a temporary folder that the next writer sweeps. The least recently used
entries go when the whole passes its limit. Work that costs much is guarded by :meth:`Cache.lock`, so that two
processes do it once.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ghosted.errors import ResourceError

DEFAULT_LIMIT = 20 * 2**30
"""Bytes kept at most, unless ``$GHOSTED_CACHE_LIMIT`` says otherwise."""

_ENTRY = "entry.json"
_TEMPORARY = ".new-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DAY = 86_400


def root() -> Path:
    """Return the cache's folder: ``$GHOSTED_CACHE``, else the platform's user cache; made if it is missing.

    Raises:
        ResourceError: the folder cannot be made.
    """
    import platformdirs

    path = Path(os.environ.get("GHOSTED_CACHE") or platformdirs.user_cache_dir("ghosted")).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(
            f"The cache folder {path} cannot be made ({error.strerror}); point GHOSTED_CACHE at a writable folder."
        ) from error
    return path


def key_of(data: Any) -> str:
    """Return the sha256 (hex) of plain JSON data in its canonical form, for use as a key."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 (hex) of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Cache:
    """A folder of complete, checksummed entries with a bound on its bytes.

    Args:
        root: the folder; by default :func:`root`, looked up at each use.
        limit_bytes: bytes kept at most; by default ``$GHOSTED_CACHE_LIMIT`` or 20 GiB.
    """

    def __init__(self, root: Path | None = None, limit_bytes: int | None = None) -> None:
        self._root, self._limit = root, limit_bytes
        self._verified: dict[Path, tuple] = {}
        self._said_full = False

    @property
    def root(self) -> Path:
        """The folder that holds everything."""
        if self._root is None:
            return root()
        self._root.mkdir(parents=True, exist_ok=True)
        return self._root

    @property
    def limit_bytes(self) -> int:
        """Bytes kept at most; raises ``ResourceError`` where ``$GHOSTED_CACHE_LIMIT`` is no number."""
        if self._limit is not None:
            return self._limit
        return bytes_from("GHOSTED_CACHE_LIMIT", DEFAULT_LIMIT)

    def check_limit(self) -> None:
        """Raise ``ResourceError`` where the limit makes no sense, before any work is done for nothing."""
        _ = self.limit_bytes

    def get(self, kind: str, key: str) -> Path | None:
        """Return the folder of a complete entry and mark it as used, or ``None``.

        An entry whose files do not match their checksums is removed: it counts as missing.
        """
        folder = self._folder(kind, key)
        if not folder.is_dir():
            return None
        if not self._is_whole(folder):
            self.remove(kind, key)
            return None
        with suppress(OSError):
            os.utime(folder / _ENTRY)
        return folder

    def read(self, kind: str, key: str, reader: Callable[[Path], Any]) -> Any:
        """Return what ``reader`` makes of a complete entry's folder, or ``None`` if there is none.

        An entry that cannot be read, or that went while it was read, is removed: it counts as missing.
        """
        folder = self.get(kind, key)
        if folder is None:
            return None
        try:
            return reader(folder)
        except Exception:  # whatever a library raises at damaged data; nothing else is done in here
            self.remove(kind, key)
            return None

    def put(self, kind: str, key: str, write: Callable[[Path], None]) -> Path:
        """Make an entry: ``write`` fills an empty folder, which then appears under its name all at once.

        Where another process was faster, its entry is kept and this one is dropped. If ``write`` raises, nothing
        is left behind.

        Raises:
            ResourceError: the disk is full or not writable.
        """
        folder = self._folder(kind, key)
        with self.staging(kind) as temporary:
            try:
                write(temporary)
                _seal(temporary)
                self._publish(temporary, folder)
            except Exception as error:
                reason = why_not_written(error)
                if reason is None:
                    raise
                raise ResourceError(
                    f"The cache in {self.root} cannot be written ({reason}); free some space or point "
                    "GHOSTED_CACHE elsewhere."
                ) from error
        self._evict(keep=folder)
        return folder

    @contextmanager
    def staging(self, kind: str) -> Iterator[Path]:
        """Give an empty temporary folder on the cache's disk that is gone afterwards, even after a kill.

        For work of many steps whose files :meth:`put` then moves into an entry. Its lock file says that the owner
        is alive; the system lets go of it when the owner dies, and the next writer sweeps the folder.
        """
        parent = self.root / kind
        parent.mkdir(parents=True, exist_ok=True)
        with staged(parent, _TEMPORARY) as temporary:
            yield temporary

    @contextmanager
    def lock(self, kind: str, key: str, tick: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold the one lock of an entry, across processes; ``tick`` is called about twice a second while waiting.

        Whatever ``tick`` raises (a cancelled run) ends the waiting.
        """
        lock = self.file_lock(kind, key)
        while True:
            try:
                lock.acquire(timeout=0.5)
                break
            except Timeout:
                if tick is not None:
                    tick()
        try:
            yield
        finally:
            lock.release()

    def file_lock(self, kind: str, key: str) -> FileLock:
        """Return the entry's lock, not yet acquired, for callers that wait in their own way."""
        folder = self._folder(kind, key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.parent / f".{key}.lock")

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry if it is there; readers never see half of it."""
        folder = self._folder(kind, key)
        gone = folder.parent / f"{_TEMPORARY}gone-{secrets.token_hex(8)}"
        with suppress(OSError):
            os.rename(folder, gone)
            shutil.rmtree(gone, ignore_errors=True)
        self._verified.pop(folder, None)

    def size(self) -> int:
        """Return the bytes of all complete entries."""
        return sum(size for _, size, _ in self._entries())

    def _folder(self, kind: str, key: str) -> Path:
        for name in (kind, key):
            if not _NAME.fullmatch(name):
                raise ValueError(f"not a cache name: {name!r}")
        return self.root / kind / key

    def _is_whole(self, folder: Path) -> bool:
        try:
            files = json.loads((folder / _ENTRY).read_text("utf-8"))["files"]
            signature = tuple(
                (name, (stat := (folder / name).stat()).st_size, stat.st_mtime_ns) for name in sorted(files)
            )
            if self._verified.get(folder) == signature:
                return True  # hashed before by this process, and unchanged since
            if any(size != files[name]["bytes"] for name, size, _ in signature):
                return False
            if any(file_sha256(folder / name) != about["sha256"] for name, about in files.items()):
                return False
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self._verified[folder] = signature
        return True

    def _publish(self, temporary: Path, folder: Path) -> None:
        for _ in range(3):
            with suppress(OSError):
                os.rename(temporary, folder)
                _sync_folder(folder.parent)
                return
            if self._is_whole(folder):
                return  # another process made the same entry first
            self.remove(folder.parent.name, folder.name)
        os.rename(temporary, folder)

    def _entries(self) -> list[tuple[float, int, Path]]:
        """Return (last use, bytes, folder) of every complete entry."""
        found = []
        for about in self.root.glob(f"*/*/{_ENTRY}"):
            if about.parent.name.startswith("."):
                continue
            with suppress(OSError, ValueError, KeyError, TypeError):
                found.append((about.stat().st_mtime, int(json.loads(about.read_text("utf-8"))["bytes"]), about.parent))
        return found

    def _say_full(self) -> None:
        if not self._said_full:
            self._said_full = True
            logging.getLogger(__name__).warning(
                "The cache in %s has reached its bound of %.3g GB; what was not used for longest makes room.",
                self.root, self.limit_bytes / 1e9,
            )

    def _evict(self, keep: Path) -> None:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, folder in entries:
            if total <= self.limit_bytes:
                return
            if folder != keep:
                self._say_full()
                self.remove(folder.parent.name, folder.name)
                total -= size


def why_not_written(error: BaseException) -> str | None:
    """Return the system's reason why a file could not be written, ``None`` where the error is another one.

    safetensors tells its reason in words only.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.strerror
    code = re.search(r"\(os error (\d+)\)", str(error))
    return os.strerror(int(code[1])) if code else None


def bytes_from(variable: str, default: int) -> int:
    """Return a bound in bytes that an environment variable may set.

    Raises:
        ResourceError: it is set to something else than a number.
    """
    said = os.environ.get(variable) or str(default)
    if not said.isdecimal():
        raise ResourceError(f"{variable} must be a whole number of bytes, not {said[:40]!r}.")
    return int(said)


@contextmanager
def staged(parent: Path, prefix: str) -> Iterator[Path]:
    """Give an empty folder in ``parent`` that is gone afterwards; what killed writers have left there goes first.

    Args:
        parent: an existing folder.
        prefix: of the temporary name; it must be nobody else's.
    """
    _sweep(parent, prefix)
    temporary = parent / f"{prefix}{secrets.token_hex(8)}"
    with FileLock(f"{temporary}.lock", thread_local=False):  # who ends it need not be the thread that began it
        try:
            temporary.mkdir()
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            Path(f"{temporary}.lock").unlink(missing_ok=True)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove what killed writers have left: temporary folders whose lock nobody holds, or older than a day."""
    for left in parent.glob(f"{glob.escape(prefix)}*"):
        if left.suffix == ".lock" or not left.is_dir():
            continue
        lock = FileLock(f"{left}.lock")
        try:
            old = time.time() - left.stat().st_mtime > _DAY
            with suppress(Timeout):
                lock.acquire(timeout=0)
            if lock.is_locked or old:
                shutil.rmtree(left, ignore_errors=True)
                Path(f"{left}.lock").unlink(missing_ok=True)
        except OSError:
            continue
        finally:
            lock.release()


def _seal(folder: Path) -> None:
    """Write ``entry.json`` with the checksum of every file, and force all of it to the disk."""
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with open(path, "rb+") as stream:
            os.fsync(stream.fileno())
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    about = {"files": files, "bytes": sum(f["bytes"] for f in files.values()), "created": time.time()}
    with open(folder / _ENTRY, "w", encoding="utf-8") as stream:
        json.dump(about, stream)
        stream.flush()
        os.fsync(stream.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # folders cannot be opened there; renames are journalled
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_default = Cache()
get, put, lock, file_lock, read = _default.get, _default.put, _default.lock, _default.file_lock, _default.read
staging = _default.staging
