"""How does an array travel in JSON? As base64 of little-endian floats with its shape, and read back with suspicion."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from ghosted.errors import InputError

KINDS = {"float16": "<f2", "float32": "<f4"}
MOST = 1 << 20
"""Numbers in one array that is read: a file from outside must not fill the memory."""


def pack(values: Any, kind: str = "float32") -> dict[str, Any]:
    """Return an array as plain JSON data; ``kind`` is ``float16`` or ``float32``."""
    array = np.ascontiguousarray(values, dtype=KINDS[kind])
    return {"shape": list(array.shape), "kind": kind, "data": base64.b64encode(array.tobytes()).decode()}


def unpack(data: Any) -> np.ndarray:
    """Return the float32 array that :func:`pack` packed.

    Raises:
        InputError: it is no packed array, its numbers do not fill its shape, or there are more than ``MOST``.
    """
    try:
        shape, kind = [int(side) for side in data["shape"]], KINDS[data["kind"]]
        raw = base64.b64decode(data["data"], validate=True)
        fits = all(side >= 0 for side in shape) and np.prod(shape, dtype=float) <= MOST
        if fits and len(raw) == int(np.prod(shape)) * np.dtype(kind).itemsize:
            return np.frombuffer(raw, dtype=kind).astype(np.float32).reshape(shape)
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error):
        pass
    raise InputError("An array in this file cannot be read; export it again.")
