"""What will happen if this model, or this text, is taken? Said before anything large is fetched or computed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analysis.numbers import count, three
from ghosted import machine
from ghosted.experiment import Experiment
from ghosted.models.entries import find
from ghosted.texts import SOURCES, sources


def size(number: float) -> str:
    """Return bytes as people read them: ``93 MB``, ``16.1 GB``."""
    return f"{three(number / 1e9)} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"


def model_line(facts: Any, tokens: int) -> str:
    """Return what a model is and what a run with it takes: size, memory, time, and what is still to be fetched."""
    said = [f"{facts.blocks} blocks of width {facts.width}, {count(facts.parameters)} parameters"]
    said.append(f"a run needs about {size(facts.memory())} of the {size(machine.available_memory())} that are free")
    seconds = facts.pass_seconds(tokens)
    if seconds is not None:
        said.append(f"one pass over {tokens:,} tokens takes about {max(seconds, 1):,.0f} s here")
    if facts.cached:
        said.append("nothing to fetch")
    elif facts.download_bytes:
        said.append(f"{size(facts.download_bytes)} to fetch at the first run")
    return _sentence(said)


def catalogue_line(name: str) -> str:
    """Return what the catalogue says of a model without looking anything up; empty for any other name."""
    entry = find(name)
    if entry is None:
        return ""
    said = [f"{entry.blocks} blocks, about {count(int(entry.parameters))} parameters, {entry.licence}"]
    if entry.gated:
        said.append("gated: accept its licence on the Hub and log in first")
    return _sentence(said)


def text_line(name: str, tokens: int) -> str:
    """Return what a calibration text is and what reading it takes."""
    if name in SOURCES:
        source = sources()[name]
        return source.NOTE + (" Fetched at the first run, then kept." if source.NEEDS_NETWORK else "")
    try:
        bytes_ = os.stat(name).st_size
    except (OSError, ValueError):
        return ""
    enough = "" if bytes_ >= 5 * tokens else f"; that is probably fewer than the {tokens:,} tokens asked for"
    return f"{Path(name).name}: {three(bytes_ / 1e6)} MB of text, about {count(bytes_ // 4)} tokens{enough}."


def run_line(experiment: Experiment) -> str:
    """Return what Run will do with the texts: tokens read and scored."""
    scored = experiment.windows * experiment.window
    return (
        f"Run reads {experiment.tokens:,} tokens to calibrate and at least {max(8192, experiment.tokens // 4):,} "
        f"held-out ones, and scores {scored:,} per model."
    )


def _sentence(parts: list[str]) -> str:
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "."
