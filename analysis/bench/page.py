"""How soon is there something to see, and how soon after a key does the page answer?

``python app.py`` runs as a process of its own, a headless Chromium opens it, cold each time. Medians over five rounds:
the first contentful paint, the first meaningful picture (the layer map with the similarities of the precomputed run),
the bytes that came over the wire until then, and, after one run, the time from the release of an arrow key on the map
until the residual errors of the closed-form methods stand there for the new range. ``ratio`` is the first paint against
its target of one second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ghosted.errors import ResourceError
from ghosted.experiment import Experiment
from ghosted.progress import Stage

ROUNDS = 5
TARGET_S = 1.0
BLOCKS = "12-16"
PATIENCE_S = 900
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)
PICTURE = "#gl-map svg image"
WATCH = f"""
window.firstPicture = null;
(function look() {{
  if (document.querySelector({PICTURE!r})) window.firstPicture = performance.now();
  else requestAnimationFrame(look);
}})();
"""
"""Notes the frame in which the picture is there."""
AFTER_KEY = """() => new Promise((done) => {
  const map = document.querySelector("#gl-map svg"), table = document.querySelector("#gl-left");
  const before = table.querySelector("[data-removed]").dataset.removed;
  map.focus();
  const key = (kind) => new KeyboardEvent(kind, { key: "ArrowRight", bubbles: true });
  map.dispatchEvent(key("keydown")); map.dispatchEvent(key("keyup"));
  const start = performance.now();
  (function look() {
    const now = table.querySelector("[data-removed]")?.dataset.removed;
    if (now !== undefined && now !== before) requestAnimationFrame(() => done((performance.now() - start) / 1000));
    else if (performance.now() - start > 60000) done(null);
    else requestAnimationFrame(look);
  })();
})"""


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Open the page ``ROUNDS`` times cold, then run once and change the range ``ROUNDS`` times.

    Args:
        experiment: its tokens are what the run calibrates on.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread`` (of the first paint against its target), and the medians.

    Raises:
        ResourceError: there is no browser, or the page does not come up.
    """
    stage = Stage("driving the page", 2 * ROUNDS + 1)
    with app() as address, chromium() as browser:
        opened = []
        for _ in range(ROUNDS):
            opened.append(_open(browser, address))
            on_event(stage.step())
        wire = _listen(browser, address)
        changes = _changes(browser, f"{address}?remove={BLOCKS}&tokens={experiment.tokens}", stage, on_event)
    paints = [each["paint_s"] / TARGET_S for each in opened]
    return {
        "ratio": statistics.median(paints),
        "spread": [min(paints), max(paints)],
        "first_contentful_paint_s": statistics.median(each["paint_s"] for each in opened),
        "first_picture_s": statistics.median(each["picture_s"] for each in opened),
        "range_change_s": statistics.median(changes),
        "range_change_spread_s": [min(changes), max(changes)],
        "bytes_before_first_picture": wire["bytes"],
        "foreign_requests": wire["foreign"],
    }


@contextlib.contextmanager
def _cold(browser: Any) -> Iterator[Any]:
    """Give an empty page of a browser that has seen nothing yet; it notes its first picture."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    yield page
    context.close()


def _open(browser: Any, address: str) -> dict[str, float]:
    with _cold(browser) as page:
        page.goto(address)
        page.wait_for_function("window.firstPicture !== null", polling=50)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        picture = page.evaluate("window.firstPicture")
    return {"paint_s": paint / 1000, "picture_s": picture / 1000}


def _listen(browser: Any, address: str) -> dict[str, int]:
    """Open the page once more, for what goes over the wire: listening slows the page, so nothing is timed here."""
    received, foreign = [], []
    with _cold(browser) as page:
        wire = page.context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.loadingFinished", lambda e: received.append(e["encodedDataLength"]))
        page.on("request", lambda request: foreign.append(request.url) if _is_foreign(request.url, address) else None)
        page.goto(address)
        page.wait_for_function("window.firstPicture !== null")
        before = int(sum(received))
        page.wait_for_selector("#gl-plot-boundary .main-svg")
    return {"bytes": before, "foreign": len(foreign)}


def _changes(browser: Any, address: str, stage: Stage, on_event: Callable[[Any], None]) -> list[float]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address)
    page.wait_for_selector(f"#gl-map svg[aria-label*='{BLOCKS.replace('-', '–')}']")
    page.click("#gl-run")
    page.wait_for_selector(".gl-done, .gl-failed", timeout=PATIENCE_S * 1000)
    if page.locator(".gl-failed").count():
        raise ResourceError(f"The run of the bench failed: {page.inner_text('#gl-status')}")
    on_event(stage.step())
    page.wait_for_timeout(1000)
    changes = []
    for _ in range(ROUNDS):
        changes.append(page.evaluate(AFTER_KEY))
        if changes[-1] is None:
            raise ResourceError("The page did not answer a change of range within a minute; see the log of app.py.")
        page.wait_for_timeout(4000)  # what is painted later must not count for the next one
        on_event(stage.step())
    page.close()
    return changes


def _is_foreign(url: str, address: str) -> bool:
    parts = urlparse(url)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != urlparse(address).hostname


@contextlib.contextmanager
def app() -> Iterator[str]:
    """Yield the address of ``python app.py``, a process of its own, once it answers."""
    with served() as (address, _):
        yield address


@contextlib.contextmanager
def served(*flags: str, log: Path | None = None) -> Iterator[tuple[str, subprocess.Popen]]:
    """Yield the address and the process of ``python app.py`` once it answers.

    Args:
        *flags: of ``app.py``, beside ``--port``.
        log: where what it prints goes; nowhere by default.

    Raises:
        ResourceError: it does not come up.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(Path(__file__).parents[2] / "app.py"), "--port", str(port), *flags]
    with open(log or os.devnull, "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    address, deadline = f"http://127.0.0.1:{port}/", time.monotonic() + 120
    try:
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ResourceError("The page did not come up; start python app.py by itself to see why.")
            try:
                urllib.request.urlopen(f"{address}config", timeout=2).close()
                break
            except urllib.error.HTTPError:  # up, and asking for a password
                break
            except OSError:
                pass
            time.sleep(0.25)
        yield address, process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Yield a headless Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        raise ResourceError("The bench of the page needs Chromium, and pip install -r tests/requirements.txt.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
