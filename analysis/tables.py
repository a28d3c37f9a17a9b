"""Numbers → tables and sentences: HTML with everything from outside escaped."""

from __future__ import annotations

from html import escape

from analysis.names import blocks_label, label_in, method_label, removes
from analysis.numbers import MISSING, count, percent, three
from analysis.palette import css_class
from analysis.record import Record
from analysis.speech import say
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, MethodResult, Protocol, Residual, Run

HEADERS = (
    ("method", ""), ("perplexity", "perplexity_unit"), ("damage", "damage_unit"), ("left", "held_out"),
    ("median", "held_out"), ("added", "added_unit"),
)
"""The columns and what stands under their names, as the catalogue calls them."""


def numbers_table(run: Run) -> str:
    """Return the table of all methods, one row each, under a row for the original."""
    text = next(iter(run.dense_perplexity), None)
    head = "".join(f"<th scope='col'>{say(f'scores.{name}')}<small>{say(f'scores.{unit}') if unit else ''}</small></th>"
                   for name, unit in HEADERS)
    dense = row("original", [three(run.dense_perplexity.get(text)), "0", MISSING, MISSING, "0"])
    rows = "".join(_method_row(method, text) for method in run.methods)
    table = f"<table class='gl-table'><thead><tr>{head}</tr></thead><tbody>{dense}{rows}</tbody></table>"
    return f"<div class='gl-scroll'>{table}</div>"


def protocol_lines(run: Run) -> str:
    """Return what every perplexity of the run means, one line per evaluation text."""
    same = _badge("gl-aside", "same")
    return "".join(
        f"<p class='gl-note'>{escape(protocol_line(p))} {same if p.same_source else ''}</p>"
        for p in run.protocols.values()
    )


def protocol_line(protocol: Protocol) -> str:
    """Return the protocol as one sentence: text, windows, stride, tokens scored, BOS, dtype."""
    return say(
        "scores.protocol", text=protocol.text, windows=protocol.windows, window=protocol.window, stride=protocol.stride,
        tokens=f"{protocol.tokens_scored:,}", bos=say("scores.bos" if protocol.bos else "scores.no_bos"),
        dtype=protocol.dtype,
    )


def left_line(record: Record) -> str:
    """Return one line of numbers at the boundary: for each repair the held-out error, and the share of A in its W.

    Where the error after all gaps is not known yet, it is each gap's own.
    """
    run = record.run
    said, alone = [], False
    for method in run.methods:
        known = [method.residual] if method.residual else list(method.gaps.values())
        if method.method == "none" or not known or any(left.held_out is None for left in known):
            continue
        alone = alone or len(known) > 1
        picture = record.portraits.get(method.method)
        share = say("boundary.share", share=percent(picture.share)) if picture is not None else ""
        said.append(f"<span class='gl-each {css_class(method.method)}'><i class='gl-swatch'></i>"
                    f"{escape(method_label(method.method))} <b>{' | '.join(three(left.held_out) for left in known)}</b>"
                    f"{share}</span>")
    blocks = escape(str(run.removed))
    named = say("boundary.alone" if alone else "page.blocks", blocks=blocks_label(blocks))
    head = f"{named}: " if said else ""
    return f"<p class='gl-left' data-removed='{blocks}'>{head}{' '.join(said)}</p>"


def verdicts(run: Run) -> list[str]:
    """Return a sentence on the methods that leave more error at the boundary than plain pruning.

    The least-squares methods are left out: their excess is a warning of the run itself, as is a worse perplexity.
    """
    left = [m for m in run.methods if m.residual and (m.residual.held_out or 0.0) > 1.0005 and m.rank is None]
    if not left:
        return []
    names = "; ".join(
        say("boundary.worse_one", method=method_label(m.method), held_out=three(m.residual.held_out),
            median=three(m.residual.median))
        for m in left
    )
    return [say("boundary.worse", names=names)]


def chosen(choice: Choice, blocks: int) -> str:
    """Return a sentence on what a criterion chose of ``blocks`` blocks, and how close the runner-up came."""
    best = removes(RemovedBlocks.parse(choice.remove), blocks)
    said = say("scores.chosen", criterion=label_in("ghosted.criteria", choice.criterion), removes=best,
               score=three(choice.score))
    if (runner := choice.runner_up) is None:
        return said + say("scores.alone")
    return say("scores.higher" if choice.higher_is_better else "scores.lower", chosen=said,
               blocks=blocks_label(runner.remove), score=three(runner.score),
               tie=say("scores.tie") if choice.near_tie else "")


def notices(run: Run, failed: str = "") -> str:
    """Return the choice, warnings and verdicts of a run as a list, empty without any; ``failed`` comes first."""
    items = [("gl-choice", chosen(run.choice, run.blocks))] if run.choice is not None else []
    items += [("gl-warning", w) for w in (failed, *run.warnings) if w] + [("gl-verdict", v) for v in verdicts(run)]
    items += [("gl-aside", f"{method_label(m.method)}: {m.note}") for m in run.methods if m.note]
    if not items:
        return ""
    return "<ul class='gl-notices'>" + "".join(f"<li class='{c}'>{escape(text)}</li>" for c, text in items) + "</ul>"


def self_check(run: Run) -> str:
    """Return the badge that says whether removing nothing changed nothing; empty until it is known."""
    if run.self_check is None:
        return ""
    if run.self_check:
        return _badge("gl-good", "checked")
    return _badge("gl-bad", "failed")


def best_of(run: Run, part: str = "held_out") -> MethodResult | None:
    """Return the method with the smallest residual error, ``None`` until one is measured."""
    measured = [m for m in run.methods if m.residual is not None and getattr(m.residual, part) is not None]
    return min(measured, key=lambda m: getattr(m.residual, part), default=None)


def _badge(kind: str, name: str) -> str:
    return f"<span class='gl-badge {kind}' title='{say(f'scores.{name}_why')}'>{say(f'scores.{name}')}</span>"


def _method_row(method: MethodResult, text: str | None) -> str:
    if method.not_defined:
        said = say("scores.undefined", reason=escape(method.not_defined))
        reason = f"<td colspan='5' class='gl-reason'>{said}</td>"
        return f"<tr class='{css_class(method.method)}'>{_name(method.method)}{reason}</tr>"
    left = method.residual or Residual(None, None, None)
    cells = [
        three(method.perplexity.get(text)), three(method.damage.get(text)), three(left.held_out), three(left.median),
        count(method.added_parameters),
    ]
    return row(method.method, cells)


def row(method: str, cells: list[str]) -> str:
    """Return one row of a table, headed by the colour and the name of a method or of the original."""
    return f"<tr class='{css_class(method)}'>{_name(method)}" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def _name(method: str) -> str:
    return f"<th scope='row'><i class='gl-swatch'></i>{escape(method_label(method))}</th>"
