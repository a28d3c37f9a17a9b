"""With the network blocked, everything works on the offline default (case 23)."""

import socket

import pytest

from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.run import run
from ghosted.workspace import Workspace


@pytest.mark.model
def test_case_23_calibrate_score_and_write_without_a_network(smol, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("the network is blocked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path))
    monkeypatch.setattr("ghosted.texts.windows.HELD_OUT_LEAST", 2048)
    e = Experiment(remove="14-18", tokens=4096, windows=2, methods=("none", "ghosted"), prompt="The", max_new_tokens=8)
    finished = drain(run(e, Workspace(smol)))
    none, ghosted = finished.methods
    text = next(iter(finished.dense_perplexity))
    assert finished.dense_perplexity[text] < ghosted.perplexity[text] < none.perplexity[text]
    assert ghosted.residual.held_out < 1 and finished.self_check is True
    assert [len(c.tokens) for c in finished.columns] == [8, 8, 8]
