"""What travels compressed? The page itself, whose settings and first record are text; the rest is small, or packed.

Gradio packs its own scripts and nothing else.
"""

from __future__ import annotations

from typing import Any

from starlette.middleware.gzip import GZipMiddleware

PAGES = ("/", "/config")
"""Paths whose answers are compressed: a stream of events must not wait, and an export is compressed already."""
LEVEL = 5


class Compressed:
    """ASGI middleware that compresses the answers under :data:`PAGES`."""

    def __init__(self, app: Any) -> None:
        self._plain, self._packed = app, GZipMiddleware(app, 1000, LEVEL)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        packs = scope["type"] == "http" and scope["path"] in PAGES
        await (self._packed if packs else self._plain)(scope, receive, send)
