"""Measured evidence → tables and sentences: HTML with everything from outside escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from analysis.measuring import Measured
from analysis.names import method_label
from analysis.numbers import MISSING, count, percent, three
from analysis.tables import protocol_line, row
from ghosted.results.evidence import Evaluation, Evidence


def tables(measured: Measured) -> str:
    """Return one table per part that was measured, each with its protocol."""
    found, shown = measured.evaluation, []
    if found is not None:
        models = [found.dense, *(m for m in found.methods if not m.not_defined)]
        shown += [_texts(found, models), _tasks(found, models), _probe(models, found.dense), _speed(found)]
        shown += [_note(w, "gl-warning") for w in found.run.warnings]
    if measured.sources:
        shown.append(_sensitivity(measured.sources))
    return "".join(shown)


def subject(measured: Measured) -> str:
    """Return what was measured, as one sentence: it stays when the controls say something else."""
    experiment, found = measured.asked.experiment, measured.evaluation
    if found is None or not found.run.blocks:
        return f"Measured: {experiment.model}, blocks {experiment.remove or 'none'} removed."
    return f"Measured: {found.run.model_label}, {found.run.removed.describe(found.run.blocks)}."


def _texts(found: Evaluation, models: Sequence[Evidence]) -> str:
    if not found.protocols:
        return ""
    heads = [(escape(text), unit) for text in found.protocols for unit in ("perplexity", "bits per byte")]
    rows = [
        (m.method, [three(value) for text in found.protocols for value in
                    (m.texts[text].perplexity, m.texts[text].bits_per_byte)])
        for m in models
    ]
    return _table("Perplexity in long windows", heads, rows) + "".join(
        _note(protocol_line(p)) for p in found.protocols.values())


def _tasks(found: Evaluation, models: Sequence[Evidence]) -> str:
    if not found.dense.tasks:
        return ""
    heads = [(escape(task), "accuracy") for task in found.dense.tasks] + [("average", ""), ("retained", "of original")]
    rows = []
    for m in models:
        cells = [f"{three(t.acc)}" + (f" ± {t.stderr:.2g}" if t.stderr is not None else "") for t in m.tasks.values()]
        retained = m.retained(found.dense)
        rows.append((m.method, [*cells, three(m.average), MISSING if retained is None else percent(retained / 100)]))
    about = found.about_tasks or {}
    items = f"the first {about['limit']} items of each" if about.get("limit") else "all items"
    said = f"Zero-shot accuracy ± standard error, {items}, scored by {about.get('harness', 'the harness')}."
    return _table("Zero-shot tasks", heads, rows) + _note(said)


def _probe(models: Sequence[Evidence], dense: Evidence) -> str:
    if dense.probe is None:
        return ""
    kinds = list(dense.probe.kinds)
    heads = [("right", "of all"), *((escape(kind), "") for kind in kinds), ("repeats", "of what it writes")]
    rows, broken = [], []
    for m in models:
        cells = [percent(m.probe.accuracy), *(percent(m.probe.kinds[k]) for k in kinds), percent(m.probe.repetition)]
        rows.append((m.method, cells))
        if m is not dense and (said := m.probe.verdict(dense.probe)):
            broken.append(_note(f"{method_label(m.method)}: {said}", "gl-problem"))
    guess = percent(dense.probe.chance)
    said = f"{dense.probe.n} short questions of our own, by likelihood; a guess is right in {guess}."
    return _table("Behaviour probe", heads, rows) + _note(said) + "".join(broken)


def _speed(found: Evaluation) -> str:
    if not found.speed:
        return ""
    heads = [("parameters", ""), ("size", "MB"), ("prefill", "tokens/s"), ("writing", "tokens/s"),
             ("prefill", "times the original's")]
    rows = []
    for name, one in found.speed["models"].items():
        low, high = one["prefill_ratio_spread"]
        ratio = f"{three(one['prefill_ratio'])} ({three(low)}–{three(high)})"
        rows.append((name, [count(one["parameters"]), f"{one['bytes'] / 1e6:,.0f}", f"{one['prefill']:,.0f}",
                            three(one["decode"]), ratio]))
    said = "Medians and quartiles over rounds in which every model takes its turn, so that drift cancels."
    if (pair := found.speed.get("ghosted_over_linearpatch")) is not None:
        low, high = pair["spread"]
        said += f" Seconds of ghosted over LinearPatch: {three(pair['ratio'])} ({three(low)}–{three(high)})."
    if (own := found.speed.get("operator")) is not None:
        said += f" One operator alone takes {three(own['decode_us'])} µs per written token."
    return _table("Speed and size", heads, rows) + _note(said)


def _sensitivity(sources: Sequence[Any]) -> str:
    sizes = [size.sequences for size in sources[0].sizes]
    heads = [(str(size), "sequences") for size in sizes] + [("enough", "sequences")]
    rows = [
        (source.method, [f"{three(size.held_out)} · {three(size.perplexity)}" for size in source.sizes]
         + [MISSING if source.saturates is None else str(source.saturates)])
        for source in sources
    ]
    p = sources[0].protocol
    said = (
        f"Held-out error · perplexity of the repaired model ({escape(p['text'])}, {p['windows']} windows of "
        f"{p['window']}; the original has {three(sources[0].dense)}). Enough is the smallest size whose error is "
        "within 2 % of the largest's."
    )
    notes = "".join(_note(note) for note in dict.fromkeys(source.note for source in sources) if note)
    return _table("How much text is enough", heads, rows) + f"<p class='gl-note'>{said}</p>" + notes


def _table(caption: str, heads: Sequence[tuple[str, str]], rows: Sequence[tuple[str, list[str]]]) -> str:
    head = "<th scope='col'>model</th>" + "".join(
        f"<th scope='col'>{name}<small>{unit}</small></th>" for name, unit in heads)
    body = "".join(row("original" if name == "dense" else name, cells) for name, cells in rows)
    table = f"<table class='gl-table'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<h3 class='gl-caption'>{caption}</h3><div class='gl-scroll'>{table}</div>"


def _note(said: str, kind: str = "gl-note") -> str:
    return f"<p class='{kind}'>{escape(said)}</p>"
