"""Perplexity+: as ``perplexity``, but the first four and the last two blocks stay.

Formula, source and cost: see :mod:`ghosted.criteria.perplexity`; blocks that stay are not scored.
"""

from ghosted.criteria import Evidence, check_count
from ghosted.criteria._inner_blocks import inner_blocks
from ghosted.criteria._perplexity import lowest_losses, perplexity_cost
from ghosted.progress import Steps
from ghosted.results import Choice, Cost

NAME, LABEL, ORDER = "perplexity+", "perplexity without it, outer blocks stay", 42


def allowed(count: int, blocks: int) -> range:
    """Return the blocks that may go; raises ``InputError`` where these are fewer than ``count``."""
    return inner_blocks(NAME, count, blocks)


def cost(evidence: Evidence, count: int) -> Cost:
    """Return L − 5 passes over ten windows; raises ``InputError`` where too few blocks may go."""
    return perplexity_cost(evidence, allowed(count, evidence.similarity.blocks))


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` single blocks, none of the first four and last two.

    Raises:
        InputError: fewer than ``count`` blocks may go.
        ModelError: a loss is not a finite number.
        Cancelled: ``evidence.cancel`` was set.
    """
    check_count(count, evidence.similarity.blocks)
    inner = allowed(count, evidence.similarity.blocks)
    return (yield from lowest_losses(NAME, evidence, count, inner))
