"""How soon is the page up, and how soon is there a first live result, with and without what earlier runs left?

``python app.py`` as a process of its own, driven by a headless Chromium. *cold*: a cache that holds the model's weights
(they are read, not fetched) and nothing else; *warm*: what the cold start left. Reported, no target: ``ratio`` is warm
against cold, for the first run. ``import_s`` is ``import ghosted`` in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.bench.page import PATIENCE_S, app, chromium
from ghosted import cache
from ghosted.errors import ResourceError
from ghosted.experiment import Experiment
from ghosted.progress import Stage

SETTINGS = "remove=12-16&methods=none,ghosted"


def measure(experiment: Experiment, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Start the page twice, cold and warm.

    Args:
        experiment: names the model and gives the tokens of the first run.
        on_event: receives progress.

    Returns:
        ``ratio``, ``spread`` (one value), ``import_s``, and by ``cold_`` and ``warm_``: ``page_s`` (the page answers),
        ``shown_s`` (its opening picture is there) and ``result_s`` (its first run is over), since the process started.

    Raises:
        ResourceError: the page does not come up or its run fails.
    """
    stage, found = Stage("starting the page", 3), {"import_s": _import_seconds()}
    on_event(stage.step())
    with _only_weights():
        for name in ("cold", "warm"):
            found |= {f"{name}_{key}": value for key, value in _start(experiment).items()}
            on_event(stage.step())
    ratio = found["warm_result_s"] / found["cold_result_s"]
    return {"ratio": ratio, "spread": [ratio, ratio], **found, "tokens": experiment.tokens}


def _start(experiment: Experiment) -> dict[str, float]:
    begin = time.perf_counter()
    with chromium() as browser:
        opening = time.perf_counter() - begin
        with app() as address:
            up = time.perf_counter() - begin - opening
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{address}?model={experiment.model}&tokens={experiment.tokens}&{SETTINGS}")
            page.wait_for_selector("#gl-plot-boundary .main-svg")
            shown = time.perf_counter() - begin - opening
            page.click("#gl-run")
            page.wait_for_selector(".gl-done, .gl-failed", timeout=PATIENCE_S * 1000)
            if page.locator(".gl-failed").count():
                raise ResourceError(f"The run of the bench failed: {page.inner_text('#gl-status')}")
            return {"page_s": up, "shown_s": shown, "result_s": time.perf_counter() - begin - opening}


@contextmanager
def _only_weights() -> Iterator[None]:
    """Let processes see a cache that holds nothing but weights, for as long as the ``with`` block lasts."""
    before, models = os.environ.get("GHOSTED_CACHE"), cache.root() / "models"
    with tempfile.TemporaryDirectory() as folder:
        if models.is_dir():
            shutil.copytree(models, Path(folder) / models.name)
        os.environ["GHOSTED_CACHE"] = folder
        try:
            yield
        finally:
            os.environ.pop("GHOSTED_CACHE")
            if before is not None:
                os.environ["GHOSTED_CACHE"] = before


def _import_seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ghosted"], check=True, cwd=Path(__file__).parents[2])
    return time.perf_counter() - start
