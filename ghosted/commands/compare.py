"""``compare``: errors, damage and perplexity of several repairs of the same gap, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.progress import drain
from ghosted.run import compare_json
from ghosted.run import run as run_experiment

HELP = "compare repairs of the same gap: boundary error and perplexity"
ORDER = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, (*flags.MODEL, *flags.BLOCKS, *flags.REPAIR, *flags.CALIBRATION, *flags.SCORING))


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Run the experiment without generation."""
    finished = drain(run_experiment(flags.experiment_from(args), parts=("boundary", "scores")), on_event)
    return compare_json(finished)


def table(payload: dict[str, Any]) -> str:
    """Return one line per method, the protocol beneath."""
    lines = [
        f"removed {payload['experiment']['remove'] or 'nothing'}",
        f"dense perplexity {_text(payload['dense']['perplexity'])}",
        "",
        f"{'method':<18}{'calibration':>12}{'held-out':>10}{'median':>9}{'perplexity':>14}{'damage':>9}{'added':>10}",
    ]
    for m in payload["methods"]:
        if "not_defined" in m:
            lines.append(f"{m['method']:<18}not defined: {m['not_defined']}")
            continue
        r = m["residual"] or {}
        numbers = [_text(r.get(k)) for k in ("calibration", "held_out", "median")]
        lines.append(
            f"{m['method']:<18}{numbers[0]:>12}{numbers[1]:>10}{numbers[2]:>9}"
            f"{_text(m['perplexity']):>14}{_text(m['damage']):>9}{m['added_parameters']:>10,}"
        )
    return "\n".join([*lines, "", *_protocols(payload["protocol"]), *(f"! {w}" for w in payload["warnings"])])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(_text(v) for v in value.values())
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.4g}"


def _protocols(protocol: dict[str, Any]) -> list[str]:
    several = protocol.values() if "text" not in protocol else [protocol]
    return [
        f"perplexity on {p['text']}: {p['windows']} windows of {p['window']}, stride {p['stride']}, "
        f"{p['tokens_scored']:,} tokens scored, {'BOS' if p['bos'] else 'no BOS'}, {p['dtype']}"
        f"{', same source as the calibration text' if p['same_source'] else ''}"
        for p in several
    ]
