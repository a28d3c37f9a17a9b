"""A process that is killed at any moment while it fetches, converts or calibrates leaves a cache that serves the next.

One kill in the default suite; many, on the real model too, with the marker ``soak``.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gguf_file
import pytest
import tiny

from ghosted.cache import Cache

REPO = Path(__file__).parent.parent
JOB = """
    import sys
    from ghosted.__main__ import main
    sys.exit(main(["compare", "--model", sys.argv[1], "--remove", sys.argv[3], "--calibration", sys.argv[2],
                   "--tokens", "2048", "--window", sys.argv[4], "--windows", "2", "--dtype", "float32",
                   "--methods", "none,ghosted", "--json"]))
"""


def start(model, text, cache, remove, window):
    environment = os.environ | {"GHOSTED_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(JOB), str(model), str(text), remove, str(window)], cwd=REPO,
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


def entries_are_whole(cache):
    kept = Cache(cache)
    for about in cache.glob("*/*/entry.json"):
        if not about.parent.name.startswith("."):
            assert kept.get(about.parent.parent.name, about.parent.name) is not None, about


def survive(model, text, cache, kills, longest, remove="2-3", window=64):
    moments = random.Random(kills)
    for _ in range(kills):
        process = start(model, text, cache, remove, window)
        time.sleep(moments.uniform(0.5, longest))
        process.kill()
        process.communicate()
        entries_are_whole(cache)
    process = start(model, text, cache, remove, window)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    entries_are_whole(cache)
    assert not [left for left in cache.glob("*/.new-*") if left.is_dir()]
    return json.loads(out)


@pytest.fixture
def tiny_gguf(tmp_path):
    words = ["<s>", "</s>", "a", "b", "ab", *(f"w{i}" for i in range(tiny.VOCABULARY - 5))]
    gguf_file.llama(tmp_path / "tiny.gguf", tiny.TINY("llama"), words)
    return tmp_path / "tiny.gguf"


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("a b ab " * 6000)
    return tmp_path / "text.txt"


def assert_as_undisturbed(found, model, text, tmp_path):
    """The same numbers up to float32 rounding: kept statistics leave the held-out text to another batch shape."""
    expected = survive(model, text, tmp_path / "undisturbed", 0, 0)
    for ours, theirs in zip(found["methods"], expected["methods"], strict=True):
        assert ours["perplexity"] == pytest.approx(theirs["perplexity"], rel=1e-5)
        assert ours["residual"] == pytest.approx(theirs["residual"], rel=1e-5)


def test_one_kill(tiny_gguf, text, tmp_path):
    found = survive(tiny_gguf, text, tmp_path / "cache", 1, 8)
    assert_as_undisturbed(found, tiny_gguf, text, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_many_kills(tiny_gguf, text, tmp_path):
    found = survive(tiny_gguf, text, tmp_path / "cache", 25, 12)
    assert_as_undisturbed(found, tiny_gguf, text, tmp_path)


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.timeout(1500)
def test_kills_while_the_real_model_is_fetched_and_converted(tmp_path):
    found = survive("smollm2-135m", "python-docs", tmp_path / "cache", 6, 40, remove="14-18", window=512)
    plain, ghosted = found["methods"]
    assert found["dense"]["perplexity"] < ghosted["perplexity"] < plain["perplexity"]


RUNS = """
    import sys
    from ghosted.__main__ import main
    sys.exit(main(sys.argv[1:]))
"""


def command_of(kind, model, text, out):
    read = ["--model", str(model), "--calibration", str(text), "--tokens", "2048", "--window", "64", "--dtype",
            "float32"]  # fmt: skip
    if kind == "map":
        return ["map", *read, "--json"]
    return ["export", *read, "--windows", "2", "--remove", "2-3", "--method", "ghosted", "--format", "checkpoint",
            "--out", str(out), "--json"]  # fmt: skip


def begun(command, cache):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(RUNS), *command], cwd=REPO, text=True,
                            env=os.environ | {"GHOSTED_CACHE": str(cache)}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["map", "export"])
def test_many_kills_of_a_map_and_an_export(tiny_gguf, text, tmp_path, kind):
    """Sweeps have their own in ``test_sweep.py``."""
    moments, out, cache = random.Random(kind), tmp_path / "out", tmp_path / "cache"
    for _ in range(8):
        process = begun(command_of(kind, tiny_gguf, text, out), cache)
        time.sleep(moments.uniform(0.5, 20))
        process.kill()
        process.communicate()
        entries_are_whole(cache)
        if out.exists():  # it was quicker than the kill: then it is whole
            assert (out / "ghost.json").exists()
            shutil.rmtree(out)
    process = begun(command_of(kind, tiny_gguf, text, out), cache)
    said, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    entries_are_whole(cache)
    found = json.loads(said)
    if kind == "map":
        fresh = begun(command_of(kind, tiny_gguf, text, out), tmp_path / "fresh")
        expected = json.loads(fresh.communicate(timeout=300)[0])
        assert found["error_after"] == pytest.approx(expected["error_after"], rel=1e-4)
    else:
        assert found["check"]["logits"] == 0 and not list(tmp_path.glob(".out.ghosted-*"))
