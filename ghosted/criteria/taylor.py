"""Taylor: remove the ``count`` blocks whose weights, set to zero, would change the loss least, to first order.

Formula: score of block i = Σ over its parameters w of |w · ∂loss/∂w|, the loss being the mean next-token loss on the
first ten calibration windows; the smallest go, contiguous or not. Cost: ten windows forward, the blocks once more, and
the way back; the gradients of one block at a time.

Source: Shortened LLaMA (arXiv 2402.02834), Taylor importance; its code, too, sums the gradient over the samples first.
"""

from ghosted.criteria import Evidence, check_count
from ghosted.criteria._taylor import lowest_taylor, taylor_cost
from ghosted.progress import Steps
from ghosted.results import Choice, Cost

NAME, LABEL, ORDER = "taylor", "Taylor (gradients)", 30


def cost(evidence: Evidence, count: int) -> Cost:
    """Return three or four passes over ten windows, and the memory that the gradients take."""
    return taylor_cost(evidence, range(evidence.similarity.blocks))


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` single blocks, 1 ≤ count < L.

    Raises:
        InputError: ``count`` leaves no block, or is below 1.
        ModelError: a gradient is not a finite number.
        Cancelled: ``evidence.cancel`` was set.
    """
    check_count(count, evidence.similarity.blocks)
    return (yield from lowest_taylor(NAME, evidence, count, range(evidence.similarity.blocks)))
