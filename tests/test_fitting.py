import pytest
import torch
from tiny import FAMILIES, TINY, tokenizer

from ghosted import operators
from ghosted.calibration import calibrate
from ghosted.errors import NotDefined
from ghosted.fitting import fit_gaps, repairs_of
from ghosted.models import LoadedModel
from ghosted.progress import drain
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.states import hidden_forward, recording
from ghosted.texts.windows import pack

SETTINGS = operators.Settings(1e-6)
SEVERAL = RemovedBlocks.parse("1,3,5")


def windows(count, seed):
    ids = torch.randint(0, 250, (count * 40,), generator=torch.Generator().manual_seed(seed)).tolist()
    return pack(ids, start=0, tokens=count * 40, window=40, bos_id=None, text="random", digest=str(seed))


def calibration(family="llama", store_bytes=2**30):
    loaded = LoadedModel.of(TINY(family), tokenizer())
    return drain(calibrate(loaded, windows(12, 1), windows(3, 2), batch=2, store_bytes=store_bytes))


def fitted(name, removed=SEVERAL, sequential=False, known=None, settings=SETTINGS):
    return drain(fit_gaps(known or calibration(), removed, name, settings, sequential=sequential))


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("name", ["ghosted", "linearpatch", "replaceme"])
def test_one_gap_is_fitted_bit_for_bit_as_by_the_method_itself(name, sequential):
    known, gap = calibration(), range(2, 4)
    statistics = drain(known.statistics(gap, operators.method(name).NEEDS))
    alone = operators.method(name).fit(statistics, SETTINGS)
    (one,) = fitted(name, RemovedBlocks((gap,)), sequential)
    assert torch.equal(one.M, alone.M) and one.rank == alone.rank


def test_independent_fits_do_not_depend_on_order_or_on_the_other_gaps():
    together = fitted("ghosted", RemovedBlocks.parse("5,1,3"))
    for gap, fit in zip(SEVERAL.gaps, together, strict=True):
        assert torch.equal(fit.M, fitted("ghosted", RemovedBlocks((gap,)))[0].M)


def test_a_sequential_fit_is_least_squares_on_the_repaired_models_own_states():
    known = calibration()
    fits = fitted("ghosted", sequential=True, known=known, settings=operators.Settings(0.0))
    ids = torch.stack(list(known.splits["calibration"].rows))
    before = pruned_view(known.loaded.model, RemovedBlocks.parse("1,3-5"), repairs_of(SEVERAL.gaps, fits[:1]))
    original = pruned_view(known.loaded.model, RemovedBlocks())
    with recording(before) as recorder, recording(original) as reference:
        hidden_forward(before, ids)
        hidden_forward(original, ids)
    X_pre = recorder.states[-1].flatten(0, 1).double()
    Delta = reference.states[4].flatten(0, 1).double() - X_pre
    expected = torch.linalg.lstsq(X_pre, Delta).solution
    assert torch.allclose(fits[1].M, expected, atol=1e-4)
    assert not torch.allclose(fits[1].M, fitted("ghosted")[1].M, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_stored_and_fresh_states_give_the_same_sequential_fit(family):
    stored, fresh = calibration(family), calibration(family, store_bytes=0)
    assert stored.complete("calibration") and not fresh.complete("calibration")
    for name in ("ghosted", "replaceme"):
        for a, b in zip(fitted(name, sequential=True, known=stored), fitted(name, sequential=True, known=fresh),
                        strict=True):  # fmt: skip
            assert torch.allclose(a.M, b.M, atol=1e-3 * float(b.M.abs().max()))


def test_a_sequential_fit_leaves_less_error_at_the_last_boundary():
    known, ids = calibration(), torch.stack(list(windows(3, 2).rows))
    original = pruned_view(known.loaded.model, RemovedBlocks())
    error = {}
    for sequential in (False, True):
        repairs = repairs_of(SEVERAL.gaps, fitted("ghosted", sequential=sequential, known=known))
        view = pruned_view(known.loaded.model, SEVERAL, repairs)
        with recording(view) as recorder, recording(original) as reference:
            hidden_forward(view, ids)
            hidden_forward(original, ids)
        error[sequential] = float((recorder.states[-1] - reference.states[-1]).norm())
    assert error[True] < error[False]


def test_where_a_later_gap_is_not_defined_the_whole_method_is_not():
    with pytest.raises(NotDefined, match="block 0"):
        fitted("replaceme", RemovedBlocks.parse("0,3"))

