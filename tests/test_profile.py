"""Where the error is, against a dense computation on tiny models: every number from all states at once."""

import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from tiny import BOS, TINY, build, config_of, prompt_ids, tokenizer

from ghosted import operators
from ghosted.calibration import calibrate
from ghosted.experiment import Experiment
from ghosted.models import LoadedModel
from ghosted.progress import drain
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import BoundaryProfile
from ghosted.run import run
from ghosted.scores.profile import MOST_BINS, MOST_TOKENS, SIZED, Profiler, position_bins, token_pieces
from ghosted.scores.residual import boundary_residuals
from ghosted.states import hidden_forward, recording
from ghosted.texts.windows import pack
from ghosted.workspace import Workspace

NAMES = ("none", "linearpatch", "ghosted", "normalised")
SETTINGS = operators.Settings(1e-6)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))


def windows(tokens, window, seed, bos=None):
    ids = prompt_ids(tokens, seed=seed)[0].tolist()
    return pack(ids, start=0, tokens=tokens, window=window, bos_id=bos, text="random", digest=str(seed))


def calibration(model=None, tokens=40 * 32, window=40, store_bytes=2**30, bos=None):
    loaded = LoadedModel.of(model or TINY("llama"), tokenizer())
    splits = windows(tokens, window, 1, bos), windows(15 * window + 13, window, 2, bos)
    return drain(calibrate(loaded, *splits, batch=2, store_bytes=store_bytes))


def fitted(known, gap, names=NAMES):
    fits = {}
    for name in names:
        statistics = drain(known.statistics(gap, operators.needs(names)))
        fits[name] = operators.method(name).fit(statistics, SETTINGS)
    return fits


def profile(known, gap, names=NAMES, ridge=1e-6, whole=False):
    fits, profiler = fitted(known, gap, names), Profiler(known, gap)
    less = drain(profiler.fits_on_less(ridge, whole=whole)) if SIZED in names else {}
    residuals = drain(boundary_residuals(known, gap, fits | less, known.gaps[gap_name(gap)], None, profiler))
    return profiler.result(residuals), residuals, fits


def states(known, split, gap):
    """X_pre and X_post of a split, ``(tokens, C)`` float64, one window after the other."""
    view, found = pruned_view(known.loaded.model, RemovedBlocks()), []
    with recording(view) as recorder:
        for row in known.splits[split].rows:
            hidden_forward(view, row[None])
            found.append((recorder.states[gap.start][0].double(), recorder.states[gap.stop][0].double()))
            recorder.clear()
    return tuple(torch.cat(each) for each in zip(*found, strict=True))


def errors(known, gap, fit):
    """x̂ − X_post of the held-out tokens, dense."""
    pre, post = states(known, "held_out", gap)
    if fit.M is None:
        return pre - post
    eps = known.gaps[gap_name(gap)].eps
    source = pre / (pre.square().mean(-1, keepdim=True) + eps).sqrt() if fit.feature == "normalised" else pre
    return pre + source @ fit.M.float().double() - post


def sink_model():
    """A tiny model whose BOS token enters a thousand times as long as the others."""
    model = build(config_of("llama"))
    model.model.embed_tokens.weight[BOS] *= 1000
    return model


CASES = {
    "middle": (None, range(2, 4), None), "block 0": (None, range(0, 2), None), "last": (None, range(4, 6), None),
    "sink": ("sink", range(1, 3), BOS),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_number_is_that_of_a_dense_computation(case):
    which, gap, bos = CASES[case]
    known = calibration(sink_model() if which else None, bos=bos)
    found, _, fits = profile(known, gap)
    pre, post = states(known, "held_out", gap)
    delta, lengths = post - pre, [len(row) for row in known.splits["held_out"].rows]
    at = torch.cat([torch.arange(length) for length in lengths])
    assert lengths[-1] == 13 and found.windows == 16 and found.window == 40 and found.gap == gap_name(gap)
    assert np.allclose(found.norms, post.norm(dim=-1)[:MOST_TOKENS], rtol=1e-4)
    assert np.allclose(found.change, delta.square().mean(0).sqrt(), rtol=1e-4)
    assert found.starts.tolist() == list(range(40))
    for name, fit in fits.items():
        wrong, seen = errors(known, gap, fit), found.methods[name]
        ratio = wrong.norm(dim=-1) / delta.norm(dim=-1)
        assert np.allclose(seen.tokens, ratio[:MOST_TOKENS], rtol=1e-3), name
        channels = wrong.square().sum(0).sqrt() / delta.square().sum(0).sqrt()
        assert np.allclose(seen.channels, channels, rtol=1e-3), name
        medians = [float(np.median(ratio[at == position])) for position in range(40)]
        assert np.allclose(seen.positions, medians, rtol=1e-3), name
    assert set(found.methods["none"].tokens.tolist()) == {1.0}
    if which:  # the first token of a window owns the Frobenius norm, and the profile shows it there
        assert found.norms[0] > 20 * np.median(found.norms)
        assert found.methods["linearpatch"].positions[0] != pytest.approx(found.methods["linearpatch"].positions[20])


@pytest.mark.parametrize("store_bytes", [2**30, 0])
def test_profiling_changes_no_residual_and_costs_no_further_pass(store_bytes, monkeypatch):
    known, gap = calibration(store_bytes=store_bytes), range(2, 4)
    fits, passes, real = fitted(known, gap), [], known.boundaries
    monkeypatch.setattr(known, "boundaries", lambda split, *more: passes.append(split) or real(split, *more))
    plain = drain(boundary_residuals(known, gap, fits, known.gaps["2-3"]))
    assert passes == ["held_out"]
    profiler = Profiler(known, gap)
    watched = drain(boundary_residuals(known, gap, fits, known.gaps["2-3"], None, profiler))
    assert passes == ["held_out"] * 2 and watched == plain
    found = profiler.result(watched)
    assert found.sizes == {} and set(found.methods) == set(NAMES)
    assert np.nanmedian(found.methods["ghosted"].tokens) == pytest.approx(plain["ghosted"].median, rel=0.2)


def test_it_keeps_one_number_per_token_and_method_and_never_tokens_by_channels():
    known, gap = calibration(), range(2, 4)
    fits, profiler = fitted(known, gap), Profiler(known, gap)
    found = profiler.result(drain(boundary_residuals(known, gap, fits, known.gaps["2-3"], None, profiler)))
    kept = [found.norms, found.change, found.starts]
    kept += [array for each in found.methods.values() for array in vars(each).values()]
    assert max(array.size for array in kept) <= max(MOST_TOKENS, known.loaded.width)
    summed = [tensor for each in vars(profiler).values() if isinstance(each, dict) for tensor in each.values()]
    assert all(tensor.shape == (known.loaded.width,) for tensor in summed if isinstance(tensor, torch.Tensor))
    for batches in profiler._ratios.values():
        assert sum(batch.numel() for batch in batches) == known.splits["held_out"].tokens


def test_error_against_calibration_size_is_that_of_fits_on_the_first_windows():
    known, gap = calibration(), range(2, 4)
    found, residuals, _ = profile(known, gap)
    points = found.sizes[SIZED]
    assert [point.tokens for point in points] == [80, 160, 320, 640, 1280] and found.no_sizes == ""
    assert (points[-1].held_out, points[-1].median) == (residuals[SIZED].held_out, residuals[SIZED].median)
    assert points[0].held_out > points[-1].held_out
    pre, post = states(known, "calibration", gap)
    held_pre, held_post = states(known, "held_out", gap)
    delta = held_post - held_pre
    for point in points:
        X, D = pre[: point.tokens], (post - pre)[: point.tokens]
        G = X.mT @ X
        M = torch.linalg.solve(G + 1e-6 * G.diagonal().mean() * torch.eye(len(G)), X.mT @ D)
        wrong = held_pre @ M - delta
        assert point.held_out == pytest.approx(float(wrong.norm() / delta.norm()), rel=2e-3)
        assert point.median == pytest.approx(float((wrong.norm(dim=-1) / delta.norm(dim=-1)).median()), rel=2e-2)
    assert SIZED in found.methods and not [name for name in found.methods if "tokens" in name]


def test_an_operator_trained_further_is_not_taken_for_the_fit_on_all_windows():
    known, gap = calibration(), range(2, 4)
    fit = fitted(known, gap, ("ghosted",))["ghosted"]
    profiler = Profiler(known, gap)
    less = drain(profiler.fits_on_less(1e-6, whole=True))
    trained = {"ghosted": operators.Fitted("state", fit.M * 0.5)}
    residuals = drain(boundary_residuals(known, gap, trained | less, known.gaps["2-3"], None, profiler))
    plain = drain(boundary_residuals(known, gap, {"ghosted": fit}, known.gaps["2-3"]))["ghosted"]
    last = profiler.result(residuals).sizes[SIZED][-1]
    assert last.tokens == 1280 and last.held_out == pytest.approx(plain.held_out)
    assert last.held_out != pytest.approx(residuals["ghosted"].held_out)


def test_where_there_is_no_error_against_calibration_size_a_sentence_says_why(monkeypatch):
    gap = range(2, 4)
    assert "single calibration window" in profile(calibration(tokens=40), gap)[0].no_sizes
    assert "not in memory" in profile(calibration(store_bytes=0), gap)[0].no_sizes
    monkeypatch.setattr("ghosted.scores.profile.WIDEST", 16)
    found = profile(calibration(), gap)[0]
    assert found.sizes == {} and "wider than 16 channels; this one has 32" in found.no_sizes


def test_blocks_that_change_nothing_have_no_error_to_place():
    model = build(config_of("llama"))
    for block in model.model.layers[2:4]:
        block.self_attn.o_proj.weight.zero_()
        block.mlp.down_proj.weight.zero_()
    found = profile(calibration(model), range(2, 4), ("none", "ghosted"))[0]
    assert not found.change.any() and found.sizes == {} and "nothing to repair" in found.no_sizes
    for each in found.methods.values():
        assert np.isnan(each.tokens).all() and np.isnan(each.channels).all() and np.isnan(each.positions).all()


def test_the_first_position_is_a_bin_of_its_own_and_there_are_few_bins():
    for window in (1, 2, 3, 40, 64, 65, 512, 4096):
        starts, bins = position_bins(window, [window, window // 2])
        assert starts[0] == 0 and len(starts) <= MOST_BINS and len(starts) == len(set(starts))
        assert window == 1 or starts[1] == 1
        assert bins[0] == 0 and (bins[1:window] > 0).all() and len(bins) == window + window // 2
        assert bins.max() == len(starts) - 1
    starts, bins = position_bins(512, [512])
    sizes = np.bincount(bins)[1:]
    assert sizes.min() >= 7 and sizes.max() <= 10
    assert position_bins(512, [100])[0].max() < 100


def test_long_windows_are_binned_with_the_median_over_all_their_tokens():
    known, gap = calibration(tokens=4 * 200, window=200), range(2, 4)
    found, _, fits = profile(known, gap, ("ghosted",))
    pre, post = states(known, "held_out", gap)
    ratio = (errors(known, gap, fits["ghosted"]).norm(dim=-1) / (post - pre).norm(dim=-1)).numpy()
    at = np.concatenate([np.arange(len(row)) for row in known.splits["held_out"].rows])
    edges = [*found.starts.tolist(), 200]
    assert len(found.starts) <= MOST_BINS
    for bin_, (low, high) in enumerate(pairwise(edges)):
        expected = np.median(ratio[(at >= low) & (at < high)])
        assert found.methods["ghosted"].positions[bin_] == pytest.approx(expected, rel=1e-3)
    assert len(found.pieces) == len(found.norms) == len(found.methods["ghosted"].tokens) == MOST_TOKENS


def test_pieces_join_to_the_text_even_where_a_character_is_split_over_tokens():
    byte_level = tokenizer()
    for text in ("plain words", "naïve – 雪だるま ☃ 🙂 end", "a\n\n b\t<img src=x onerror=alert(1)> ${1}", " lead"):
        ids = byte_level(text, add_special_tokens=False)["input_ids"]
        pieces = token_pieces(byte_level, ids)
        assert len(pieces) == len(ids) and "".join(pieces) == text
    snow = token_pieces(byte_level, byte_level("☃!")["input_ids"])
    assert snow == ["", "", "☃", "!"]
    cut = byte_level("☃")["input_ids"][:2]
    assert "".join(token_pieces(byte_level, cut)) == byte_level.decode(cut)
    assert token_pieces(byte_level, [BOS, *byte_level("x")["input_ids"]]) == ["<s>", "x"]
    assert token_pieces(byte_level, []) == []


@pytest.mark.parametrize("remove", ["2-3", "0-1", "1,3-4"])
def test_a_run_carries_the_profile_of_its_first_gap(text, remove):
    e = Experiment(text=text, tokens=1024, window=64, windows=3, remove=remove,
                   methods=("none", "replaceme", "ghosted"))  # fmt: skip
    finished = drain(run(e, Workspace(LoadedModel.of(TINY("llama"), tokenizer())), parts=("boundary",)))
    found = finished.profile
    assert found.gap == gap_name(finished.removed.gaps[0])
    measured = [m.method for m in finished.methods if not m.not_defined]
    assert list(found.methods) == measured and ("replaceme" in measured) == (remove != "0-1")
    (first, *_) = (finished.method("ghosted").gaps[found.gap],)
    assert found.sizes["ghosted"][-1].held_out == first.held_out
    assert [point.tokens for point in found.sizes["ghosted"]] == [64, 128, 256, 512, 1024]
    assert re.match(r"[\w .]+$", "".join(found.pieces)) and len(found.pieces) == MOST_TOKENS
    assert not [m for m in finished.methods if m.method not in e.methods]
    plain = pytest.importorskip("ghosted.plain")
    again = plain.from_plain(BoundaryProfile, plain.to_plain(found))
    assert again.pieces == found.pieces and again.sizes == found.sizes
    assert np.array_equal(again.methods["ghosted"].channels, found.methods["ghosted"].channels)


def test_without_the_method_or_without_a_gap_the_run_says_so(text):
    e = Experiment(text=text, tokens=1024, window=64, windows=3, remove="2-3", methods=("none",))
    space = Workspace(LoadedModel.of(TINY("llama"), tokenizer()))
    found = drain(run(e, space, parts=("boundary",))).profile
    assert found.sizes == {} and found.no_sizes.startswith("Choose the method ghosted")
    nothing = Experiment(text=text, tokens=1024, window=64, windows=3, methods=("none", "ghosted"))
    assert drain(run(nothing, space, parts=("boundary",))).profile is None
