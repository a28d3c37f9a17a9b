"""How does a result become JSON, and come back? By the types that its dataclass declares.

Numbers, texts, lists and nested dataclasses are written as they are; an array as its shape and its bytes in base64,
little-endian, floats in single precision. Reading checks every value against the declared type, so a foreign or damaged
file is refused with one sentence instead of failing later.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import types
import typing
from functools import cache
from typing import Any, TypeVar

import numpy as np

from ghosted.errors import InputError
from ghosted.removed import RemovedBlocks

Type = TypeVar("Type")
MOST_ENTRIES = 50_000_000
"""Numbers in one array; more is no result of ours."""

_KINDS = {"f": "<f4", "c": "<c8", "i": "<i4", "u": "<i4", "b": "|b1"}


def to_plain(value: Any) -> Any:
    """Return ``value`` as data that ``json.dumps`` takes; numbers that are not finite become ``None``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, RemovedBlocks)):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value, dtype=_KINDS[value.dtype.kind])
        return {"shape": list(array.shape), "type": array.dtype.str,
                "data": base64.b64encode(array.tobytes()).decode()}
    if isinstance(value, RemovedBlocks):
        return str(value)
    if isinstance(value, dict):
        return {str(key): to_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: type[Type], data: Any, where: str = "the file") -> Type:
    """Build ``kind`` from what :func:`to_plain` gave; fields that are missing keep their defaults.

    Args:
        kind: a dataclass, or any type that one of its fields declares.
        data: plain JSON data.
        where: names the place in the error message.

    Raises:
        InputError: the data does not have this type.
    """
    return _read(kind, data, where)


def _read(kind: Any, data: Any, where: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        return _read_union(inner, data, where)
    if kind is RemovedBlocks:
        return RemovedBlocks.parse(_as(str, data, where))
    if kind is np.ndarray:
        return _read_array(data, where)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, data, where)
    if origin is dict:
        return {key: _read(inner[1], each, f"{where}, {key[:40]}") for key, each in _as(dict, data, where).items()}
    if origin in (list, tuple):
        return _read_sequence(origin, inner, _as(list, data, where), where)
    if kind is float:
        return math.nan if data is None else float(_as((int, float), data, where))
    return _as(kind, data, where)


def _read_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    wrong: InputError | None = None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _read(kind, data, where)
        except InputError as error:
            wrong = error
    raise wrong or _refusal(where)


def _read_sequence(origin: type, inner: tuple[Any, ...], data: list[Any], where: str) -> Any:
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        if len(data) != len(inner):
            raise _refusal(where)
        return tuple(_read(kind, each, where) for kind, each in zip(inner, data, strict=True))
    return origin(_read(inner[0], each, where) for each in data)


def _read_dataclass(kind: Any, data: Any, where: str) -> Any:
    declared = _fields(kind)
    given = {name: each for name, each in _as(dict, data, where).items() if name in declared}
    try:
        return kind(**{name: _read(declared[name], each, f"{where}, {name}") for name, each in given.items()})
    except TypeError:
        raise _refusal(where) from None


def _read_array(data: Any, where: str) -> np.ndarray:
    _as(dict, data, where)
    shape, kind = data.get("shape"), data.get("type")
    sound = isinstance(shape, list) and all(type(n) is int and 0 <= n <= MOST_ENTRIES for n in shape)
    if not sound or kind not in _KINDS.values() or math.prod(shape) > MOST_ENTRIES:
        raise _refusal(where)
    try:
        raw = base64.b64decode(_as(str, data.get("data"), where), validate=True)
        return np.frombuffer(raw, dtype=kind).reshape(shape)
    except (binascii.Error, ValueError):
        raise _refusal(where) from None


@cache
def _fields(kind: Any) -> dict[str, Any]:
    declared = typing.get_type_hints(kind)
    return {field.name: declared[field.name] for field in dataclasses.fields(kind) if field.init}


def _as(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise _refusal(where)
    return data


def _refusal(where: str) -> InputError:
    return InputError(f"This was not written by the Ghosted Layers Explorer, or it is damaged (in {where}).")
