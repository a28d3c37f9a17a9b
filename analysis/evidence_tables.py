"""Measured evidence → tables and sentences: HTML with everything from outside escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from analysis.measuring import Measured
from analysis.names import method_label, removes
from analysis.numbers import MISSING, count, percent, three
from analysis.speech import say
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
        return say("evidence.named", model=experiment.model, blocks=experiment.remove or say("evidence.none"))
    return say("evidence.subject", model=found.run.model_label, removes=removes(found.run.removed, found.run.blocks))


def _texts(found: Evaluation, models: Sequence[Evidence]) -> str:
    if not found.protocols:
        return ""
    units = say("evidence.perplexity"), say("evidence.bits")
    heads = [(escape(text), unit) for text in found.protocols for unit in units]
    rows = [
        (m.method, [three(value) for text in found.protocols for value in
                    (m.texts[text].perplexity, m.texts[text].bits_per_byte)])
        for m in models
    ]
    return _table(say("evidence.texts"), heads, rows) + "".join(
        _note(protocol_line(p)) for p in found.protocols.values())


def _tasks(found: Evaluation, models: Sequence[Evidence]) -> str:
    if not found.dense.tasks:
        return ""
    heads = [(escape(task), say("evidence.accuracy")) for task in found.dense.tasks]
    heads += [(say("evidence.average"), ""), (say("evidence.retained"), say("evidence.of_original"))]
    rows = []
    for m in models:
        cells = [f"{three(t.acc)}" + (f" ± {t.stderr:.2g}" if t.stderr is not None else "") for t in m.tasks.values()]
        retained = m.retained(found.dense)
        rows.append((m.method, [*cells, three(m.average), MISSING if retained is None else percent(retained / 100)]))
    about = found.about_tasks or {}
    items = say("evidence.first_items", count=about["limit"]) if about.get("limit") else say("evidence.all_items")
    said = say("evidence.tasks_note", items=items, harness=about.get("harness", say("evidence.harness")))
    return _table(say("evidence.tasks"), heads, rows) + _note(said)


def _probe(models: Sequence[Evidence], dense: Evidence) -> str:
    if dense.probe is None:
        return ""
    kinds = list(dense.probe.kinds)
    heads = [(say("evidence.right"), say("evidence.of_all")), *((escape(kind), "") for kind in kinds),
             (say("evidence.repeats"), say("evidence.of_written"))]
    rows, broken = [], []
    for m in models:
        cells = [percent(m.probe.accuracy), *(percent(m.probe.kinds[k]) for k in kinds), percent(m.probe.repetition)]
        rows.append((m.method, cells))
        if m is not dense and (said := m.probe.verdict(dense.probe)):
            broken.append(_note(f"{method_label(m.method)}: {said}", "gl-problem"))
    guess = percent(dense.probe.chance)
    said = say("evidence.probe_note", count=dense.probe.n, guess=guess)
    return _table(say("evidence.probe"), heads, rows) + _note(said) + "".join(broken)


def _speed(found: Evaluation) -> str:
    if not found.speed:
        return ""
    prefill, speed = say("evidence.prefill"), say("evidence.per_second")
    heads = [(say("evidence.parameters"), ""), (say("evidence.size"), "MB"), (prefill, speed),
             (say("evidence.writing"), speed), (prefill, say("evidence.times"))]
    rows = []
    for name, one in found.speed["models"].items():
        low, high = one["prefill_ratio_spread"]
        ratio = f"{three(one['prefill_ratio'])} ({three(low)}–{three(high)})"
        rows.append((name, [count(one["parameters"]), f"{one['bytes'] / 1e6:,.0f}", f"{one['prefill']:,.0f}",
                            three(one["decode"]), ratio]))
    said = say("evidence.speed_note")
    if (pair := found.speed.get("ghosted_over_linearpatch")) is not None:
        low, high = pair["spread"]
        said += say("evidence.speed_pair", ratio=three(pair["ratio"]), low=three(low), high=three(high))
    if (own := found.speed.get("operator")) is not None:
        said += say("evidence.speed_operator", time=three(own["decode_us"]))
    return _table(say("evidence.speed"), heads, rows) + _note(said)


def _sensitivity(sources: Sequence[Any]) -> str:
    sizes = [size.sequences for size in sources[0].sizes]
    heads = [(str(size), say("evidence.sequences_unit")) for size in (*sizes, say("evidence.enough"))]
    rows = [
        (source.method, [f"{three(size.held_out)} · {three(size.perplexity)}" for size in source.sizes]
         + [MISSING if source.saturates is None else str(source.saturates)])
        for source in sources
    ]
    p = sources[0].protocol
    said = say("evidence.sensitivity_note", text=escape(p["text"]), windows=p["windows"], window=p["window"],
               dense=three(sources[0].dense))
    notes = "".join(_note(note) for note in dict.fromkeys(source.note for source in sources) if note)
    return _table(say("evidence.sensitivity"), heads, rows) + f"<p class='gl-note'>{said}</p>" + notes


def _table(caption: str, heads: Sequence[tuple[str, str]], rows: Sequence[tuple[str, list[str]]]) -> str:
    head = f"<th scope='col'>{say('evidence.model')}</th>" + "".join(
        f"<th scope='col'>{name}<small>{unit}</small></th>" for name, unit in heads)
    body = "".join(row("original" if name == "dense" else name, cells) for name, cells in rows)
    table = f"<table class='gl-table'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<h3 class='gl-caption'>{caption}</h3><div class='gl-scroll'>{table}</div>"


def _note(said: str, kind: str = "gl-note") -> str:
    return f"<p class='{kind}'>{escape(said)}</p>"
