"""Settings for every test: the tests' own modules importable, and one thread for tiny models, where more only cost."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the app itself: the browser needs the same cores
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))


@pytest.fixture(autouse=True)
def threads(request):
    """All cores for the real model, one otherwise."""
    if "torch" in sys.modules or request.node.get_closest_marker("model"):
        import torch

        torch.set_num_threads(os.cpu_count() if request.node.get_closest_marker("model") else 1)


@pytest.fixture(scope="session")
def smol():
    """The real offline default, in this machine's fastest dtype; fetched and converted on the first use ever."""
    from ghosted import models
    from ghosted.progress import drain

    return drain(models.load("smollm2-135m"))


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; one per module, for playwright's event loop must not outlive it."""
    from browser import chromium

    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url(browser):
    """The address of a page on the fake run, which is over in no time."""
    from fake_run import make_run
    from pages import served

    with served(make_run(pace=0.004, steps=4)) as address:
        yield address


@pytest.fixture
def page(browser, url):
    """That page in the browser; afterwards it must have had no faults."""
    from browser import opened

    with opened(browser, url) as shown:
        yield shown
        assert shown.faults == []


@pytest.fixture
def text(tmp_path):
    """The path of a text long enough for tiny models."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Sentence {i} of a text that goes on about {i * i % 97} things. " for i in range(900)))
    return str(path)
