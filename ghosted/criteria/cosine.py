"""Cosine similarity: remove the run of ``count`` blocks whose entering and leaving states are most alike.

Formula: score of start i = mean over tokens of cos(state i, state i + n); the largest wins. Cost: one forward pass.

Source: LLM-Streamline (arXiv 2403.19135), cosine per token.
"""

import numpy as np

from ghosted.criteria import Evidence, best_run, check_count
from ghosted.results import Choice

NAME, LABEL, ORDER = "cosine", "cosine similarity", 10


def choose(evidence: Evidence, count: int) -> Choice:
    """Choose ``count`` contiguous blocks, 1 ≤ count < L, from the similarity of all pairs of states.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
    """
    similarity = evidence.similarity
    check_count(count, similarity.blocks)
    scores = np.diagonal(similarity.cosine, offset=count)
    by_text = np.diagonal(similarity.by_text, offset=count, axis1=1, axis2=2)
    return best_run(NAME, count, scores, by_text, higher_is_better=True)
