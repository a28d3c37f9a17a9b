"""Where is the error? Token by token in its text, by position in the window, by channel, by calibration size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from analysis.figures import profile as figures
from analysis.names import method_label
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record
from analysis.strip import median, sinks, token_strip
from ghosted.results import BoundaryProfile, Run

PART = "boundary"
READING = (
    "The same error, taken apart, on held-out text: 1 is what plain pruning leaves. The deeper a token's tint, the "
    "more of the removed blocks' work is still missing there; a frame marks a sink, a token whose state is so long "
    "that it can decide the error of the whole text."
)
INVITATION = "Press Run: held-out text appears here, every token tinted by the error that a repair leaves."
HERO = "ghosted"
TOKEN = (
    "For each token $t$: $\\|\\hat x_t - x_{\\text{post},t}\\| \\,/\\, \\|\\Delta_t\\|$, where "
    "$\\Delta_t = x_{\\text{post},t} - x_{\\text{pre},t}$ is what the removed blocks did to its state."
)
PICTURES = (
    ("positions", "By position in the window", figures.position_lines,
     "Median over windows of $\\|\\hat x_t - x_{\\text{post},t}\\| \\,/\\, \\|\\Delta_t\\|$ at each position; the "
     "first stands by itself."),
    ("channels", "By channel", figures.channel_lines,
     "$\\sqrt{\\sum_t (\\hat x_{t,c} - x_{\\text{post},t,c})^2} \\,/\\, \\sqrt{\\sum_t \\Delta_{t,c}^2}$ for each "
     "channel $c$."),
    ("sizes", "By calibration size", figures.size_lines,
     "The operator fitted on the first part of the calibration text, measured on the same held-out text."),
)
ASSETS = Path(__file__).parents[2] / "assets"


@dataclass(frozen=True)
class TokensPanel:
    """The panel's components; pictures and their formulas by the names of ``PICTURES``."""

    strip: gr.HTML
    formula: gr.Markdown
    plots: dict[str, gr.Plot]
    formulas: dict[str, gr.Markdown]


def build() -> TokensPanel:
    """Place the panel."""
    parts.heading("Where is the error?", READING)
    strip = gr.HTML(parts.invitation(INVITATION, 240), js_on_load=(ASSETS / "strip.js").read_text("utf-8"),
                    elem_id="gl-strip", apply_default_css=False)
    formula, plots, formulas = parts.formula(TOKEN), {}, {}
    with gr.Row():
        for name, caption, _, said in PICTURES:
            with gr.Column(min_width=280):
                gr.HTML(f"<h3 class='gl-caption'>{caption}</h3>")
                plots[name] = parts.picture(f"profile-{name}", "Press Run with the method ghosted ticked: this picture "
                                            "of the error appears here.", 320)  # fmt: skip
                formulas[name] = parts.formula(said)
    return TokensPanel(strip, formula, plots, formulas)


def show(panel: TokensPanel, record: Record) -> dict[Any, Any]:
    """Show the profile of a record, or say why there is none."""
    run, profile = record.run, record.run.profile
    if profile is None or not profile.methods:
        empty = {panel.strip: parts.invitation(why_none(record), 240), panel.formula: TOKEN}
        empty |= {panel.formulas[name]: said for name, _, _, said in PICTURES}
        return empty | dict.fromkeys(panel.plots.values())
    shown = HERO if HERO in profile.methods else next(reversed(profile.methods))
    updates: dict[Any, Any] = {
        panel.strip: token_strip(profile, shown), panel.formula: f"{TOKEN} {_of_tokens(profile, shown)}{_of_gap(run)}",
    }
    numbers = {"positions": _of_positions(profile, shown), "channels": _of_channels(profile, shown),
               "sizes": _of_sizes(profile)}
    for name, _, draw, said in PICTURES:
        drawn = name != "sizes" or bool(profile.sizes)
        updates[panel.plots[name]] = parts.drawn(draw(profile)) if drawn else None
        updates[panel.formulas[name]] = f"{said} {numbers[name]}"
    return updates


def why_none(record: Record) -> str:
    """Return a sentence on why a record has no profile to show."""
    if not record.run.removed.gaps:
        return "Nothing is removed, so there is no error to place."
    if record.source == "preview":
        return "Press Run: where the error lies is measured on held-out text, which this preview has not read."
    return INVITATION


def _of_tokens(profile: BoundaryProfile, name: str) -> str:
    errors, wide = profile.methods[name].tokens, np.flatnonzero(sinks(profile))
    said = f"For {method_label(name)} the median of these {len(errors):,} tokens is ${three(median(errors))}$"
    if not len(wide):
        return f"{said}; none of them is a sink."
    times = f"${three(float(profile.norms[wide].max() / np.median(profile.norms)))}$"
    number, up_to = ("one sink", "") if len(wide) == 1 else (f"{len(wide)} sinks", "up to ")
    most = max(profile.methods, key=lambda each: np.nan_to_num(profile.methods[each].tokens[wide]).max())
    worst = float(np.nan_to_num(profile.methods[most].tokens[wide]).max())
    return (
        f"{said}; of the {number} among them, {up_to}{times} times as long as the median, it is "
        f"${three(median(errors[wide]))}$. The most error left on a sink is ${three(worst)}$ ({method_label(most)})."
    )


def _of_gap(run: Run) -> str:
    gaps = run.removed.gaps
    if len(gaps) < 2:
        return ""
    return (
        f" All of this panel is about blocks {run.profile.gap.replace('-', '–')}, the first of {len(gaps)} gaps, where "
        "no earlier repair plays a part; the bars at the top are about the last boundary, with all repairs in place."
    )


def _of_positions(profile: BoundaryProfile, name: str) -> str:
    medians = profile.methods[name].positions
    return (
        f"For {method_label(name)}, over {profile.windows} windows: ${three(float(medians[0]))}$ at the first "
        f"position, ${three(median(medians[1:]))}$ at a typical other one."
    )


def _of_channels(profile: BoundaryProfile, name: str) -> str:
    errors, first = profile.methods[name].channels, int(np.argmax(profile.change))
    seen = errors[np.isfinite(errors)]
    if not len(seen):
        return "Here the removed blocks change no channel."
    low, high = np.quantile(seen, (0.05, 0.95))
    return (
        f"For {method_label(name)}: ${three(float(errors[first]))}$ in channel {first}, which the removed blocks "
        f"change most; between ${three(low)}$ and ${three(high)}$ in nine of ten of all {len(errors):,}."
    )


def _of_sizes(profile: BoundaryProfile) -> str:
    if not profile.sizes:
        return profile.no_sizes
    (name, points), *_ = profile.sizes.items()
    least, half, whole = points[0], points[-2], points[-1]
    return (
        f"For {method_label(name)}: ${three(least.held_out)}$ from {least.tokens:,} tokens, "
        f"${three(half.held_out)}$ from {half.tokens:,}, ${three(whole.held_out)}$ from all {whole.tokens:,}, which is "
        f"${three(whole.tokens / len(profile.change))}$ tokens per channel."
    )
