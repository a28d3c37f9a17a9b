"""Perplexity, one shot: remove the ``count`` blocks whose removal, each alone, harms the loss least.

Formula: score of block i = mean next-token loss (nats) of the model without block i, on the first ten calibration
windows; the smallest go, contiguous or not. The perplexity is its exponential, so the order is the same. What blocks
do together is not seen. Cost: L + 1 passes over those windows, most of them partial.

Source: Shortened LLaMA (arXiv 2402.02834), PPL importance.
"""

from ghosted.criteria import Evidence, check_count
from ghosted.criteria._perplexity import lowest_losses, perplexity_cost
from ghosted.progress import Steps
from ghosted.results import Choice, Cost

NAME, LABEL, ORDER = "perplexity", "perplexity without it", 40


def cost(evidence: Evidence, count: int) -> Cost:
    """Return L + 1 passes over ten windows."""
    return perplexity_cost(evidence, range(evidence.similarity.blocks))


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` single blocks, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
        ModelError: a loss is not a finite number.
        Cancelled: ``evidence.cancel`` was set.
    """
    check_count(count, evidence.similarity.blocks)
    return (yield from lowest_losses(NAME, evidence, count, range(evidence.similarity.blocks)))
