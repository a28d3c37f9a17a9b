"""Numbers as people read them: three significant digits, and a dash where there is none."""

from __future__ import annotations

import math

MISSING = "–"


def three(value: float | None) -> str:
    """Return three significant digits without an exponent where that stays short: ``0.623``, ``55.6``, ``1,230``."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    if size < -4:
        return f"{value:.2e}"
    return f"{round(value, 2 - size):,.{max(2 - size, 0)}f}"


def count(value: int) -> str:
    """Return a count for reading: ``331,776``, and from ten million on ``135 M``."""
    if value >= 10_000_000:
        return f"{three(value / 1e6)} M" if value < 1e9 else f"{three(value / 1e9)} G"
    return f"{value:,}"


def percent(share: float | None) -> str:
    """Return a share of 1 as percent."""
    return MISSING if share is None or not math.isfinite(share) else f"{three(100 * share)} %"
