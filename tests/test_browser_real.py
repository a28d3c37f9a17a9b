"""The real thing once: ``python app.py`` in its own process, the default run on the real model, in Chromium.

The default lets the criterion ``best`` choose, which takes minutes; a choice that is kept on disk comes at once.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser import chromium, opened
from pages import see, write_range

from ghosted.removed import RemovedBlocks

pytestmark = [pytest.mark.browser, pytest.mark.model]

ROOT = Path(__file__).parents[1]


@pytest.fixture
def app(tmp_path):
    with serving(tmp_path, {}) as address:
        yield address


@contextmanager
def serving(tmp_path, environment):
    """Run ``python app.py`` in its own process and give its address; its log is ``tmp_path/log``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, str(ROOT / "app.py"), "--port", str(port)], stdout=log, stderr=log,
                                   env=os.environ | environment)  # fmt: skip
    try:
        yield wait_for(f"http://127.0.0.1:{port}/", process)
    finally:
        process.terminate()
        process.wait(20)
        assert "Traceback" not in (tmp_path / "log").read_text()


def wait_for(url, process):
    for _ in range(240):
        assert process.poll() is None, "app.py ended by itself"
        try:
            urllib.request.urlopen(f"{url}config", timeout=2)
            return url
        except OSError:
            time.sleep(0.25)
    raise AssertionError("app.py did not come up within a minute")


def test_a_whole_run_by_hand_on_the_real_model(app):
    few = f"{app}?tokens=8192&windows=4&max-new-tokens=16&methods=none,linearpatch,replaceme,ghosted"
    with chromium() as browser, opened(browser, few, width=1440) as page:
        write_range(page, "13-17")
        said, perplexity = whole_run(page)
        assert "removes blocks 13–17 (5 of 30)" in said and len(perplexity) == 5


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_whole_default_run_on_the_real_model(app):
    with chromium() as browser, opened(browser, app, width=1440) as page:
        said, perplexity = whole_run(page)
        assert len(perplexity) == 6 and perplexity["best"] <= perplexity["ghosted"] * 1.02
        removed = re.search(r"removes blocks ([\d–, ]+) \(5 of 30\), chosen by best \(ours\)", said)
        assert removed and RemovedBlocks.parse(removed[1]).count == 5, said


@pytest.mark.soak
def test_the_page_runs_through_a_stand_in_for_the_package_that_lends_gpus(tmp_path):
    lending = {"SPACES_ZERO_GPU": "true", "PYTHONPATH": str(ROOT / "tests" / "stand_in")}
    asked = "?tokens=4096&windows=4&max-new-tokens=8&methods=none,ghosted"
    found = []
    for environment in (lending, {}):
        with serving(tmp_path, environment) as address, chromium() as browser, opened(browser, address + asked) as page:
            write_range(page, "13-17")
            assert "blocks 13–17" in run(page, 300_000)
            # The page opened with another run, and what is drawn comes after the end is said.
            page.wait_for_function("() => document.querySelectorAll('#gl-numbers tbody tr').length === 3")
            found.append((page.inner_text("#gl-numbers"), page.locator(".gl-text").all_inner_texts()))
            assert page.faults == []
        lent = re.findall(r"lent for (\d+) s", (tmp_path / "log").read_text())
        assert bool(lent) == bool(environment) and all(30 <= int(seconds) <= 120 for seconds in lent)
    assert found[0] == found[1]


def run(page, milliseconds):
    """Press Run, and return what the status line says at its end: not of the run that the page opened with."""
    page.evaluate("document.querySelector('.gl-done')?.classList.remove('gl-done')")
    page.click("#gl-run")
    page.wait_for_selector(".gl-done, .gl-failed", timeout=milliseconds)
    said = page.inner_text("#gl-status")
    assert "self-check passed" in said
    return said


def whole_run(page):
    """Press Run, look at all that it leaves, and return what the status line says and the perplexities."""
    said = run(page, 1_100_000)
    for name in ("boundary", "operator-W", "spectrum-plane", "downstream-error", "similarity", "influence"):
        see(page, name)
    texts = page.locator(".gl-text").all_inner_texts()
    assert all(texts) and len(set(texts)) > 1
    rows = dict(page.evaluate(
        "[...document.querySelectorAll('#gl-numbers tbody tr')].map(r => [r.className, r.cells[1].innerText])"))
    perplexity = {name.removeprefix("gl-m-"): float(value.replace(",", "")) for name, value in rows.items()}
    assert page.locator(".gl-column").count() == len(perplexity)
    assert perplexity["original"] < perplexity["ghosted"] < perplexity["none"]
    assert page.faults == []
    return said, perplexity
