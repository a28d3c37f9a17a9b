"""``compare``: errors, damage and perplexity of several repairs of the same gap, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ghosted import flags
from ghosted.progress import drain
from ghosted.results.evidence import protocol_sentence
from ghosted.run import compare_json
from ghosted.run import run as run_experiment

HELP = "compare repairs of the same gap: boundary error and perplexity"
ORDER = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's flags."""
    flags.add_flags(parser, (*flags.MODEL, *flags.BLOCKS, *flags.REPAIR, *flags.CALIBRATION, *flags.SCORING))


def run(args: argparse.Namespace, on_event: Callable[[Any], None]) -> dict[str, Any]:
    """Run the experiment without generation.

    Raises:
        InputError: neither blocks nor a criterion were named.
    """
    flags.require_blocks(args)
    finished = drain(run_experiment(flags.experiment_from(args), parts=("boundary", "scores")), on_event)
    return compare_json(finished)


def table(payload: dict[str, Any]) -> str:
    """Return one line per method, a pair of columns per scored text, the protocols beneath."""
    dense = _by_text(payload["dense"]["perplexity"])
    several = len(dense) > 1
    lines = [f"removed {payload['experiment']['remove'] or 'nothing'}"]
    lines += [f"dense perplexity{f' on {t}' if several else ''} {number(x)}" for t, x in dense.items()]
    names = [f"text {i}" if several else "perplexity" for i in range(1, len(dense) + 1)]
    heads = ["calibration", "held-out", "median", *(h for name in names for h in (name, "damage")), "added"]
    lines += ["", f"{'method':<18}" + "".join(f"{head:>12}" for head in heads)]
    for m in payload["methods"]:
        if "not_defined" in m:
            lines.append(f"{m['method']:<18}not defined: {m['not_defined']}")
            continue
        r, perplexity, damage = m["residual"] or {}, _by_text(m["perplexity"]), _by_text(m["damage"])
        cells = [number(r.get(k)) for k in ("calibration", "held_out", "median")]
        cells += [number(values.get(t)) for t in dense for values in (perplexity, damage)]
        lines.append(f"{m['method']:<18}" + "".join(f"{c:>12}" for c in (*cells, f"{m['added_parameters']:,}")))
    lines += [_distilled(m) for m in payload["methods"] if "distill" in m]
    keys = [f"text {i}: " if several else "" for i in range(1, len(dense) + 1)]
    protocols = [key + line for key, line in zip(keys, _protocols(payload["protocol"]), strict=True)]
    return "\n".join([*lines, "", *protocols, *(f"! {w}" for w in payload["warnings"])])


def _distilled(m: dict[str, Any]) -> str:
    d = m["distill"]
    return (
        f"{m['method']}: {d['steps']} steps of distillation in {d['seconds']:.0f} s, held-out KL "
        f"{number(d['kl_before'])} → {number(d['kl_after'])} nats per token (best after step {d['best_step']})"
    )


def _by_text(values: Any) -> dict[str, Any]:
    return values if isinstance(values, dict) else {"": values}


def number(value: float | None) -> str:
    """Return a number in three significant digits, or a dash."""
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.4g}"


def _protocols(protocol: dict[str, Any]) -> list[str]:
    several = protocol.values() if "text" not in protocol else [protocol]
    return [protocol_sentence(p) for p in several]
