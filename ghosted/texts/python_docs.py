"""The language reference that ships with Python: real English prose, on every machine, without a network."""

from __future__ import annotations

from ghosted.progress import Progress, Steps
from ghosted.texts import Text

NAME = "python-docs"
LABEL = "Python's own reference"
NOTE = "The topics of pydoc; works offline. Its words differ a little from one Python version to the next."
NEEDS_NETWORK = False


def read(**_: object) -> Steps[Text]:
    """Return all topics, in the order of their names.

    Raises:
        TextError: this Python was packaged without them.
    """
    from ghosted.errors import TextError

    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise TextError("This Python ships without its topics; give the path of a .txt file instead.") from error
    yield Progress("reading the text", 1, 1)
    return Text.of("\n\n".join(topics[name].strip() for name in sorted(topics)), NAME)
