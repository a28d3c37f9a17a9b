"""In which language does a page open? In its visitor's, from the first picture on.

Gradio makes one config, the page as it opens, for everybody. Here it is made once per language: whoever asks for the
page is answered by one whose words are theirs, before anything has been asked of the handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from analysis.compressed import asks_for_the_page
from analysis.speech import speaking
from analysis.words import language_of


class Speaking:
    """Answers what asks for the config in the language of the link, else of the browser.

    Args:
        app: the ASGI application that answers.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        with speaking(asked_in(scope)):
            await self._app(scope, receive, send)


def asked_in(scope: Mapping[str, Any]) -> str:
    """Return the language in which a request asks for the page; English for all other requests."""
    if not asks_for_the_page(scope):
        return "en"
    wanted = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("lang", [""])[-1]
    headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    return language_of(wanted, headers.get(b"accept-language", ""))


def respoken(config: Mapping[str, Any], words: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a config that shares everything with another but what is said.

    Args:
        config: gradio's.
        words: by a component's number, its properties that are words.
    """
    said = [each | {"props": each["props"] | words[each["id"]]} if each["id"] in words else each
            for each in config["components"]]
    return dict(config) | {"components": said}
