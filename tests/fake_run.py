"""A stand-in for ``ghosted.run.run``: the same events in the same order, from random numbers, in a second."""

from __future__ import annotations

import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from gradio.utils import get_upload_folder

from analysis import taking
from analysis.measuring import Measured
from ghosted.cache import staged
from ghosted.decomposition import decompose
from ghosted.errors import InputError, ModelError
from ghosted.hadamard import rotation
from ghosted.progress import Note, Stage
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import (
    PARTS,
    BoundaryProfile,
    Candidate,
    Choice,
    Column,
    Decomposition,
    Downstream,
    MethodProfile,
    MethodResult,
    Protocol,
    RecoverabilityMap,
    Residual,
    Run,
    Similarity,
    SizePoint,
    Update,
    operator_key,
)
from ghosted.results.evidence import Evaluation, Evidence, TaskScore, TextScore
from ghosted.scores.probe import Probe
from ghosted.sensitivity import Size, Source

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
    "best": Choice("best", "10,14-16,22", 3.213, False, Candidate("14-18", 3.214), True, (
        Candidate("10,14-16,22", 3.213), Candidate("14-18", 3.214), Candidate("12-16", 3.24))),
    "cosine": Choice("cosine", "12-16", 0.906, True, Candidate("10-14", 0.871), False, ()),
}
DENSE = 22.7
NASTY = ["<img src=x onerror=alert(1)>", " ${alert(2)}", " `tick`", " </script>", " {{value}}", " \\n $x^2$"]


def facts(name: str) -> SimpleNamespace:
    """What the library says of a model: ``small`` has 12 blocks, ``missing`` does not exist."""
    if name == "missing":
        raise ModelError("There is no model 'missing'; pick one of the list or write owner/name.")
    return SimpleNamespace(blocks=12 if name == "small" else BLOCKS, width=WIDTH, parameters=134_515_008,
                           download_bytes=None, cached=True,
                           memory=lambda: 823_000_000, pass_seconds=lambda tokens: tokens / 2000)


def similarity(blocks: int = BLOCKS, window: int = 128) -> Similarity:
    """Blocks 12 to 16 turn the state least, blocks 14 to 18 its angle at the last token, block 22 alone little, too.

    The sink that block 11 writes owns the flattened cosine between any two states after it.
    """
    turns = np.where(np.arange(blocks) < 2, 1.2, 0.22)
    turns[12:17], turns[22:23], turns[-1:] = 0.16, 0.12, 1.22
    cosine = _alike(turns)
    turns[12:14], turns[17:19] = 0.22, 0.14
    angle = np.arccos(np.clip(_alike(turns), -1, 1)) / np.pi
    sink = np.arange(blocks + 1) > min(11, blocks // 2)
    flattened = np.where(np.logical_and.outer(sink, sink), 1 - 0.02 * (1 - cosine), cosine * 0.7)
    np.fill_diagonal(flattened, 1.0)
    noise = np.random.default_rng(0).random((blocks + 1, window))
    norms = 60 * np.exp(0.08 * np.arange(blocks + 1))[:, None] * (1 + 0.05 * noise)
    norms[sink, 0] *= 170
    return Similarity(cosine, flattened, np.ones((blocks + 1, blocks + 1, 20)), np.stack([cosine, cosine]), norms,
                      16_384, angle, np.stack([angle, angle]))


def _alike(turns: np.ndarray) -> np.ndarray:
    place = np.cumsum(np.r_[0.0, turns])
    noise = np.random.default_rng(0).random((len(place), len(place)))
    cosine = np.exp(-0.35 * np.abs(place[:, None] - place[None, :])) - 0.001 * (noise + noise.T)
    np.fill_diagonal(cosine, 1.0)
    return cosine


def ranges(blocks: int = BLOCKS) -> RecoverabilityMap:
    """A repair leaves half of the error; of ranges that remove block 11 it makes more than there was."""
    first, last = np.triu_indices(blocks + 1, k=1)
    cosine = similarity(blocks).cosine[first, last]
    share = np.where((first <= 11) & (last > 11), 1.5, 0.5) + 0.005 * (last - first)
    before = np.sqrt(2 - 2 * cosine)
    share[0] = np.nan  # nothing to repair where block 0 goes alone
    return RecoverabilityMap(first, last - 1, cosine, before, share, np.nan_to_num(before * share), 16_384, 8_192, 2.5)


def decomposition(method: str, gap: str, width: int = WIDTH) -> Decomposition:
    """A random operator; LinearPatch's form and the symmetric one where the method has it, so that it cannot turn."""
    rng = np.random.default_rng([*method.encode(), *gap.encode()])
    M = rng.normal(size=(width, width)) / width**0.5 * 0.4 - 0.15 * np.eye(width)
    if method.startswith("linearpatch"):
        Q = rotation(width)[0]
        M = (Q * rng.normal(-0.1, 0.2, width)) @ Q.T
    elif method in ("symmetric", "scalar", "diagonal"):
        M = (M + M.T) / 2
    errors = (1 - 0.4 * (1 - np.exp(-5 * np.linspace(0, 1, width + 1)))).tolist()
    start, _, stop = gap.partition("-")
    return decompose(torch.from_numpy(M), method, range(int(start), int(stop or start) + 1),
                     errors if method in ("ghosted", "low-rank") else None)


def method_result(name: str, gap: range, blocks: int = BLOCKS) -> MethodResult:
    if not gap:
        return MethodResult(name, None, {}, {"python-docs": DENSE}, {"python-docs": 0.0})
    calibration, held_out, median, perplexity = LEFT[name]
    states = [gap.stop, *range(gap.stop + 1, blocks + 1)]
    below = [Downstream(s, median * (0.9 + 0.02 * k), 1.0 - 0.1 * median - 0.01 * k) for k, s in enumerate(states)]
    return MethodResult(
        name, Residual(calibration, held_out, median), {}, {"python-docs": perplexity},
        {"python-docs": float(np.log(perplexity / DENSE))}, below, 0 if name == "none" else 331_776,
    )


def profile(gap: range, methods: tuple[str, ...], pieces: list[str] | None = None, tokens: int = 512,
            width: int = WIDTH, window: int = 512) -> BoundaryProfile:
    """A sink opens each window; one piece breaks the line, one is the first half of a character, as texts have them."""
    rng = np.random.default_rng(4)
    words = pieces or ["The", " quick", " brown", " fox", ",", " once", " again", ",", " naï", "", "ve", ".", "\n"]
    starts = np.r_[0, np.arange(1, window, max(1, window // 63))]
    first, far = np.arange(tokens) % window == 0, starts == 0

    def scattered(median: float, size: int) -> np.ndarray:
        return (median * np.exp(0.22 * rng.normal(size=size))).astype(np.float32)

    def one(name: str) -> MethodProfile:
        if name == "none":
            return MethodProfile(*(np.ones(n, dtype=np.float32) for n in (tokens, width, len(starts))))
        _, held_out, median, _ = LEFT[name]
        sink = 30 * held_out if name.startswith("linearpatch") else 0.4
        return MethodProfile(np.where(first, sink, scattered(median, tokens)), scattered(held_out, width),
                             np.where(far, sink, median * (1 + 0.1 / (1 + starts))))

    change = (8.0 / np.arange(1, width + 1) ** 0.6).astype(np.float32)
    sizes = {"ghosted": tuple(SizePoint(16_384 // k, LEFT["ghosted"][1] + 0.03 * k, LEFT["ghosted"][2] + 0.025 * k)
                              for k in (16, 8, 4, 2, 1))}
    return BoundaryProfile(
        gap_name(gap), window, 16, tuple(words[at % len(words)] for at in range(tokens)),
        np.where(first, 23_600.0, scattered(200.0, tokens)), rng.permutation(change), starts,
        {name: one(name) for name in methods}, sizes if "ghosted" in methods else {},
        "" if "ghosted" in methods else "Choose the method ghosted to see its error against the amount of text.",
    )


def make_run(pace: float = 0.02, steps: int = 20, pieces: list[str] | None = None, blocks: int = BLOCKS,
             fail: Exception | None = None, fails: tuple[str, int] | None = None):
    """Return a run function; ``pace`` is the seconds of one step, ``fail`` is raised half-way, ``fails`` as below."""

    def run(experiment, workspace=None, cancel=None, parts=PARTS):
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
                found.profile = profile(gap, experiment.methods, pieces) if gap else None
            if part == "decomposition" and gap:
                found.decompositions = {
                    operator_key(name, gap_name(each), each == gap): decomposition(name, gap_name(each))
                    for each in found.removed.gaps for name in experiment.methods if name in LINEAR
                }
            if part == "scores":
                found.dense_perplexity = {"python-docs": DENSE}
                found.self_check = True
                found.warnings = ["Only 16,384 tokens for 64 channels <b>bold</b>."]
                found.protocols = {"python-docs": Protocol("python-docs, tokens 24,576 to 32,768", "0" * 64, 512, 512,
                                                           16, 8176, False, "bfloat16", True)}
            if part is not None:
                yield Update(part, found)
        yield from write(found, pieces, pace, cancel, fails)
        found.ranges = ranges(blocks)
        yield Update("map", found)
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


def measure(asked, cancel=None):
    """A stand-in for ``analysis.library.measure``: the same shapes from random numbers, every part asked for."""
    rng, names = np.random.default_rng(0), [m for m in asked.experiment.methods if m in LEFT]
    stage = Stage("measuring", 3, cancel)
    for _ in range(3):
        time.sleep(0.02)
        yield stage.step()
    run = Run(asked.experiment, model_label="fake")
    found = Evaluation(run, methods=[Evidence(name) for name in names])
    text = asked.experiment.text
    for evidence in (found.dense, *found.methods):
        worth = LEFT.get(evidence.method, (0, 0, 0, DENSE))[3]
        if "texts" in asked.what:
            losses = (np.log(worth) + rng.normal(size=600)).astype(np.float16)
            evidence.texts[text] = TextScore(worth, np.log2(worth) / 4, 600, losses)
        evidence.tasks = {task: TaskScore(0.5, 0.5, 0.05, asked.limit) for task in asked.tasks}
        if "probe" in asked.what:
            right = 0.3 if evidence.method == "none" else 0.8
            evidence.probe = Probe(right, 0.3, 64, {"facts": right, "grammar": right}, 0.1, ("so it goes",))
    if "texts" in asked.what:
        said = f"{text}, tokens 0 to 600"
        found.protocols[text] = Protocol(said, "0" * 64, 2048, 2048, 1, 600, False, "float32", True)
    if "speed" in asked.what:
        one = {"parameters": 10**6, "bytes": 4 * 10**6, "prefill": 2000.0, "decode": 20.0, "prefill_ratio": 1.2,
               "prefill_ratio_spread": [1.1, 1.3]}
        found.speed = {"models": dict.fromkeys(("dense", *names), one)}
    sources = None
    if "sensitivity" in asked.what:
        protocol = {"text": text, "windows": 4, "window": 512}
        sizes = tuple(Size(n, 512 * n, 0.6 + 1 / n, 0.5 + 1 / n, 30 + 100 / n) for n in (4, 8, 16, 32))
        sources = [Source(text, name, sizes, 32, DENSE, 55.6, protocol) for name in names if name != "none"]
    return Measured(asked, found, sources)


def take(wanted, cancel=None, limit=None, pace=0.02):
    """A stand-in for ``analysis.library.take``: a zip that says what was asked for."""
    clock = Stage("writing the model", 3, cancel)
    with ExitStack() as stack:
        folder = Path(get_upload_folder())
        folder.mkdir(parents=True, exist_ok=True)
        source = stack.enter_context(staged(folder, taking.PREFIX)) / f"ghosted-fake-{wanted.method}-{wanted.form}"
        source.mkdir()
        (source / "wanted.txt").write_text(f"{wanted.experiment.remove} {wanted.method} {wanted.form}")
        for _ in range(3):
            time.sleep(pace)
            yield clock.step()
        path = yield from taking.packed(source, cancel)
        return taking.Taken(wanted, path, {"logits": 0.0, "perplexity": 0.0}, stack.pop_all())


def outlook(wanted, limit=None):
    """A stand-in for ``analysis.library.outlook``: merged ghosted is refused, anything else is small."""
    if (wanted.form, wanted.method) == ("merged", "ghosted"):
        raise InputError("Only <b>some</b> can be merged.")
    return f"{wanted.form} of {wanted.method}, blocks {wanted.experiment.remove}, {limit or 'any'} bytes at most."
