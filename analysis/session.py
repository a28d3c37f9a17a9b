"""What does the page remember of a visitor? The pictures of the last run, their uploads: nothing that is large."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from analysis.figures.operator import Portrait


@dataclass
class Session:
    """One open page.

    Attributes:
        portraits: the operators of the last run by method, reduced to what is drawn.
        uploads: paths of the files this visitor has uploaded.
        failed: what could not be drawn of the last run, one sentence.
    """

    portraits: dict[str, Portrait] = field(default_factory=dict)
    uploads: set[str] = field(default_factory=set)
    failed: str = ""


class Sessions:
    """The open pages by their session hash; the oldest make room where a page never said goodbye."""

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._open: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def of(self, visitor: str) -> Session:
        """Return a visitor's session, a new one where there is none."""
        session = self._open.setdefault(visitor, Session())
        self._open.move_to_end(visitor)
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return session

    def forget(self, visitor: str) -> None:
        """Drop a visitor who has left."""
        self._open.pop(visitor, None)
