"""What can go wrong, as types: each message is one sentence that says what to do.

Everything the library raises on purpose derives from :class:`GhostedError`. The command line prints the message
and exits with code 2; the page shows it in place. Anything else that escapes is a fault of ours.
"""

from __future__ import annotations


class GhostedError(Exception):
    """Base of every error raised on purpose; ``str(error)`` is one sentence for a person."""


class InputError(GhostedError, ValueError):
    """A setting that makes no sense: a range, a count, a method, a criterion."""


class ModelError(GhostedError):
    """A model that cannot be found, read, or used here."""


class TextError(GhostedError):
    """A text that cannot be found, read, or is too short."""


class ResourceError(GhostedError):
    """Memory, disk or network is not enough for what was asked."""


class NotDefined(GhostedError):
    """A method that has no meaning for this gap or this family of models; the message says why."""


class Cancelled(GhostedError):
    """The user stopped the work; nothing is wrong."""


def expect(fits: bool, name: str, what: str, given: object) -> None:
    """Refuse an argument of a script that is no such thing.

    Args:
        fits: whether it is one.
        name: of the argument.
        what: it has to be, with an example.
        given: what it is.

    Raises:
        InputError: it does not fit.
    """
    if not fits:
        plain = isinstance(given, str | int | float | list | dict | tuple | None)
        shown = repr(given) if plain else type(given).__name__
        raise InputError(f"{name} must be {what}, not {shown[:40]}.")
