"""Cosine similarity: remove the run of ``count`` blocks whose entering and leaving states are most alike.

Formula: score of start i = mean over tokens of cos(state i, state i + n); the largest wins. Cost: one forward pass.

Source: LLM-Streamline (arXiv 2403.19135), cosine per token.
"""

import numpy as np

from ghosted.criteria import check_count
from ghosted.removed import gap_name
from ghosted.results import Candidate, Choice, Similarity

NAME, LABEL, ORDER = "cosine", "cosine similarity", 10


def choose(similarity: Similarity, count: int) -> Choice:
    """Choose ``count`` contiguous blocks.

    Args:
        similarity: of all pairs of states.
        count: blocks to remove, 1 ≤ count < L.

    Returns:
        The choice. It is a near tie when the margin to the runner-up is inside the spread over texts: at most one
        standard deviation, over groups of windows, of the difference between the two scores.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
    """
    check_count(count, similarity.blocks)
    scores = np.diagonal(similarity.cosine, offset=count)
    order = np.argsort(-scores, kind="stable")
    names = [gap_name(range(i, i + count)) for i in range(len(scores))]
    candidates = tuple(Candidate(name, float(s)) for name, s in zip(names, scores, strict=True))
    runner_up, near_tie = None, False
    best = int(order[0])
    if len(order) > 1:
        second = int(order[1])
        runner_up = candidates[second]
        by_text = np.diagonal(similarity.by_text, offset=count, axis1=1, axis2=2)
        spread = float(np.std(by_text[:, best] - by_text[:, second]))
        near_tie = bool(scores[best] - scores[second] <= spread)
    return Choice(NAME, names[best], float(scores[best]), True, runner_up, near_tie, candidates)
