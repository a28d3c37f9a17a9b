"""What does the layer map get? One JSON text: which blocks go, the numbers of all pairs, and each criterion's choice.

``{"blocks", "gaps", "active", "criterion", "count", "serial", "data"}``. Gaps are inclusive ``[first, last]`` pairs,
``active`` is the one that arrow keys and numbers move. A key that is absent leaves what the map shows as it is;
``data`` is large and comes from here only (see ``assets/layer_map/state.js``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from analysis.speech import say
from ghosted import criteria
from ghosted.errors import InputError
from ghosted.removed import RemovedBlocks
from ghosted.results import Choice, RecoverabilityMap, Run, Similarity

DIGITS = 5
"""Significant digits of a score on its way to the map, which shows three."""


def map_value(blocks: int, removed: RemovedBlocks | None, similarity: Similarity | None = None, **more: Any) -> str:
    """Return the value of a map of ``blocks`` blocks.

    Args:
        blocks: L.
        removed: which of them go; ``None`` leaves the visitor's choice alone.
        similarity: of all pairs of states, where it is known.
        more: further keys, such as ``criterion`` and ``count``; ``ranges`` and ``choice`` belong to ``data``.
    """
    data = map_data(similarity, more.pop("ranges", None), more.pop("choice", None))
    gaps = {} if removed is None else {"gaps": inclusive(removed), "active": 0}
    return json.dumps({"blocks": blocks} | gaps | more | {"data": data})


def found_value(run: Run, choice: bool = True) -> str:
    """Return the value that shows a run; without ``choice`` only its numbers, whatever is chosen by now."""
    numbers = {"ranges": run.ranges, "choice": run.choice}
    if not choice:
        return map_value(run.blocks, None, run.similarity, **numbers)
    chosen = {"criterion": run.experiment.criterion, "count": run.experiment.count}
    return map_value(run.blocks, run.removed, run.similarity, found=True, **chosen, **numbers)


def map_data(
    similarity: Similarity | None, ranges: RecoverabilityMap | None = None, choice: Choice | None = None,
) -> dict[str, Any] | None:
    """Return the numbers of all pairs and the choices; ``None`` where nothing is known yet.

    The ``(L+1, L+1)`` cosine goes as base64 of 16-bit integers (times 10,000), the ``(R,)`` errors of all ranges, by
    start and then by end, as base64 of half floats.
    """
    if similarity is None:
        return None
    data: dict[str, Any] = {
        "cosine": _base64(np.round(np.nan_to_num(similarity.cosine) * 10_000).astype("<i2")),
        "choices": at_hand(similarity), "choice": choice and made(choice),
    }
    if ranges is not None:
        order = np.lexsort((ranges.ends, ranges.starts))
        data |= {name: _base64(np.clip(getattr(ranges, name)[order], 0, 60_000).astype("<f2"))
                 for name in ("before", "after", "left")}
    return data


def at_hand(similarity: Similarity) -> dict[str, dict[str, Any]]:
    """Return what each criterion chooses from the similarities alone, for every count from 1 to L - 1.

    By name: ``per`` (``start`` or ``block``), ``higher``, ``gaps`` by count (``None`` where it cannot remove so many)
    and ``scores``: by count and start, or, per block, the same for every count.
    """
    found = {}
    for name in filter(criteria.reads_similarity, criteria.criteria()):
        choices = [criteria.at_hand(name, similarity, count) for count in range(1, similarity.blocks)]
        some = next((choice for choice in choices if choice is not None), None)
        if some is None:
            continue
        strips = [choice and strip(choice, count) for count, choice in enumerate(choices, 1)]
        last = next(s for s in reversed(strips) if s is not None)
        per_block = last["per"] == "block"
        found[name] = {
            "per": last["per"], "higher": some.higher_is_better, "gaps": [s and s["gaps"] for s in strips],
            "scores": last["scores"] if per_block else [s and s["scores"] for s in strips],
        }
    return found


def made(choice: Choice) -> dict[str, Any]:
    """Return the choice that a run's criterion made, for the count it was asked for."""
    count = RemovedBlocks.parse(choice.remove).count
    return {"criterion": choice.criterion, "count": count} | strip(choice, count)


def strip(choice: Choice, count: int) -> dict[str, Any]:
    """Return a choice with its scores as they are drawn under the map.

    ``per`` is ``start`` where the candidates are runs of ``count`` blocks, ``block`` where they are single ones: then
    ``scores`` has a number for each place from 0 on, ``None`` where it was no candidate. Else it is ``set``, and
    ``sets`` are the candidates as ``{"gaps", "score"}``, best first.
    """
    candidates = [(RemovedBlocks.parse(each.remove), each.score) for each in choice.candidates]
    runs = {len(removed.gaps) == 1 and removed.count for removed, _ in candidates}
    shown = {"gaps": inclusive(RemovedBlocks.parse(choice.remove)), "higher": choice.higher_is_better}
    if runs in ({count}, {1}) and candidates:
        by_place = {removed.gaps[0].start: score for removed, score in candidates}
        scores = [_digits(by_place.get(place)) for place in range(max(by_place) + 1)]
        return shown | {"per": "start" if runs == {count} and count > 1 else "block", "scores": scores}
    ranked = sorted(candidates, key=lambda one: one[1], reverse=choice.higher_is_better)
    sets = [{"gaps": inclusive(removed), "score": _digits(score)} for removed, score in ranked]
    return shown | {"per": "set", "sets": sets or [{"gaps": shown["gaps"], "score": _digits(choice.score)}]}


def inclusive(removed: RemovedBlocks) -> list[list[int]]:
    """Return gaps as inclusive pairs."""
    return [[gap.start, gap.stop - 1] for gap in removed.gaps]


def read(value: Any) -> dict[str, Any]:
    """Return what the map's script has written, checked: it comes from a browser.

    Raises:
        InputError: it is something else.
    """
    try:
        now = json.loads(value)
        gaps = [(first, last) for first, last in now["gaps"]]
        sound = all(type(end) is int for gap in gaps for end in gap) and isinstance(now.get("active", 0), int)
        RemovedBlocks.parse(",".join(f"{first}-{last}" for first, last in gaps))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(say("refused.map")) from error
    if not sound:
        raise InputError(say("refused.map"))
    return now


def removed_of(gaps: Iterable[Iterable[int]]) -> RemovedBlocks:
    """Return what inclusive pairs remove."""
    return RemovedBlocks.of(block for first, last in gaps for block in range(first, last + 1))


def _digits(score: float | None) -> float | None:
    return None if score is None or not np.isfinite(score) else float(f"{score:.{DIGITS}g}")


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()
