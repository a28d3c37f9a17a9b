"""What does a stranger have to know about an exported model? Its card: recipe, numbers with their protocol, licence."""

from __future__ import annotations

import json

from ghosted.ghost import Ghost, Numbers
from ghosted.results.evidence import protocol_sentence

_SPDX = {"Apache-2.0": "apache-2.0", "MIT": "mit"}
_LOADS = {
    "adapter": """```python
import ghosted

model = ghosted.load("{where}"{base})
```

The base model is read first; the repaired one shares its weights.""",
    "checkpoint": """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{where}", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("{where}", trust_remote_code=True)
```

`trust_remote_code=True` is asked for because transformers has no class for a model with an operator between two
blocks: `modelling_ghosted.py`, {lines} lines, is run. It builds the base architecture's own class and adds one float32
matrix product per gap. The tokenizer has no code; it is asked for there, too, because the configuration is read.
`ghosted.load("{where}")` reads the same weights and runs no code of this folder.""",
    "plain": """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{where}")
tokenizer = AutoTokenizer.from_pretrained("{where}")
```

Nothing but the base model's own architecture is needed: {why}.""",
    "mergekit": """```sh
mergekit-yaml mergekit.yaml OUTPUT
```

This is the plain pruning: the blocks are gone and nothing stands in for them.""",
}

_NOT_ON_HUB = """The base model is not on the Hub: put its folder in the place of its name in `mergekit.yaml`. One is
written by

```python
import ghosted

base = ghosted.load_model("the base model")
base.model.save_pretrained("base")
base.tokenizer.save_pretrained("base")
```"""


def card(ghost: Ghost, lines: int = 0) -> str:
    """Return the card of an export as Markdown.

    Args:
        ghost: its record.
        lines: of the modelling file, where the export has one.
    """
    base, removed = ghost.base, ghost.removed_blocks
    front = ["---", f"license: {_SPDX.get(base.licence, 'other')}"]
    if base.kind == "hub":
        front.append(f"base_model: {json.dumps(base.name)}")
    front += ["library_name: transformers", "pipeline_tag: text-generation", "tags:", "  - ghosted-layers",
              "  - layer-pruning", "---", ""]  # fmt: skip
    label = _line(base.label)
    parts = [
        *front, f"# {label} without blocks {str(removed).replace('-', '–') or '(none)'}, {ghost.method}", "",
        f"{label} ({base.architecture}, {base.blocks} blocks of width {base.width}"
        f"{f', revision {base.revision}' if base.revision else ''}); this one {removed.describe(base.blocks)}. "
        f"Method `{ghost.method}`, made with Ghosted Layers Explorer {ghost.made_by.get('ghosted', '')}.", "",
        "## Loading it", "", _loading(ghost, lines), "", "## Numbers", "", *_table(ghost), "",
        *(f"- {_line(warning)}" for warning in ghost.warnings), "" if ghost.warnings else None,
        "`ghost.json` holds the whole recipe; the same numbers come from the same settings.", "",
        "## Licence", "", f"The licence is that of the base model: {_line(base.licence)}.", "",
    ]
    return "\n".join(part for part in parts if part is not None)


def _loading(ghost: Ghost, lines: int) -> str:
    form = ghost.kind
    if form in ("checkpoint", "merged") and not lines:
        form = "plain"
    by_name = ghost.base.kind in ("hub", "offline")
    if form == "mergekit" and ghost.base.kind != "hub":
        return f"{_LOADS[form]}\n\n{_NOT_ON_HUB}"
    why = "nothing stands in for the blocks" if ghost.method == "none" else "the repair is merged into its weights"
    return _LOADS[form].format(
        where="this folder", base="" if by_name else ', base="the folder of the base model"', lines=lines, why=why
    )


def _table(ghost: Ghost) -> list[str]:
    if not ghost.numbers:
        return ["Nothing was measured."]
    texts = list(ghost.protocols)
    names = [f"perplexity {i}" if len(texts) > 1 else "perplexity" for i in range(1, len(texts) + 1)]
    heads = ["model", "error, calibration", "error, held-out", "median over tokens", *names]
    dense = ["the base model", "", "", "", *(_number(ghost.dense_perplexity.get(text)) for text in texts)]
    rows = [dense] if texts else []
    rows += [_row(numbers, texts) for numbers in ghost.numbers]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    for number, p in enumerate(ghost.protocols.values(), 1):
        which = f"Perplexity {number}" if len(texts) > 1 else "Perplexity"
        lines += ["", f"{protocol_sentence(p | {'text': _line(p['text'])}, which)}."]
    lines += ["", "Error: ‖x̂ − X_post‖ / ‖Δ‖ at the boundary; plain pruning is exactly 1."]
    return lines


def _row(numbers: Numbers, texts: list[str]) -> list[str]:
    errors = [_number(value) for value in (numbers.calibration, numbers.held_out, numbers.median)]
    return [f"`{numbers.method}`", *errors, *(_number(numbers.perplexity.get(text)) for text in texts)]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _line(text: str) -> str:
    """Return text of a file or a folder's name as one line that cannot be Markdown of its own."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)[:300]
    return plain.replace("<", "&lt;").replace("[", "\\[").replace("`", "'").replace("|", "\\|")
