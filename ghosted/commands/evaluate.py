"""``evaluate``: the papers' numbers for the original and every repair: perplexity, tasks, speed, probe."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.commands.compare import number
from ghosted.evaluation import Plan, evaluate
from ghosted.progress import drain
from ghosted.results.evidence import protocol_sentence

HELP = "score repairs as the papers do: perplexity on whole texts, zero-shot tasks, speed, a behaviour probe"
ORDER = 35


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, (*flags.MODEL, *flags.BLOCKS, *flags.REPAIR, *flags.CALIBRATION, "evaluate"))
    add_scoring(parser)
    parser.add_argument("--speed", action="store_true", help="measure sizes, prefill and decoding speed")
    parser.add_argument("--probe", action="store_true", help="run the behaviour probe")


def add_scoring(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how texts and tasks are scored."""
    parser.add_argument("--evaluation-window", type=int, metavar="N",
                        help="tokens per scored window (default 2,048 or the model's context)")  # fmt: skip
    parser.add_argument("--stride", type=int, metavar="N", help="from one window to the next (default: no overlap)")
    parser.add_argument("--windows", dest="most_windows", type=int, metavar="N",
                        help="score only so many windows of each text (default: all)")  # fmt: skip
    parser.add_argument("--tasks", type=flags.names, default=[], metavar="A,B",
                        help="tasks: ARC-c, ARC-e, BoolQ, HellaSwag, PIQA, WinoGrande, WSC273, RACE-h, COPA, or any "
                             "name of the harness")  # fmt: skip
    parser.add_argument("--limit", type=int, metavar="N", help="items per task (default: all)")
    parser.add_argument("--include-path", action="append", default=[], metavar="DIR", help="folder with task files")


def plan_from(args: argparse.Namespace) -> Plan:
    """Build the plan from parsed flags; raises :class:`~ghosted.errors.InputError`."""
    return Plan(
        window=args.evaluation_window, stride=args.stride, windows=args.most_windows, tasks=tuple(args.tasks),
        limit=args.limit, include_path=tuple(args.include_path), speed=getattr(args, "speed", False),
        probe=getattr(args, "probe", False),
    )


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Fit and score.

    Raises:
        InputError: neither blocks nor a criterion were named.
    """
    flags.require_blocks(args)
    return drain(evaluate(flags.experiment_from(args), plan_from(args)), on_event).to_json()


def table(payload: dict[str, Any]) -> str:
    """Return one line per model, as the papers print it, and the protocols beneath."""
    texts = payload["protocol"]["texts"]
    tasks = list(payload["dense"]["tasks"])
    heads = [f"text {i}" if len(texts) > 1 else "perplexity" for i in range(1, len(texts) + 1)]
    heads += ["bits/byte"] if len(texts) == 1 else []
    heads += [*tasks, "average", "retained"] if tasks else []
    heads += ["probe", "repetition"] if "probe" in payload["dense"] else []
    lines = [f"{payload['model']}, removed {payload['experiment']['remove'] or 'nothing'}", ""]
    lines.append(f"{'method':<18}" + "".join(f"{head[:15]:>16}" for head in heads))
    for row in [{"method": "dense"} | payload["dense"], *payload["methods"]]:
        if "not_defined" in row:
            lines.append(f"{row['method']:<18}not defined: {row['not_defined']}")
            continue
        lines.append(f"{row['method']:<18}" + "".join(f"{cell:>16}" for cell in _cells(row, list(texts), tasks)))
    heads = [f"text {i}: " if len(texts) > 1 else "" for i in range(1, len(texts) + 1)]
    lines += ["", *(head + protocol_sentence(p) for head, p in zip(heads, texts.values(), strict=True))]
    if tasks:
        about = payload["protocol"]["tasks"]
        limit = f"first {about['limit']} items of each" if about["limit"] else "all items"
        lines.append(f"tasks: accuracy ± standard error, {limit}, {about['harness']}; retained: average in % of dense")
    if payload["speed"]:
        lines += ["", *_speed(payload["speed"])]
    return "\n".join([*lines, *(f"! {w}" for w in payload["warnings"])])


def _cells(row: dict[str, Any], texts: list[str], tasks: list[str]) -> list[str]:
    perplexity = row["perplexity"] if len(texts) > 1 else {text: row["perplexity"] for text in texts}
    cells = [number(perplexity[text]) for text in texts]
    cells += [number(row["bits_per_byte"])] if len(texts) == 1 else []
    for task in tasks:
        one = row["tasks"][task]
        cells.append(number(one["acc"]) + (f" ± {one['stderr']:.2g}" if one["stderr"] is not None else ""))
    if tasks:
        cells += [number(row["average"]), "–" if row["retained"] is None else f"{row['retained']:.1f} %"]
    if "probe" in row:
        cells += [number(row["probe"]["accuracy"]), number(row["probe"]["repetition"])]
    return cells


def _speed(speed: dict[str, Any]) -> list[str]:
    lines = [f"{'speed':<18}{'parameters':>14}{'MB':>9}{'prefill tok/s':>15}{'decode tok/s':>14}{'prefill ×':>22}"]
    for name, one in speed["models"].items():
        low, high = one["prefill_ratio_spread"]
        lines.append(
            f"{name:<18}{one['parameters']:>14,}{one['bytes'] / 1e6:>9.0f}{one['prefill']:>15.0f}{one['decode']:>14.1f}"
            f"{one['prefill_ratio']:>9.2f} ({low:.2f}–{high:.2f})"
        )
    if (pair := speed.get("ghosted_over_linearpatch")) is not None:
        low, high = pair["spread"]
        lines.append(f"seconds of ghosted over linearpatch: {pair['ratio']:.3f} ({low:.3f} to {high:.3f})")
    if (own := speed.get("operator")) is not None:
        lines.append(f"one operator alone: {own['prefill_us_per_token']:.2f} µs per token in a prefill, "
                     f"{own['decode_us']:.0f} µs per decoding step")  # fmt: skip
    return lines
