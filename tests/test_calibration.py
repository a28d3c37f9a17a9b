import pytest
import torch
from tiny import FAMILIES, PLANTED, TINY, tokenizer

from ghosted import criteria, operators
from ghosted.calibration import calibrate
from ghosted.calibration.statistics import Boundary, GapStatistics
from ghosted.errors import Cancelled, ModelError, NotDefined
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, drain
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.scores.residual import boundary_residuals
from ghosted.states import hidden_forward, recording
from ghosted.texts import pack

METHODS = ("none", "linearpatch-diag", "linearpatch", "replaceme", "ghosted", "ghosted-weighted")
NEEDS = operators.needs(METHODS)


def windows(tokens, start=0, window=32):
    ids = torch.randint(0, 250, (4096,), generator=torch.Generator().manual_seed(5)).tolist()
    return pack(ids, start=start, tokens=tokens, window=window, bos_id=None, text="random", digest="d")


def loaded(name="llama"):
    return LoadedModel.of(TINY(name), tokenizer())


def states_of(model, rows):
    view = pruned_view(model, RemovedBlocks())
    collected = []
    with recording(view) as recorder:
        for row in rows:
            hidden_forward(view, row[None])
            collected.append(torch.stack([s[0] for s in recorder.states]))
    return torch.cat(collected, dim=1).double()


def test_similarity_is_the_mean_over_tokens_of_the_per_token_cosine():
    model, text = loaded(), windows(300)
    result = drain(calibrate(model, text, windows(64, 400))).similarity
    X = states_of(model.model, text.rows)
    unit = X / X.norm(dim=-1, keepdim=True)
    expected = torch.einsum("itc,jtc->ijt", unit, unit)
    torch.testing.assert_close(torch.tensor(result.cosine), expected.mean(-1), atol=1e-6, rtol=0)
    flat = X.flatten(1)
    torch.testing.assert_close(
        torch.tensor(result.flattened), (flat @ flat.T) / (flat.norm(dim=1)[:, None] * flat.norm(dim=1)),
        atol=1e-6, rtol=0,
    )
    assert result.tokens == 300 and (result.histogram.sum(-1) == 300).all()
    starts = torch.tensor([0, *torch.cumsum(torch.tensor([len(r) for r in text.rows]), 0)[:-1]])
    torch.testing.assert_close(torch.tensor(result.norms[:, 0]), X.norm(dim=-1)[:, starts].mean(-1), rtol=1e-5, atol=0)


def test_case_1_two_identity_blocks_are_found_and_cost_nothing():
    model = LoadedModel.of(PLANTED(), tokenizer())
    similarity = drain(calibrate(model, windows(512), windows(64, 600))).similarity
    choice = criteria.criterion("cosine").choose(criteria.Evidence(similarity), 2)
    assert choice.remove == "14-15"
    assert choice.score == pytest.approx(1.0, abs=1e-6)
    ids = windows(64).rows[0][None]
    view = pruned_view(model.model, RemovedBlocks.parse(choice.remove))
    assert (view(ids).logits - model.model(ids).logits).abs().max() == 0.0


@pytest.mark.parametrize("family", FAMILIES)
def test_streamed_moments_equal_those_of_all_states(family):
    model, text, gap = loaded(family), windows(256), range(2, 4)
    statistics = drain(calibrate(model, text, windows(64, 400), (gap,), NEEDS)).gaps["2-3"]
    X = states_of(model.model, text.rows)
    pre, delta = X[2], X[4] - X[2]
    scale = pre.T.matmul(pre).abs().max()
    torch.testing.assert_close(statistics.moments("state").G, pre.T @ pre, rtol=1e-5, atol=float(scale) * 1e-6)
    torch.testing.assert_close(statistics.moments("state").B, pre.T @ delta, rtol=1e-5, atol=float(scale) * 1e-5)
    w = X[4].norm(dim=-1, keepdim=True) ** -1
    torch.testing.assert_close(statistics.moments("state_weighted").G, (pre * w).T @ (pre * w), rtol=1e-4, atol=1e-4)
    assert statistics.delta_squared == pytest.approx(float(delta.square().sum()), rel=1e-5)
    # What the branch before the gap adds, replaced by A + A M, must lead to the state that the fit predicts.
    fitted = operators.method("replaceme").fit(statistics, operators.Settings(1e-6))
    assert fitted.M.shape == (32, 32) and torch.isfinite(fitted.M).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_stored_states_give_the_same_statistics_as_the_pass(family):
    model, text, gap = loaded(family), windows(256), range(3, 5)
    streamed = drain(calibrate(model, text, windows(64, 400), (gap,), NEEDS)).gaps["3-4"]
    other = drain(calibrate(model, text, windows(64, 400)))
    assert other.complete("calibration")
    stored = drain(other.statistics(gap, NEEDS))
    for name, total in streamed.sums.items():
        torch.testing.assert_close(stored.sums[name], total, rtol=1e-4, atol=1e-4 * float(total.abs().max()))


def test_a_small_store_is_never_passed_and_other_gaps_are_read_anew():
    model, text, gap = loaded(), windows(512), range(1, 3)
    one_window = 7 * 32 * 32 * 4
    bounded = drain(calibrate(model, text, windows(64, 600), store_bytes=3 * one_window))
    assert sum(s.bytes for s in bounded.stores.values()) <= 3 * one_window
    assert not bounded.complete("calibration")
    anew = drain(bounded.statistics(gap, NEEDS))
    assert anew.tokens == 512
    reference = drain(calibrate(model, text, windows(64, 600), (gap,), NEEDS)).gaps["1-2"]
    torch.testing.assert_close(anew.moments("state").G, reference.moments("state").G)
    bounded.gaps.clear()
    part = drain(bounded.statistics(gap, NEEDS, exact=False))
    assert 0 < part.tokens < 512


def test_case_14_bfloat16_states_keep_the_residual_of_a_float64_solve():
    from tiny import build, config_of

    model = LoadedModel.of(build(config_of("llama")).to(torch.bfloat16), tokenizer())
    text, gap = windows(2048), range(2, 4)
    calibration = drain(calibrate(model, text, windows(64, 2100), (gap,), NEEDS))
    statistics = calibration.gaps["2-3"]
    fitted = operators.method("ghosted").fit(statistics, operators.Settings(0.0))
    X = states_of(model.model, text.rows)
    pre, delta = X[2], X[4] - X[2]
    best = torch.linalg.lstsq(pre, delta).solution
    ideal = float((pre @ best - delta).norm() / delta.norm())
    ours = float((pre @ fitted.M - delta).norm() / delta.norm())
    assert ours == pytest.approx(ideal, abs=1e-3)
    residual = drain(boundary_residuals(calibration, gap, {"ghosted": fitted}, statistics))["ghosted"]
    assert residual.calibration == pytest.approx(ideal, abs=1e-3)


@pytest.mark.parametrize("batch", [4, 8])
def test_case_18_the_batch_size_changes_nothing_in_float32(batch):
    model, text, held, gap = loaded(), windows(544), windows(64, 600), range(2, 4)
    one = drain(calibrate(model, text, held, (gap,), NEEDS, batch=1))
    more = drain(calibrate(model, text, held, (gap,), NEEDS, batch=batch))
    assert abs(one.similarity.cosine - more.similarity.cosine).max() < 1e-5
    assert abs(one.similarity.block_influence - more.similarity.block_influence).max() < 1e-5
    W = [operators.method("ghosted").fit(c.gaps["2-3"], operators.Settings(1e-6)).M for c in (one, more)]
    assert (W[0] - W[1]).norm() / W[0].norm() < 1e-5


def test_residuals_are_relative_to_plain_pruning_and_measured_on_each_token():
    model, text, held, gap = loaded(), windows(1024), windows(256, 1100), range(2, 4)
    calibration = drain(calibrate(model, text, held, (gap,), NEEDS))
    statistics = calibration.gaps["2-3"]
    fitted = {m: operators.method(m).fit(statistics, operators.Settings(1e-6)) for m in METHODS}
    residuals = drain(boundary_residuals(calibration, gap, fitted, statistics))
    assert (residuals["none"].calibration, residuals["none"].held_out, residuals["none"].median) == (1.0, 1.0, 1.0)
    X = states_of(model.model, held.rows)
    pre, delta = X[2], X[4] - X[2]
    for name in ("linearpatch", "ghosted", "ghosted-weighted"):
        left = pre @ fitted[name].M - delta
        assert residuals[name].held_out == pytest.approx(float(left.norm() / delta.norm()), rel=1e-4)
        per_token = (left.norm(dim=-1) / delta.norm(dim=-1)).quantile(0.5)
        assert residuals[name].median == pytest.approx(float(per_token), rel=1e-4)
    assert residuals["ghosted"].calibration < residuals["linearpatch"].calibration
    assert residuals["ghosted"].calibration < 1


def test_linearpatch_scales_are_means_over_sequences_and_dead_channels_stay():
    statistics = GapStatistics(range(1, 2), 4, frozenset({"ratios"}))
    torch.manual_seed(0)
    pre, post = torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    pre[..., 2] = 0
    statistics.add(Boundary(pre, post))
    expected = (post.abs().mean(1) / pre.abs().mean(1)).mean(0)
    expected[2] = 1.0
    torch.testing.assert_close(statistics.ratios("identity").float(), expected)
    assert torch.isfinite(operators.method("linearpatch").fit(statistics, operators.Settings(0.0)).M).all()


def test_a_gap_without_a_block_before_it_has_no_replaceme():
    statistics = drain(calibrate(loaded(), windows(128), windows(64, 600), (range(0, 2),), NEEDS)).gaps["0-1"]
    with pytest.raises(NotDefined, match="block 0"):
        operators.method("replaceme").fit(statistics, operators.Settings(1e-6))
    assert operators.method("ghosted").fit(statistics, operators.Settings(1e-6)).M is not None


def test_overflowing_states_are_an_error_not_a_picture():
    from tiny import build, config_of

    model = build(config_of("llama"))
    model.model.layers[2].mlp.down_proj.weight.mul_(1e38).mul_(1e10)
    with pytest.raises(ModelError, match="weights are damaged"):
        drain(calibrate(LoadedModel.of(model, tokenizer()), windows(64), windows(64, 600)))


def test_states_past_the_range_of_float16_ask_for_a_wider_dtype():
    from tiny import build, config_of

    model = build(config_of("llama"))
    model.model.layers[2].mlp.down_proj.weight.mul_(1e5)
    assert drain(calibrate(LoadedModel.of(model, tokenizer()), windows(64), windows(64, 600))).similarity is not None
    with pytest.raises(ModelError, match="choose --dtype float32"):
        drain(calibrate(LoadedModel.of(model.to(torch.float16), tokenizer()), windows(64), windows(64, 600)))


def test_a_set_flag_stops_the_pass():
    flag = CancelFlag()
    steps = calibrate(loaded(), windows(512), windows(64, 600), batch=1, cancel=flag)
    next(steps)
    flag.set()
    with pytest.raises(Cancelled):
        drain(steps)


def test_a_second_pass_reads_only_what_is_not_kept(monkeypatch):
    import ghosted.calibration as calibration

    loaded = LoadedModel.of(TINY("llama"), tokenizer())
    ids = torch.randint(0, 250, (1000,), generator=torch.Generator().manual_seed(5)).tolist()
    windows = pack(ids, start=0, tokens=1000, window=50, bos_id=None, text="random", digest="5")
    window = 7 * 50 * 32 * 4
    whole, part, none = (
        drain(calibrate(loaded, windows, windows.first(0), batch=4, store_bytes=size * window)) for size in (20, 7, 0)
    )
    assert [len(c.stores["calibration"]) for c in (whole, part, none)] == [20, 7, 0]
    passed = []
    forward = calibration.hidden_forward
    monkeypatch.setattr(calibration, "hidden_forward", lambda view, ids: (passed.append(len(ids)), forward(view, ids)))
    needs = frozenset({"state", "feed_forward"})
    sums = [drain(each.statistics(range(2, 4), needs)).sums for each in (whole, part, none)]
    assert sum(passed) == 13 + 20
    for name in sums[0]:
        assert torch.allclose(sums[0][name], sums[1][name], rtol=1e-5, atol=1e-4), name
        assert torch.allclose(sums[0][name], sums[2][name], rtol=1e-5, atol=1e-4), name
