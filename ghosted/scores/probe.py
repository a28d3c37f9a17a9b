"""Does the model still behave like a language model? Short completions of our own, by likelihood, and repetition.

Each item of ``assets/probe.json`` has one right and several wrong continuations of a prompt; the likeliest by mean
log-likelihood per token is the model's answer. Besides, a few prompts are continued greedily, and the share of
three-token sequences that came before is the repetition rate. A second opinion that needs no network.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from ghosted.progress import CancelFlag, Stage, Steps
from ghosted.prompts import encode_prompt

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FILE = Path(__file__).parents[2] / "assets" / "probe.json"
ROWS = 32
WRITTEN = 32
"""Tokens that each greedy continuation has."""
GRAM = 3
KEPT_SHARE = 0.5
"""Red where less than this share of what the original knows above chance is left,"""
MORE_REPETITION = 0.3
"""or where the repetition rate has grown by more than this."""


@dataclass(frozen=True)
class Probe:
    """What the probe found of one model.

    Attributes:
        accuracy: share of items whose right continuation was the likeliest.
        chance: what guessing would give.
        n: items.
        kinds: accuracy by kind of item.
        repetition: mean share of three-token sequences that came before in the same continuation.
        texts: the greedy continuations.
    """

    accuracy: float
    chance: float
    n: int
    kinds: dict[str, float]
    repetition: float
    texts: tuple[str, ...]

    def verdict(self, dense: Probe) -> str:
        """Return one sentence where this model is no longer one, else an empty string.

        Args:
            dense: the original's finding.
        """
        lost = self.accuracy - self.chance < KEPT_SHARE * (dense.accuracy - dense.chance)
        repeats = self.repetition > dense.repetition + MORE_REPETITION
        if not (lost or repeats):
            return ""
        parts = []
        if lost:
            parts.append(f"it answers {self.accuracy:.0%} of {self.n} easy questions, the original "
                         f"{dense.accuracy:.0%}, a guess {self.chance:.0%}")  # fmt: skip
        if repeats:
            parts.append(f"{self.repetition:.0%} of what it writes repeats itself, the original's "
                         f"{dense.repetition:.0%}")  # fmt: skip
        return f"This model is broken: {', and '.join(parts)}."

    def to_json(self, dense: Probe) -> dict[str, Any]:
        """Return plain data, with the verdict beside the original."""
        verdict = self.verdict(dense)
        return asdict(self) | {"texts": list(self.texts), "red": bool(verdict), "verdict": verdict}


@cache
def questions() -> dict[str, Any]:
    """Return the file's ``items`` (``kind``, ``prompt``, ``right``, ``wrong``) and ``greedy`` prompts."""
    return json.loads(FILE.read_text("utf-8"))


def probe(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str = "", cancel: CancelFlag | None = None
) -> Steps[Probe]:
    """Probe one model.

    Args:
        model: the original or a view.
        tokenizer: its tokenizer.
        name: what it is called in the progress.
        cancel: checked between batches.
    """
    items = questions()["items"]
    rows = [
        (number, _row(tokenizer, item["prompt"], end))
        for number, item in enumerate(items) for end in (item["right"], *item["wrong"])
    ]
    # Rows of like length go together; each row's place is kept.
    order = sorted(range(len(rows)), key=lambda i: len(rows[i][1][0]))
    stage = Stage(f"probe, {name}" if name else "probe", len(rows) + WRITTEN, cancel)
    scores = [0.0] * len(rows)
    for start in range(0, len(order), ROWS):
        batch = order[start : start + ROWS]
        for place, found in zip(batch, _mean_log_likelihoods(model, [rows[i][1] for i in batch]), strict=True):
            scores[place] = found
        yield stage.step(len(batch))
    right = _right(items, [number for number, _ in rows], scores)
    ids = yield from _continuations(model, tokenizer, stage)
    kinds = dict.fromkeys(item["kind"] for item in items)
    by_kind = {kind: [r for r, item in zip(right, items, strict=True) if item["kind"] == kind] for kind in kinds}
    return Probe(
        accuracy=sum(right) / len(items), chance=sum(1 / (1 + len(item["wrong"])) for item in items) / len(items),
        n=len(items), kinds={kind: sum(found) / len(found) for kind, found in by_kind.items()},
        repetition=sum(map(repetition, ids)) / len(ids), texts=tuple(tokenizer.decode(row) for row in ids),
    )


def repetition(ids: list[int]) -> float:
    """Return the share of three-token sequences that came before: 0 in varied text, near 1 in a loop."""
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _row(tokenizer: PreTrainedTokenizerBase, prompt: str, end: str) -> tuple[list[int], int]:
    """Return the ids of prompt and continuation, and how many of the last are the continuation's."""
    before, whole = (list(encode_prompt(tokenizer, text).ids) for text in (prompt, prompt + end))
    shared = 0
    while shared < min(len(before), len(whole) - 1) and before[shared] == whole[shared]:
        shared += 1
    return whole, len(whole) - max(shared, 1)


def _mean_log_likelihoods(model: PreTrainedModel, rows: list[tuple[list[int], int]]) -> list[float]:
    """Score a batch; rows are filled up on the right, where a causal model does not look."""
    longest = max(len(ids) for ids, _ in rows)
    filled = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows], device=model.device)
    found = []
    with torch.inference_mode():
        logits = model(input_ids=filled, use_cache=False).logits
        for row, (ids, last) in zip(logits, rows, strict=True):
            targets = torch.tensor(ids[-last:], device=model.device)
            found.append(-F.cross_entropy(row[len(ids) - last - 1 : len(ids) - 1].float(), targets))
        return torch.stack(found).tolist()


def _right(items: list[dict[str, Any]], owners: list[int], scores: list[float]) -> list[bool]:
    by_item: list[list[float]] = [[] for _ in items]
    for owner, found in zip(owners, scores, strict=True):
        by_item[owner].append(found)
    # NaN compares false: a model without finite numbers answers nothing.
    return [all(found[0] > other for other in found[1:]) for found in by_item]


def _continuations(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stage: Stage) -> Steps[list[list[int]]]:
    """Continue the prompts greedily, all in one batch: they are cut to the shortest one's tokens, without a cache."""
    prompts = [list(encode_prompt(tokenizer, text).ids) for text in questions()["greedy"]]
    common = min(map(len, prompts))
    ids = torch.tensor([prompt[:common] for prompt in prompts], device=model.device)
    for _ in range(WRITTEN):
        with torch.inference_mode():
            logits = model(input_ids=ids, use_cache=False).logits[:, -1]
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        yield stage.step()
    return ids[:, common:].tolist()
