"""Which blocks may go where the outer ones are known to matter? The ``+`` rule: the first four and last two stay.

Source: Shortened LLaMA (arXiv 2402.02834), Taylor+ and PPL.
"""

from ghosted.errors import InputError

FIRST, LAST = 4, 2


def inner_blocks(name: str, count: int, blocks: int) -> range:
    """Return the blocks that the criterion ``name`` may remove from a model of ``blocks`` blocks.

    Raises:
        InputError: these are fewer than ``count``.
    """
    inner = range(FIRST, max(FIRST, blocks - LAST))
    if count > len(inner):
        raise InputError(
            f"The criterion {name} keeps the first {FIRST} and the last {LAST} of these {blocks} blocks, so at most "
            f"{len(inner)} can go, not {count}; take {name.removesuffix('+')} or a smaller count."
        )
    return inner
