"""CASES 16 and 19: states past the range of float16, and memory that does not follow the length of the text."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import build, config_of, tokenizer

from ghosted import operators
from ghosted.calibration import calibrate
from ghosted.errors import InputError, ModelError
from ghosted.experiment import Experiment
from ghosted.models import LoadedModel
from ghosted.progress import drain
from ghosted.texts import pack

NEEDS = frozenset({"state", "state_weighted", "normalised", "feed_forward", "ratios"})
GROWTH = """
import resource, sys
sys.path[:0] = sys.argv[3:]
from test_memory import calibrated
calibrated(int(sys.argv[1]), int(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def windows(tokens, seed=1):
    ids = torch.randint(0, 250, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    return pack(ids, start=0, tokens=tokens, window=125, bos_id=None, text="random", digest=str(seed))


def calibrated(tokens, store_bytes):
    """One pass of a model of 6 blocks and width 256: seven states of a token are 7 KB."""
    torch.set_num_threads(1)
    model = build(config_of("llama", hidden_size=256, intermediate_size=256))
    loaded = LoadedModel.of(model, tokenizer())
    return drain(calibrate(
        loaded, windows(tokens), windows(250, 2), (range(2, 4),), NEEDS, batch=4, store_bytes=store_bytes
    ))


def peak_kilobytes(tokens, store_bytes=0):
    tests = Path(__file__).parent
    command = [sys.executable, "-c", GROWTH, str(tokens), str(store_bytes), str(tests), str(tests.parent)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_case_19_streamed_moments_need_no_more_memory_for_ten_times_the_text():
    assert peak_kilobytes(20_000) - peak_kilobytes(2_000) < 16 * 1024


def test_case_19_kept_states_never_pass_their_bound():
    bound = 20 * 2**20
    found = calibrated(6_000, bound)  # its states would be 43 MB
    kept = found.stores["calibration"]
    assert 0 < len(kept) < len(found.splits["calibration"])
    assert sum(store.bytes for store in found.stores.values()) <= bound
    assert kept.bytes == sum(window.nbytes for window in kept._windows)


def huge(dtype, factor):
    """A model whose second block pushes the states beyond ``factor``."""
    model = build(config_of("llama"))
    model.model.layers[1].mlp.down_proj.weight.mul_(factor)
    return LoadedModel.of(model.to(dtype), tokenizer())


def test_case_16_states_past_the_range_of_float16_stay_finite_in_what_is_offered():
    with pytest.raises(InputError, match="choose one of auto, float32, bfloat16"):
        Experiment(dtype="float16")
    found = drain(calibrate(huge(torch.bfloat16, 1e6), windows(500), windows(250, 2), (range(1, 3),), NEEDS))
    states = [s for window in found.stores["calibration"].windows(*range(7)) for s in window]
    assert max(float(s.abs().max()) for s in states) > 65_504
    assert np.isfinite(found.similarity.cosine).all() and np.isfinite(found.similarity.norms).all()
    for name in ("linearpatch", "replaceme", "ghosted", "ghosted-weighted", "normalised"):
        assert torch.isfinite(operators.method(name).fit(found.gaps["1-2"], operators.Settings()).M).all(), name


def test_case_16_where_even_that_is_not_enough_the_message_says_so():
    with pytest.raises(ModelError, match="not finite numbers in bfloat16; choose --dtype float32"):
        drain(calibrate(huge(torch.bfloat16, 3e38), windows(500), windows(250, 2)))
