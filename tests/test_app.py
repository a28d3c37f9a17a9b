"""app.py: its flags, a port that is taken, and a Space without a network."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import library
from ghosted.errors import ModelError

ROOT = Path(__file__).parents[1]


def test_app_py_explains_its_flags_without_starting_anything():
    asked = subprocess.run([sys.executable, str(ROOT / "app.py"), "--help"], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0 and "--port" in asked.stdout and "--host" in asked.stdout


@pytest.mark.parametrize("arguments", [["--port", "x"], ["--port", "70000"], ["--nonsense"], ["--max-text", "0"],
                                       ["--max-memory", "big"], ["--auth", "nobody"]])
def test_a_wrong_flag_of_the_app_is_one_sentence(arguments):
    command = [sys.executable, str(ROOT / "app.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        arguments = [sys.executable, str(ROOT / "app.py"), "--port", str(taken.getsockname()[1])]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "cannot be served there" in done.stderr and "Traceback" not in done.stderr


def test_on_a_space_a_model_that_cannot_be_had_does_not_keep_the_page_down(monkeypatch, caplog):
    asked = []

    def unreachable(name):
        asked.append(name)
        raise ModelError("There is no network.")

    monkeypatch.setattr("ghosted.models.load_tokenizer", unreachable)
    library.prepare_default()
    assert asked == ["smollm2-135m"] and "There is no network." in caplog.text
