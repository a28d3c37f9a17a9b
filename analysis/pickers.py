"""What will happen if this model, or this text, is taken? Said before anything large is fetched or computed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analysis.numbers import count, three
from analysis.speech import say, say_of
from ghosted import machine
from ghosted.experiment import Experiment
from ghosted.models.entries import find
from ghosted.texts import SOURCES, sources


def size(number: float) -> str:
    """Return bytes as people read them: ``93 MB``, ``16.1 GB``."""
    return f"{three(number / 1e9)} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"


def model_line(facts: Any, tokens: int) -> str:
    """Return what a model is and what a run with it takes: size, memory, time, and what is still to be fetched."""
    said = [say("controls.facts", blocks=facts.blocks, width=facts.width, parameters=count(facts.parameters))]
    said.append(say("controls.memory", needed=size(facts.memory()), free=size(machine.available_memory())))
    seconds = facts.pass_seconds(tokens)
    if seconds is not None:
        said.append(say("controls.pass", tokens=f"{tokens:,}", seconds=f"{max(seconds, 1):,.0f}"))
    if facts.cached:
        said.append(say("controls.cached"))
    elif facts.download_bytes:
        said.append(say("controls.fetch", size=size(facts.download_bytes)))
    return _sentence(said)


def catalogue_line(name: str) -> str:
    """Return what the catalogue says of a model without looking anything up; empty for any other name."""
    entry = find(name)
    if entry is None:
        return ""
    said = [say("controls.entry", blocks=entry.blocks, parameters=count(int(entry.parameters)), licence=entry.licence)]
    if entry.gated:
        said.append(say("controls.gated"))
    return _sentence(said)


def text_line(name: str, tokens: int) -> str:
    """Return what a calibration text is and what reading it takes."""
    if name in SOURCES:
        source = sources()[name]
        return say_of("about", name, source.NOTE) + (say("controls.fetched") if source.NEEDS_NETWORK else "")
    try:
        bytes_ = os.stat(name).st_size
    except (OSError, ValueError):
        return ""
    enough = "" if bytes_ >= 5 * tokens else say("controls.too_few", tokens=f"{tokens:,}")
    size_, tokens_ = three(bytes_ / 1e6), count(bytes_ // 4)
    return say("controls.file", name=Path(name).name, size=size_, tokens=tokens_, enough=enough)


def run_line(experiment: Experiment) -> str:
    """Return what Run will do with the texts: tokens read and scored."""
    scored = experiment.windows * experiment.window
    return say("controls.run_line", tokens=f"{experiment.tokens:,}",
               held_out=f"{max(8192, experiment.tokens // 4):,}", scored=f"{scored:,}")


def _sentence(parts: list[str]) -> str:
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "."
