"""What travels compressed? The page itself, whose settings and first record are text; the rest is small, or packed.

Gradio packs its own scripts and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.middleware.gzip import GZipMiddleware

PATHS = ("", "/config")
"""Where the page is asked for, and its settings on their own."""
LEVEL = 5


def asks_for_the_page(scope: Mapping[str, Any]) -> bool:
    """Return whether an ASGI request asks for the page; a stream of events must not wait to be packed."""
    path = scope.get("path", "").removeprefix(scope.get("root_path", "")).rstrip("/")
    return scope["type"] == "http" and path in PATHS


class Compressed:
    """ASGI middleware that compresses the page."""

    def __init__(self, app: Any) -> None:
        self._plain, self._packed = app, GZipMiddleware(app, 1000, LEVEL)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        await (self._packed if asks_for_the_page(scope) else self._plain)(scope, receive, send)
