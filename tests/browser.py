"""Chromium for the browser tests: where it is, how it is started, and a page that remembers what went wrong."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from urllib.parse import urlparse

import pytest

from analysis.bench.page import FLAGS

HOSTS = ("127.0.0.1", "localhost")


@contextmanager
def chromium():
    """Yield a browser; skips where there is none, unless GHOSTED_REQUIRE_BROWSER is 1."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("GHOSTED_REQUIRE_BROWSER") == "1":
            pytest.fail("chromium is missing and GHOSTED_REQUIRE_BROWSER is 1")
        pytest.skip("chromium is missing")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def opened(browser, url, width=1280, height=900, ready="#gl-map .gl-map-block"):
    """Yield a page whose ``faults`` lists foreign requests, console errors, uncaught exceptions and dialogs."""
    # One context for all: each page of its own would load and compile gradio's scripts anew.
    context = browser.contexts[0] if browser.contexts else browser.new_context()
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.faults = []
    page.on("request", lambda request: _foreign(page, request.url))
    page.on("console", lambda message: message.type == "error" and page.faults.append(message.text))
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("dialog", lambda dialog: (page.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
    goto(page, url, ready)
    yield page
    page.close()


def goto(page, url, ready="#gl-map .gl-map-block"):
    """Open an address, and wait until the page takes input; one that does not come up says what it waits for."""
    waits = set()
    page.on("request", lambda request: waits.add(request.url))
    for ended in ("requestfinished", "requestfailed"):
        page.on(ended, lambda request: waits.discard(request.url))
    page.goto(url)
    try:
        page.wait_for_selector(ready)
        page.wait_for_selector("#gl-side[inert]", state="detached")
    except Exception as error:
        error.add_note(f"faults: {getattr(page, 'faults', [])}; still loading: {sorted(waits)}; "
                       f"shown: {page.inner_text('body')[:300]!r}")  # fmt: skip
        raise


def _foreign(page, url):
    parts = urlparse(url)
    if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in HOSTS:
        page.faults.append(f"foreign request {url}")
