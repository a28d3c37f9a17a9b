"""Where is the error? Token by token in its text, by position in the window, by channel, by calibration size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
import numpy as np

from analysis.figures import profile as figures
from analysis.names import method_label
from analysis.numbers import three
from analysis.panels import parts
from analysis.record import Record
from analysis.scripts import script
from analysis.speech import say
from analysis.strip import median, sinks, token_strip
from ghosted.results import BoundaryProfile, Run

PART = "boundary"
HERO = "ghosted"
ERROR = "$\\|\\hat x_t - x_{\\text{post},t}\\| \\,/\\, \\|\\Delta_t\\|$"
DELTA = "$\\Delta_t = x_{\\text{post},t} - x_{\\text{pre},t}$"
CHANNEL = "$\\sqrt{\\sum_t (\\hat x_{t,c} - x_{\\text{post},t,c})^2} \\,/\\, \\sqrt{\\sum_t \\Delta_{t,c}^2}$"
PICTURES = (
    ("positions", figures.position_lines, ERROR), ("channels", figures.channel_lines, CHANNEL),
    ("sizes", figures.size_lines, ""),
)
"""The pictures: their name, what draws them, and the error they show."""


@dataclass(frozen=True)
class TokensPanel:
    """The panel's components; pictures and their formulas by the names of ``PICTURES``."""

    strip: gr.HTML
    formula: gr.Markdown
    plots: dict[str, gr.Plot]
    formulas: dict[str, gr.Markdown]


def build() -> TokensPanel:
    """Place the panel."""
    parts.heading("tokens")
    strip = parts.invited("tokens.invitation", 240, js_on_load=script("strip", words="strip."), elem_id="gl-strip",
                          apply_default_css=False)
    formula, plots, formulas = parts.formula(of_token), {}, {}
    with gr.Row():
        for name, _, error in PICTURES:
            with gr.Column(min_width=280):
                parts.caption(f"tokens.{name}")
                plots[name] = parts.picture(f"profile-{name}", "tokens.picture", 320)
                formulas[name] = parts.formula(partial(of_picture, name, error))
    return TokensPanel(strip, formula, plots, formulas)


def of_token() -> str:
    """Return what a token's error is."""
    return say("tokens.formula", error=ERROR, delta=DELTA)


def of_picture(name: str, error: str) -> str:
    """Return what a picture shows."""
    return say(f"tokens.{name}_formula", error=error)


def show(panel: TokensPanel, record: Record) -> dict[Any, Any]:
    """Show the profile of a record, or say why there is none."""
    run, profile = record.run, record.run.profile
    if profile is None or not profile.methods:
        empty = {panel.strip: parts.invitation(why_none(record), 240), panel.formula: of_token()}
        empty |= {panel.formulas[name]: of_picture(name, error) for name, _, error in PICTURES}
        return empty | dict.fromkeys(panel.plots.values())
    shown = HERO if HERO in profile.methods else next(reversed(profile.methods))
    updates: dict[Any, Any] = {
        panel.strip: token_strip(profile, shown),
        panel.formula: f"{of_token()} {_of_tokens(profile, shown)}{_of_gap(run)}",
    }
    numbers = {"positions": _of_positions(profile, shown), "channels": _of_channels(profile, shown),
               "sizes": _of_sizes(profile)}
    for name, draw, error in PICTURES:
        drawn = name != "sizes" or bool(profile.sizes)
        updates[panel.plots[name]] = parts.drawn(draw(profile)) if drawn else None
        updates[panel.formulas[name]] = f"{of_picture(name, error)} {numbers[name]}"
    return updates


def why_none(record: Record) -> str:
    """Return a sentence on why a record has no profile to show."""
    if not record.run.removed.gaps:
        return say("tokens.none_removed")
    if record.source == "preview":
        return say("tokens.preview")
    return say("tokens.invitation")


def _of_tokens(profile: BoundaryProfile, name: str) -> str:
    errors, wide = profile.methods[name].tokens, np.flatnonzero(sinks(profile))
    said = say("tokens.median", method=method_label(name), count=f"{len(errors):,}",
               median=f"${three(median(errors))}$")
    if not len(wide):
        return say("tokens.no_sink", median=said)
    times = f"${three(float(profile.norms[wide].max() / np.median(profile.norms)))}$"
    most = max(profile.methods, key=lambda each: np.nan_to_num(profile.methods[each].tokens[wide]).max())
    worst = float(np.nan_to_num(profile.methods[most].tokens[wide]).max())
    return say(
        "tokens.one_sink" if len(wide) == 1 else "tokens.sinks", median=said, count=len(wide), times=times,
        sinks=f"${three(median(errors[wide]))}$", worst=f"${three(worst)}$", method=method_label(most),
    )


def _of_gap(run: Run) -> str:
    gaps = run.removed.gaps
    if len(gaps) < 2:
        return ""
    return say("tokens.gap", blocks=run.profile.gap.replace("-", "–"), count=len(gaps))


def _of_positions(profile: BoundaryProfile, name: str) -> str:
    medians = profile.methods[name].positions
    return say("tokens.of_positions", method=method_label(name), windows=profile.windows,
               first=f"${three(float(medians[0]))}$", others=f"${three(median(medians[1:]))}$")


def _of_channels(profile: BoundaryProfile, name: str) -> str:
    errors, first = profile.methods[name].channels, int(np.argmax(profile.change))
    seen = errors[np.isfinite(errors)]
    if not len(seen):
        return say("tokens.no_channel")
    low, high = np.quantile(seen, (0.05, 0.95))
    return say("tokens.of_channels", method=method_label(name), most=f"${three(float(errors[first]))}$", channel=first,
               low=f"${three(low)}$", high=f"${three(high)}$", count=f"{len(errors):,}")


def _of_sizes(profile: BoundaryProfile) -> str:
    if not profile.sizes:
        return profile.no_sizes
    (name, points), *_ = profile.sizes.items()
    least, half, whole = points[0], points[-2], points[-1]
    return say(
        "tokens.of_sizes", method=method_label(name), least=f"${three(least.held_out)}$",
        least_tokens=f"{least.tokens:,}", half=f"${three(half.held_out)}$", half_tokens=f"{half.tokens:,}",
        whole=f"${three(whole.held_out)}$", tokens=f"{whole.tokens:,}",
        each=f"${three(whole.tokens / len(profile.change))}$",
    )
