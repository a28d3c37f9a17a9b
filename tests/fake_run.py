"""A stand-in for ``ghosted.run.run``: the same events in the same order, from random numbers, in a second."""

from __future__ import annotations

import re
import threading
import time
from types import SimpleNamespace

import numpy as np

from ghosted.errors import ModelError
from ghosted.progress import Note, Stage
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import (
    Candidate,
    Choice,
    Column,
    Decomposition,
    Downstream,
    MethodResult,
    Protocol,
    Residual,
    Run,
    Similarity,
    Update,
)

BLOCKS, WIDTH = 30, 64
LEFT = {
    "none": (1.0, 1.0, 1.0, 55.6), "scalar": (0.99, 0.99, 1.0, 54.1), "diagonal": (0.95, 0.96, 0.97, 50.2),
    "linearpatch-diag": (3.2, 3.49, 0.96, 50.8), "linearpatch": (2.9, 3.08, 0.91, 48.9),
    "procrustes": (0.86, 0.87, 0.87, 40.1), "symmetric": (0.74, 0.75, 0.75, 34.9), "low-rank": (0.70, 0.72, 0.72, 35.3),
    "replaceme": (0.69, 0.71, 0.72, 34.4), "ghosted": (0.58, 0.62, 0.63, 31.8),
    "replaceme-cosine": (0.74, 0.76, 0.70, 33.9), "ghosted-weighted": (0.80, 0.83, 0.63, 57.0),
    "normalised": (0.79, 0.82, 0.62, 31.5), "best": (0.77, 0.81, 0.60, 28.4),
}
LINEAR = set(LEFT) - {"none", "replaceme", "replaceme-cosine", "normalised", "best"}
CHOICES = {
    "best": Choice("best", "10,14-16,22", 3.213, False, Candidate("14-18", 3.214), True, ()),
    "cosine": Choice("cosine", "12-16", 0.906, True, Candidate("10-14", 0.871), False, ()),
}
DENSE = 22.7
NASTY = ["<img src=x onerror=alert(1)>", " ${alert(2)}", " `tick`", " </script>", " {{value}}", " \\n $x^2$"]


def facts(name: str) -> SimpleNamespace:
    """What the library says of a model: ``small`` has 12 blocks, ``missing`` does not exist."""
    if name == "missing":
        raise ModelError("There is no model 'missing'; pick one of the list or write owner/name.")
    return SimpleNamespace(blocks=12 if name == "small" else BLOCKS, width=WIDTH, parameters=134_515_008,
                           download_bytes=None, cached=True)


def similarity(blocks: int = BLOCKS) -> Similarity:
    rng = np.random.default_rng(0)
    place = np.cumsum(np.r_[0.0, np.where(np.arange(blocks) < 2, 1.2, 0.22), ][: blocks + 1])
    place[-1] += 1.0
    cosine = np.exp(-0.35 * np.abs(place[:, None] - place[None, :])) - 0.01 * rng.random((blocks + 1, blocks + 1))
    cosine = (cosine + cosine.T) / 2
    np.fill_diagonal(cosine, 1.0)
    return Similarity(cosine, cosine, np.ones((blocks + 1, blocks + 1, 20)), np.stack([cosine, cosine]),
                      np.ones((blocks + 1, 8)), 16_384)


def decomposition(method: str, gap: str, width: int = WIDTH) -> Decomposition:
    rng = np.random.default_rng(len(method))
    M = rng.normal(size=(width, width)) / width**0.5 * 0.4
    W = np.eye(width) + M - 0.15 * np.eye(width)
    S, A = (W + W.T) / 2, (W - W.T) / 2
    total = np.sum(W**2)
    turns = np.linalg.eigvals(A).imag
    return Decomposition(method, gap, W.astype(np.float32), float(np.sum(A**2) / total), 0.39, np.linalg.eigvals(W),
                         np.linalg.eigvalsh(S)[::-1], np.sort(turns[turns > 1e-9])[::-1],
                         np.linalg.svd(W - np.eye(width), compute_uv=False))


def method_result(name: str, gap: range, blocks: int = BLOCKS) -> MethodResult:
    if not gap:
        return MethodResult(name, None, {}, {"python-docs": DENSE}, {"python-docs": 0.0})
    calibration, held_out, median, perplexity = LEFT[name]
    states = [gap.stop, *range(gap.stop + 1, blocks + 1)]
    below = [Downstream(s, median * (0.9 + 0.02 * k), 0.9 - 0.01 * k) for k, s in enumerate(states)]
    return MethodResult(
        name, Residual(calibration, held_out, median), {}, {"python-docs": perplexity},
        {"python-docs": float(np.log(perplexity / DENSE))}, below, 0 if name == "none" else 331_776,
    )


def make_run(pace: float = 0.02, steps: int = 20, pieces: list[str] | None = None, blocks: int = BLOCKS,
             fail: Exception | None = None, fails: tuple[str, int] | None = None):
    """Return a run function; ``pace`` is the seconds of one step, ``fail`` is raised half-way, ``fails`` as below."""

    def run(experiment, workspace=None, cancel=None):
        found = Run(experiment, "SmolLM2-135M-Instruct (4-bit GGUF, dequantised)", blocks, WIDTH, "bfloat16")
        choice = None if experiment.criterion == "manual" else CHOICES[experiment.criterion]
        for stage, part in (("loading", None), ("calibrating", "similarity"), ("solving", "boundary"),
                            ("decomposing", "decomposition"), ("scoring", "scores")):
            clock = Stage(stage, steps, cancel)
            for _ in range(steps):
                time.sleep(pace)
                yield clock.step()
            if stage == "loading":
                found.removed = RemovedBlocks.parse(choice.remove if choice else experiment.remove, blocks)
            if part == "similarity":
                found.similarity = similarity(blocks)
                if choice:
                    yield Note(f"{choice.criterion}: 450,560 more tokens through the model, about 0.3 GB more memory")
                    clock = Stage("scoring ranges", steps, cancel)
                    for _ in range(steps):
                        time.sleep(pace)
                        yield clock.step()
                    found.choice = choice
                if fail is not None:
                    raise fail
            gap = found.removed.gaps[0] if found.removed.gaps else range(0)
            if part == "boundary":
                found.methods = [method_result(name, gap, blocks) for name in experiment.methods]
            if part == "decomposition" and gap:
                found.decompositions = {name: decomposition(name, gap_name(gap)) for name in experiment.methods
                                        if name in LINEAR}
            if part == "scores":
                found.dense_perplexity = {"python-docs": DENSE}
                found.self_check = True
                found.warnings = ["Only 16,384 tokens for 64 channels <b>bold</b>."]
                found.protocols = {"python-docs": Protocol("python-docs, tokens 24,576 to 32,768", "0" * 64, 512, 512,
                                                           16, 8176, False, "bfloat16", True)}
            if part is not None:
                yield Update(part, found)
        yield from write(found, pieces, pace, cancel, fails)
        found.seconds = {"all": 5 * steps * pace}
        return found

    return run


def held(run, gates: dict[int, threading.Event]):
    """Return the same run, but it waits after the given numbers of tokens until their event is set."""

    def waiting(experiment, workspace=None, cancel=None):
        steps, written = run(experiment, workspace, cancel), 0
        while True:
            try:
                event = next(steps)
            except StopIteration as stop:
                return stop.value
            yield event
            written += isinstance(event, Update) and event.part == "columns"
            if written in gates:
                gates[written].wait(120)

    return waiting


def write(found: Run, pieces: list[str] | None, pace: float, cancel, fails: tuple[str, int] | None = None):
    """Write all columns; ``fails`` is the method whose model raises, and after how many tokens."""
    words = pieces or re.findall(r" \w+", " the sea lay like a sheet of hammered tin under the light of a day in May")
    found.columns = [Column(name, parameters=134_515_008 - 17_700_000 * bool(at) + 331_776 * (at > 1))
                     for at, name in enumerate(("original", *found.experiment.methods))]
    clock = Stage("writing", found.experiment.max_new_tokens, cancel)
    for token in range(found.experiment.max_new_tokens):
        time.sleep(pace)
        for shift, column in enumerate(found.columns):
            if column.error:
                continue
            if fails == (column.method, token):
                column.error, column.finished = f"This model failed after {token} new tokens (RuntimeError).", True
                continue
            late = shift and token >= 3 + shift
            word = words[(token + (shift if late else 0)) % len(words)]
            likely = [(words[(token + shift * bool(late) + k) % len(words)], round(0.62 / 3**k, 3)) for k in range(5)]
            column.top.append(likely)
            column.surprisal.append(0.48 + 0.6 * ((token * 5) % 7 == 0))
            column.agrees.append(not late)
            column.seconds += 0.02 + 0.004 * (not shift)
            if shift:
                column.top_original.append(found.columns[0].top[token] if not late else likely[::-1])
            column.pieces.append(word)
            column.tokens.append(token)
            column.text += word
            column.kl.append(0.0 if not shift else 0.04 * shift * ((token * 7) % 11) * (2.0 if late else 0.2))
            if late and column.diverges_at is None:
                column.diverges_at = token
        yield clock.step()
        yield Update("columns", found)
    for column in found.columns:
        column.finished = True
    yield Update("columns", found)
