"""The page travels compressed; streams, answers and files are passed on as they are."""

import asyncio
import gzip

import pytest

from analysis.compressed import Compressed

BODY = b"<p>settings</p>" * 1000


async def plain(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": BODY})


def answered(path, root="", accepts=b"gzip, br"):
    """What a browser gets: its headers and its body."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "root_path": root, "headers": [(b"accept-encoding", accepts)]}
    asyncio.run(Compressed(plain)(scope, None, send))
    return dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("root", ["", "/space"])
@pytest.mark.parametrize("path", ["/", "/config"])
def test_the_page_and_its_settings_are_compressed(path, root):
    headers, body = answered(root + path, root)
    assert headers[b"content-encoding"] == b"gzip" and len(body) < len(BODY) / 10 and gzip.decompress(body) == BODY


@pytest.mark.parametrize("path", ["/gradio_api/queue/data", "/gradio_api/file=x.zip", "/assets/index.js", "/configs"])
def test_everything_else_is_passed_on_as_it_is(path):
    headers, body = answered(path)
    assert b"content-encoding" not in headers and body == BODY


def test_a_browser_that_unpacks_nothing_gets_it_plain():
    headers, body = answered("/", accepts=b"identity")
    assert b"content-encoding" not in headers and body == BODY
