"""Which numbers does a picture show? A plotly figure as rows, read from the figure itself.

The rows are the plotted points, not the numbers that the figure was made from: whatever was rounded, averaged or left
out for drawing is so in the rows, too. Any figure can be read; nothing here knows what it is about.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

Figure = dict[str, Any]
"""A figure as plain JSON: ``data`` (the traces), ``layout`` and perhaps ``config``."""
Row = dict[str, Any]

PREFIX = "gl-plot-"
"""What the page writes before a picture's name in its elem_id."""
COORDINATES = ("x", "y", "z", "r", "theta", "text", "hovertext")
"""What a trace may hold one of per point, beside ``customdata``."""
COLUMNS = ("trace", "x", "y", "z", "customdata")
"""The columns that every table of a picture has."""


def pictures_of(shown: Mapping[Any, Any]) -> dict[str, Figure]:
    """Return the figures among a page's updates by the name of their picture, in their order.

    Args:
        shown: updates by component, as the panels' ``show`` returns them.
    """
    found: dict[str, Figure] = {}
    for component, value in shown.items():
        name = str(getattr(component, "elem_id", None) or "")
        if name.startswith(PREFIX) and getattr(value, "type", "") == "plotly":
            found[name.removeprefix(PREFIX)] = json.loads(value.plot)
    return found


def rows(figure: Figure) -> list[Row]:
    """Return one row per plotted point: its trace, its coordinates, and what a hover shows besides."""
    return [row for number, trace in enumerate(figure.get("data", ())) for row in _trace_rows(trace, number)]


def columns(table: Iterable[Row]) -> list[str]:
    """Return the names of a table's columns: always those of ``COLUMNS``, then the others as they appear."""
    names = dict.fromkeys(COLUMNS)
    for row in table:
        names.update(dict.fromkeys(row))
    return list(names)


def decoded(value: Any) -> Any:
    """Return an array of a figure's JSON as lists; plotly writes numpy arrays as base64 of their bytes."""
    if isinstance(value, dict) and "bdata" in value:
        flat = np.frombuffer(base64.b64decode(value["bdata"]), dtype=np.dtype(value["dtype"]).newbyteorder("<"))
        shape = str(value.get("shape") or len(flat))
        return flat.reshape([int(n) for n in shape.split(",")]).tolist()
    return value


def _trace_rows(trace: Figure, number: int) -> list[Row]:
    name = str(trace.get("name") or f"trace {number + 1}")
    given = {key: decoded(trace[key]) for key in (*COORDINATES, "customdata") if trace.get(key) is not None}
    given = {key: value for key, value in given.items() if isinstance(value, (list, tuple))}
    z = given.pop("z", None)
    if z and isinstance(z[0], (list, tuple)):
        return _grid(name, z, given, trace)
    if z is not None:
        given["z"] = z
    length = max((len(value) for value in given.values()), default=0)
    for axis in ("x", "y"):
        if axis not in given and ({"x", "y"} & given.keys()):
            given[axis] = _steps(trace, axis, length)
    return [
        {"trace": name} | {key: value[i] for key, value in given.items() if key != "customdata" and i < len(value)}
        | _custom(given.get("customdata"), i) for i in range(length)
    ]


def _grid(name: str, z: list[list[Any]], given: Row, trace: Figure) -> list[Row]:
    """A heat map's points, row by row of ``z``."""
    across = given.get("x") or _steps(trace, "x", max(map(len, z)))
    down = given.get("y") or _steps(trace, "y", len(z))
    custom, text = given.get("customdata"), given.get("text") or given.get("hovertext")
    return [
        {"trace": name, "x": across[i], "y": down[j], "z": value}
        | _custom(custom[j] if custom else None, i) | ({"text": text[j][i]} if text else {})
        for j, line in enumerate(z) for i, value in enumerate(line)
    ]


def _steps(trace: Figure, axis: str, length: int) -> list[Any]:
    start, step = trace.get(f"{axis}0", 0), trace.get(f"d{axis}", 1)
    return [start + i * step for i in range(length)]


def _custom(values: Any, i: int) -> Row:
    if values is None or i >= len(values):
        return {}
    own = values[i] if isinstance(values[i], (list, tuple)) else [values[i]]
    return {"customdata" + (f"_{k + 1}" if k else ""): value for k, value in enumerate(own)}
