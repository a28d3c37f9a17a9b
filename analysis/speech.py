"""In which language is the visitor spoken to who is answered now?

A variable of the context and no argument: sentences are made at the ends of some eighty functions, pictures among them,
that know nothing of visitors. The page sets it for every event it answers (:class:`analysis.page.Page`); what is
outside of an event, such as an exported file, is English.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

from analysis.words import catalogue, said

_LANGUAGE: ContextVar[str] = ContextVar("language", default="en")


def language() -> str:
    """Return the language that is spoken here."""
    return _LANGUAGE.get()


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Speak a language for as long as the context is open."""
    before = _LANGUAGE.set(language)
    try:
        yield
    finally:
        _LANGUAGE.reset(before)


def say(key: str, /, **values: Any) -> str:
    """Return a text of the catalogue in the language that is spoken here, its places filled."""
    return said(key, _LANGUAGE.get(), **values)


def say_of(kind: str, name: str, otherwise: str) -> str:
    """Return what one of many is called, such as a method; ``otherwise`` where the catalogue does not name it."""
    key = f"{kind}.{name}"
    return say(key) if key in catalogue() else otherwise


def as_here(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """Return a call that speaks on any thread as is spoken here."""
    return partial(copy_context().run, function, *args)
