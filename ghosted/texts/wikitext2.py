"""WikiText-2 (Merity et al. 2016), raw, from the Hub: the usual text of perplexities in pruning papers."""

from __future__ import annotations

from ghosted.progress import Steps
from ghosted.texts import Text
from ghosted.texts._hub import Dataset, read_dataset

NAME = "wikitext2"
LABEL = "WikiText-2 (raw)"
NOTE = "Wikipedia articles; calibration takes the train split, scoring the test split. From the Hub."
NEEDS_NETWORK = True

DATASET = Dataset(
    NAME, "Salesforce/wikitext", config="wikitext-2-raw-v1", field="text", splits={"train": "train", "test": "test"}
)


def read(**settings: object) -> Steps[Text]:
    """Return a split as one text, its lines joined by blank lines (as GPTQ and its successors do)."""
    return (yield from read_dataset(DATASET, **settings))
