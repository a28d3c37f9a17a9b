"""The blocks are chosen by hand: on the layer map, or with ``--remove``."""

from ghosted.criteria import Evidence
from ghosted.errors import InputError
from ghosted.results import Choice

NAME, LABEL, ORDER = "manual", "chosen by hand", 0


def choose(evidence: Evidence, count: int) -> Choice:
    """Refuse: there is nothing to compute.

    Raises:
        InputError: always; ``remove`` names the blocks.
    """
    raise InputError("The criterion manual chooses nothing; name the blocks with --remove, or take cosine.")
