"""Penn Treebank as used for language models (Marcus et al. 1993; Mikolov et al. 2010), from the Hub.

The dataset's loading script is dead; its parquet conversion, made by the Hub itself, is read instead.
"""

from __future__ import annotations

from ghosted.progress import Steps
from ghosted.texts import Text
from ghosted.texts._hub import Dataset, read_dataset

NAME = "ptb"
LABEL = "Penn Treebank"
NOTE = "Newspaper sentences in lower case with rare words as <unk>. From the Hub."
NEEDS_NETWORK = True

DATASET = Dataset(
    NAME, "ptb-text-only/ptb_text_only", revision="refs/convert/parquet", field="sentence", joint=" ",
    splits={"train": "train", "test": "test"},
    data_files={"train": "penn_treebank/train/*.parquet", "test": "penn_treebank/test/*.parquet"},
)


def read(**settings: object) -> Steps[Text]:
    """Return a split as one text, its sentences joined by spaces."""
    return (yield from read_dataset(DATASET, **settings))
