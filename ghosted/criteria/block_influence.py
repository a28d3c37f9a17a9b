"""Block influence: remove the ``count`` blocks that turn the state least, wherever they stand.

Formula: BI of block i = 1 − mean over tokens of cos(state i, state i + 1); the smallest go, contiguous or not. Each
block is judged alone, next to the states that the unpruned model gives it. Cost: nothing beside the calibrating pass.

Source: ShortGPT (arXiv 2403.03853), equation 1.
"""

import numpy as np

from ghosted.criteria import Evidence, check_count, lowest_blocks
from ghosted.results import Choice

NAME, LABEL, ORDER = "block-influence", "block influence", 20


def choose(evidence: Evidence, count: int) -> Choice:
    """Choose ``count`` single blocks, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
    """
    similarity = evidence.similarity
    check_count(count, similarity.blocks)
    by_text = 1.0 - np.diagonal(similarity.by_text, offset=1, axis1=1, axis2=2)
    return lowest_blocks(NAME, count, similarity.block_influence, by_text)
