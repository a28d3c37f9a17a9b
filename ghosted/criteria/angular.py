"""Angular distance: remove the run of ``count`` blocks that turns each sequence's last state least.

Formula: score of start i = mean over windows of arccos(cos(state i, state i + n))/π on the window's last token; the
smallest wins. Only one token of each window is looked at, and never the sink at its start. Cost: nothing beside the
calibrating pass, which keeps these angles.

Source: Gromov et al., The Unreasonable Ineffectiveness of the Deeper Layers (UIDL, arXiv 2403.17887), equation 5.
"""

import numpy as np

from ghosted.criteria import Evidence, best_run, check_count
from ghosted.results import Choice

NAME, LABEL, ORDER = "angular", "angle at the last token", 14


def choose(evidence: Evidence, count: int) -> Choice:
    """Choose ``count`` contiguous blocks, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
    """
    similarity = evidence.similarity
    check_count(count, similarity.blocks)
    scores = np.diagonal(similarity.angle, offset=count)
    by_text = np.diagonal(similarity.angle_by_text, offset=count, axis1=1, axis2=2)
    return best_run(NAME, count, scores, by_text, higher_is_better=False)
