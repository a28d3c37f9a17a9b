"""What do the page's words mean? A definition beside each term that is pointed at, and all of them on one sheet."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from analysis.words import said

FILE = Path(__file__).parents[1] / "assets" / "glossary.json"
SHEET = Path(__file__).parents[1] / "assets" / "cheat_sheet" / "sheet.css"
FORMULAS = (
    ("W* = I + X_pre⁺ Δ", "ghosted"), ("W = Q diag(d) Qᵀ", "LinearPatch"), ("x̂ = x − a + a T", "ReplaceMe"),
    ("W = S + A, S = (W + Wᵀ)/2, A = (W − Wᵀ)/2", ""), ("‖X̂ − X_post‖ / ‖Δ‖", "boundary error"),
    ("ln(perplexity / perplexity of the original)", "damage"),
)
_MARK = re.compile(r"\[\[([^\[\]|]+)(?:\|([^\[\]]+))?\]\]")


@dataclass(frozen=True)
class Term:
    """A word by language, and what it means by language."""

    word: Mapping[str, str]
    means: Mapping[str, str]


@cache
def terms() -> dict[str, Term]:
    """Return all terms by their English name."""
    data = json.loads(FILE.read_text("utf-8"))
    return {name: Term({"en": each["en"], "de": each["de"]}, each["means"]) for name, each in data.items()}


def explained(text: str, language: str) -> str:
    """Return a text whose marks ``[[term]]`` or ``[[term|as it stands here]]`` show their meaning.

    The title, all that Markdown lets through, is taken over by ``assets/terms.js``: for touch and keys, too.

    Raises:
        KeyError: a mark names no term.
    """

    def marked(found: re.Match[str]) -> str:
        term = terms()[found[1]]
        return (f"<span class='gl-term' tabindex='0' role='button' title='{escape(term.means[language])}'>"
                f"{found[2] or term.word[language]}</span>")

    return _MARK.sub(marked, text)


def sheet(language: str) -> str:
    """Return the cheat sheet: one self-contained HTML page that prints on one sheet of paper."""
    rows = "".join(f"<dt>{escape(term.word[language])}</dt><dd>{escape(term.means[language])}</dd>"
                   for term in terms().values())
    formulas = "".join(f"<li><code>{escape(formula)}</code>{f' {escape(name)}' if name else ''}</li>"
                       for formula, name in FORMULAS)
    title = said("sheet", language)
    return (
        f"<!doctype html><html lang='{language}'><meta charset='utf-8'><title>{title}</title>"
        f"<style>{SHEET.read_text('utf-8')}</style><h1>{title}</h1><ul>{formulas}</ul><dl>{rows}</dl></html>"
    )
