"""C4, English (Raffel et al. 2020), streamed from the Hub: only as much as is needed is fetched."""

from __future__ import annotations

from ghosted.progress import Steps
from ghosted.texts import Text
from ghosted.texts._hub import Dataset, read_dataset

NAME = "c4"
LABEL = "C4 (English)"
NOTE = "Cleaned web pages; calibration takes the first train file, scoring the first validation file. From the Hub."
NEEDS_NETWORK = True
ENDLESS = True

DATASET = Dataset(
    NAME, "allenai/c4", field="text", streaming=True, splits={"train": "train", "test": "validation"},
    data_files={"train": "en/c4-train.00000-of-01024.json.gz", "validation": "en/c4-validation.00000-of-00008.json.gz"},
)


def read(**settings: object) -> Steps[Text]:
    """Return the first documents of a split, joined by blank lines."""
    return (yield from read_dataset(DATASET, **settings))
