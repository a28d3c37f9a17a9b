"""How is a method, criterion, command or bench figure found? By its file.

Each of these is one module in its package; adding one is adding one file. A module states ``NAME`` (what users
type; by default the file's name with dashes) and ``ORDER`` (where it stands in lists, default 100).
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from types import ModuleType

from ghosted.errors import InputError


@cache
def members(package: str) -> dict[str, ModuleType]:
    """Import every module of ``package`` and return them by name, in their order."""
    root = importlib.import_module(package)
    found = [
        importlib.import_module(f"{package}.{info.name}")
        for info in pkgutil.iter_modules(root.__path__)
        if not info.name.startswith("_")
    ]
    found.sort(key=lambda module: (getattr(module, "ORDER", 100), module.__name__))
    return {getattr(m, "NAME", m.__name__.rpartition(".")[2].replace("_", "-")): m for m in found}


def gather(packages: Iterable[str]) -> dict[str, ModuleType]:
    """Return the members of several packages as one registry; a package that is not there is left out.

    So the library finds, at run time, what draws or drives the page, and works without it.
    """
    found: dict[str, ModuleType] = {}
    for package in packages:
        try:
            found |= members(package)
        except ModuleNotFoundError as missing:
            if missing.name not in {package, package.partition(".")[0]}:
                raise
    return found


def pick(package: str, name: str, kind: str) -> ModuleType:
    """Return one member by name.

    Raises:
        InputError: there is none of that name; the sentence lists those there are.
    """
    return one_of(members(package), name, kind)


def one_of(known: dict[str, ModuleType], name: str, kind: str) -> ModuleType:
    """Return one member of a registry by name.

    Raises:
        InputError: there is none of that name; the sentence lists those there are.
    """
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {listing(known)}."
        raise InputError(f"There is no {kind} {name[:60]!r}; {hint}")
    return known[name]


def listing(names: Iterable[str]) -> str:
    """Join names for a sentence: ``a, b, c``."""
    return ", ".join(names)
