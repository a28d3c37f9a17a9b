import dataclasses

import pytest

from ghosted.errors import InputError
from ghosted.experiment import Experiment


def test_defaults_are_those_of_the_design():
    e = Experiment()
    assert (e.model, e.text, e.tokens, e.window, e.ridge, e.seed) == (
        "smollm2-135m", "python-docs", 16_384, 512, 1e-6, 0,
    )
    assert (e.max_new_tokens, e.temperature) == (64, 0.0)


def test_it_is_frozen_and_canonical():
    e = Experiment(remove=" 7, 5–6", methods=("ghosted", "none", "ghosted"))
    assert e.remove == "5-7"
    assert e.methods == ("ghosted", "none")
    with pytest.raises(dataclasses.FrozenInstanceError):
        e.tokens = 3
    assert e.to_json()["methods"] == ["ghosted", "none"]


@pytest.mark.parametrize(
    "bad",
    [
        {"tokens": -5}, {"tokens": 0}, {"tokens": 1.5}, {"window": 1}, {"windows": 0}, {"ridge": -1.0},
        {"ridge": float("nan")}, {"temperature": -0.1}, {"dtype": "float16"}, {"remove": "a-b"}, {"seed": -1},
        {"criterion": "cosine"}, {"batch": 0}, {"max_new_tokens": 0}, {"calibration_window": 1}, {"count": -2},
    ],
)
def test_bad_values_get_one_sentence(bad):
    with pytest.raises(InputError) as caught:
        Experiment(**bad)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
