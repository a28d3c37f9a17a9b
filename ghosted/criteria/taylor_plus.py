"""Taylor+: as ``taylor``, but the first four and the last two blocks stay.

Formula, source and cost: see :mod:`ghosted.criteria.taylor`; the way back ends at block 4.
"""

from ghosted.criteria import Evidence, check_count
from ghosted.criteria._inner_blocks import inner_blocks
from ghosted.criteria._taylor import lowest_taylor, taylor_cost
from ghosted.progress import Steps
from ghosted.results import Choice, Cost

NAME, LABEL, ORDER = "taylor+", "Taylor (gradients), outer blocks stay", 32


def allowed(count: int, blocks: int) -> range:
    """Return the blocks that may go; raises ``InputError`` where these are fewer than ``count``."""
    return inner_blocks(NAME, count, blocks)


def cost(evidence: Evidence, count: int) -> Cost:
    """Return three or four passes over ten windows, and the memory that the gradients take.

    Raises:
        InputError: fewer than ``count`` blocks may go.
    """
    return taylor_cost(evidence, allowed(count, evidence.similarity.blocks))


def choose(evidence: Evidence, count: int) -> Steps[Choice]:
    """Choose ``count`` single blocks, none of the first four and last two.

    Raises:
        InputError: fewer than ``count`` blocks may go.
        ModelError: a gradient is not a finite number.
        Cancelled: ``evidence.cancel`` was set.
    """
    check_count(count, evidence.similarity.blocks)
    inner = allowed(count, evidence.similarity.blocks)
    return (yield from lowest_taylor(NAME, evidence, count, inner))
