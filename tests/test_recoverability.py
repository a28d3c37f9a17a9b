"""The map of all ranges against exact solves, and the criterion that rests on it."""

import json
import time

import numpy as np
import pytest
import torch
from tiny import BLOCKS, FAMILIES, PLANTED, TINY, WIDTH, build, config_of, logits_of, prompt_ids, tokenizer

from ghosted import criteria, operators, recoverability
from ghosted.__main__ import main
from ghosted.calibration import calibrate
from ghosted.criteria import recoverability as criterion
from ghosted.errors import Cancelled, ResourceError, TextError
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, Note, Progress, drain
from ghosted.recoverability import RangeSums, draw_sketch, recoverability_map
from ghosted.removed import RemovedBlocks
from ghosted.results import RecoverabilityMap
from ghosted.scores.residual import boundary_residuals
from ghosted.texts import pack


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path, monkeypatch):
    """What the criterion computes is tested here; that its choice is kept is tested in ``test_best``."""
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ghosted.criteria._saved.restore", lambda entry: None)


def windows(tokens, start=0, window=32):
    ids = torch.randint(0, 250, (8192,), generator=torch.Generator().manual_seed(5)).tolist()
    return pack(ids, start=start, tokens=tokens, window=window, bos_id=None, text="random", digest="d")


def calibrated(model, tokens=1024, held_out=512, **settings):
    return drain(calibrate(LoadedModel.of(model, tokenizer()), windows(tokens), windows(held_out, 4096), **settings))


def exact(calibration, start, end):
    """The median residual of ``ghosted`` for one range, by the way every run takes."""
    gap, method = range(start, end + 1), operators.method("ghosted")
    statistics = drain(calibration.statistics(gap, method.NEEDS))
    fitted = {"ghosted": method.fit(statistics, operators.Settings())}
    return drain(boundary_residuals(calibration, gap, fitted, statistics))["ghosted"].median


def medians(calibration):
    pairs = [(i, j) for i in range(BLOCKS) for j in range(i, BLOCKS)]
    return np.array([exact(calibration, *pair) for pair in pairs])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sketch_as_wide_as_the_states_gives_the_exact_medians(family):
    calibration = calibrated(TINY(family))
    found = drain(recoverability_map(calibration, columns=WIDTH))
    assert list(zip(found.starts, found.ends, strict=True))[:7] == [(0, k) for k in range(6)] + [(1, 1)]
    np.testing.assert_allclose(found.after, medians(calibration), atol=1e-4)


def test_a_narrow_sketch_is_close_for_every_seed():
    calibration = calibrated(TINY("llama"), 2048, 1024)
    reference = medians(calibration)
    for seed in range(3):
        found = drain(recoverability_map(calibration, columns=WIDTH // 2, seed=seed)).after
        assert abs(found - reference).max() < 0.06
        assert np.corrcoef(found, reference)[0, 1] > 0.95


def test_before_and_left_are_medians_relative_to_the_state_after_the_range():
    calibration = calibrated(TINY("llama"))
    found = drain(recoverability_map(calibration, columns=WIDTH))
    batches = [states for _, states in calibration.states("held_out")]
    states = [torch.cat(parts, 1)[0].double() for parts in zip(*batches, strict=True)]
    k = [*zip(found.starts, found.ends, strict=True)].index((2, 3))
    lost = (states[4] - states[2]).norm(dim=-1) / states[4].norm(dim=-1)
    assert found.before[k] == pytest.approx(float(np.median(lost.numpy())), rel=1e-5)
    assert found.left[k] == pytest.approx(found.before[k] * found.after[k], rel=0.1)
    assert found.cosine[k] == calibration.similarity.cosine[2, 4]


def test_sums_taken_in_the_calibrating_pass_give_the_same_map_without_a_second_one():
    model = LoadedModel.of(TINY("llama"), tokenizer())
    sums = RangeSums(model.blocks, model.width, columns=16)
    calibration = drain(calibrate(model, windows(1000), windows(512, 4096), watch=sums.add, store_bytes=2**20))
    assert not calibration.complete("calibration")
    found = drain(recoverability_map(calibration, sums))
    assert found.tokens == 1000
    np.testing.assert_allclose(found.after, drain(recoverability_map(calibration, columns=16)).after, atol=1e-5)
    assert drain(recoverability_map(calibration, windows=10)).tokens == 320


def test_a_token_that_owns_the_norm_is_read_exactly():
    # Every 32nd token jumps far along one direction: chance columns alone would be off by a tenth.
    generator = torch.Generator().manual_seed(1)
    states = [torch.randn(2048, 64, generator=generator)]
    jump = torch.randn(64, generator=generator) * 1000
    states.append(states[0] + 0.1 * torch.randn(2048, 64, generator=generator))
    states[1][::32] += jump
    sketch = draw_sketch(states, 24, seed=0)
    delta = states[1][::32] - states[0][::32]
    ratio = (delta @ sketch.columns).norm(dim=-1) / delta.norm(dim=-1)
    assert (ratio - 1).abs().max() < 1e-3
    assert sketch.columns.shape == (64, 24)


def test_identity_blocks_leave_nothing_to_repair_and_are_null():
    found = drain(recoverability_map(calibrated(PLANTED(), 512, 256)))
    ranges = [*zip(found.starts, found.ends, strict=True)]
    payload = json.loads(json.dumps(found.to_json(), allow_nan=False))
    for pair in ((14, 14), (15, 15), (14, 15)):
        k = ranges.index(pair)
        assert payload["error_after"][k] is None and payload["error_before"][k] == 0 and found.left[k] == 0
    assert payload["error_after"][ranges.index((13, 15))] is not None
    assert sum(v is None for v in payload["error_after"]) == 3


def test_dead_states_and_one_token_are_no_fault():
    model = build(config_of("llama"))
    model.model.embed_tokens.weight.zero_()
    found = drain(recoverability_map(calibrated(model, 64, 32)))
    json.dumps(found.to_json(), allow_nan=False)
    few = drain(recoverability_map(calibrated(TINY("llama"), 2, 32)))  # far fewer tokens than channels
    assert np.isfinite(few.after).all()


def test_bfloat16_states_give_what_float32_products_of_them_give(monkeypatch):
    calibration = calibrated(build(config_of("llama")).to(torch.bfloat16))
    found = []
    for fastest in ("bfloat16", "float32"):
        monkeypatch.setattr(recoverability.machine, "fastest_dtype", lambda fastest=fastest: fastest)
        found.append(drain(recoverability_map(calibration, columns=16)).after)
    np.testing.assert_allclose(*found, atol=5e-3)
    assert torch.get_float32_matmul_precision() == "highest"


def test_it_stops_when_asked_and_refuses_what_does_not_fit(monkeypatch):
    calibration, cancel = calibrated(TINY("llama")), CancelFlag()
    steps = recoverability_map(calibration, cancel=cancel)
    assert isinstance(next(steps), Progress)
    cancel.set()
    with pytest.raises(Cancelled):
        next(steps)
    monkeypatch.setattr(recoverability.machine, "available_memory", lambda device: 10)
    with pytest.raises(ResourceError, match="recoverability map"):
        drain(recoverability_map(calibration))


def test_no_held_out_text_is_one_sentence():
    with pytest.raises(TextError, match="held-out"):
        drain(recoverability_map(calibrated(TINY("llama"), held_out=0)))


def test_the_map_is_a_fraction_of_the_models_own_work():
    calibration = calibrated(TINY("llama"))
    start = time.perf_counter()
    for _ in range(5):
        drain(recoverability_map(calibration, columns=16))
    assert time.perf_counter() - start < 5 * 2.0  # about 0.02 s each; a solve for each range and column is not


# The criterion.


def written_by(model, rows, length):
    """Windows of the model's own likeliest tokens: no change of the model predicts them better than it does."""
    ids = prompt_ids(1, rows)
    while ids.shape[1] < length:
        ids = torch.cat([ids, logits_of(model, ids)[:, -1:].argmax(-1)], dim=1)
    ids = ids.flatten().tolist()
    return pack(ids, start=0, tokens=len(ids), window=length, bos_id=None, text="own", digest="o")


def test_the_identity_blocks_are_chosen():
    own = written_by(PLANTED(), 16, 32)
    calibration = drain(calibrate(LoadedModel.of(PLANTED(), tokenizer()), windows(512), own))
    evidence, events = criteria.Evidence(calibration.similarity, calibration), []
    choice = drain(criteria.choose("recoverability", evidence, 2), events.append)
    assert choice.remove == "14-15" and not choice.higher_is_better and len(choice.candidates) == 6
    assert choice.runner_up.remove != "14-15" and choice.runner_up.score > choice.score
    assert any(isinstance(e, Note) and "recoverability" in str(e) for e in events)
    json.dumps(choice.to_json(), allow_nan=False)


def test_its_score_is_the_loss_of_the_repaired_model():
    from ghosted.pruned import Repair
    from ghosted.scores.perplexity import score

    calibration = calibrated(TINY("llama"))
    evidence = criteria.Evidence(calibration.similarity, calibration)
    for count in (2, 5):
        choice = drain(criteria.choose("recoverability", evidence, count))
        for candidate in choice.candidates:
            removed = RemovedBlocks.parse(candidate.remove)
            (gap,) = removed.gaps
            method = operators.method(criterion.METHOD)
            fit = method.fit(drain(calibration.statistics(gap, method.NEEDS)), operators.Settings())
            repairs = {"it": [Repair(gap, "state", fit.M.float())]}
            _, scores, _ = drain(score(calibration.loaded, removed, repairs, calibration.splits["held_out"]))
            assert candidate.score == pytest.approx(np.log(scores["it"].perplexity), abs=1e-4)


def test_the_shortlist_is_of_small_errors_before_and_after():
    starts, last = np.triu_indices(9, k=1)
    before, left = np.full(len(starts), 0.5), np.where(starts == 3, 0.0, 1.0 + starts)
    ranges = RecoverabilityMap(starts, last - 1, left, before, left, left, 1, 1, 0.0)
    assert criterion.shortlist(ranges, 1) == [0, 1, 2, 3, 4, 5]
    assert criterion.shortlist(ranges, 7) == [0, 1]
    before[starts == 0] = 50.0  # replaced nearly whole: repaired best, and last on the list
    assert criterion.shortlist(ranges, 1) == [1, 2, 3, 4, 5, 6]
    left[starts == 2] = 100.0  # left worst, as where a sink token is in the way
    assert criterion.shortlist(ranges, 1) == [1, 3, 4, 5, 6, 7]


def test_the_map_is_drawn_once_and_the_cost_says_so():
    calibration = calibrated(TINY("llama"))
    evidence = criteria.Evidence(calibration.similarity, calibration)
    first = criterion.cost(evidence, 2)
    drain(criteria.choose("recoverability", evidence, 2))
    drawn = calibration.ranges
    drain(criteria.choose("recoverability", evidence, 3))
    assert calibration.ranges is drawn
    assert criterion.cost(evidence, 2).memory_bytes < first.memory_bytes and first.tokens == 5 * 512
    assert not calibration.gaps  # a fit from a part of the tokens must not pass for the whole


def test_without_kept_states_the_model_runs_again_and_says_so():
    calibration = calibrated(TINY("llama"), store_bytes=0)
    evidence = criteria.Evidence(calibration.similarity, calibration)
    assert criterion.cost(evidence, 2).tokens == 5 * 512 + 2 * 1024 + 512 + 512
    kept = calibrated(TINY("llama"))
    again = drain(criteria.choose("recoverability", evidence, 2))
    assert again.remove == drain(criteria.choose("recoverability", criteria.Evidence(kept.similarity, kept), 2)).remove


def test_the_criterion_stops_when_asked():
    calibration, cancel = calibrated(TINY("llama")), CancelFlag()
    steps = criteria.choose("recoverability", criteria.Evidence(calibration.similarity, calibration, 0, cancel), 2)
    with pytest.raises(Cancelled):
        drain(steps, lambda event: cancel.set() if "shortlist" in str(event) else None)


# The commands.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    TINY("llama").save_pretrained(tmp_path / "tiny-llama")
    tokenizer().save_pretrained(tmp_path / "tiny-llama")
    (tmp_path / "text.txt").write_text("".join(f"Line {i} says that {i * i % 89} birds sang. " for i in range(700)))
    monkeypatch.chdir(tmp_path)


SMALL = ["--model", "tiny-llama", "--calibration", "text.txt", "--tokens", "1024", "--window", "64"]


def test_map_prints_one_json_object(folder, capsys):
    assert main(["map", *SMALL, "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert set(payload) == {"starts", "ends", "cosine", "error_before", "error_after", "seconds"}
    assert all(len(payload[name]) == 21 for name in payload if name != "seconds")
    assert main(["map", *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["blocks", "best", "range", "cosine", "before", "after", "left"]
    assert lines[6].split()[:2] == ["6", "0-5"] and "21 ranges" in lines[-1]


def test_choose_cuts_held_out_text_for_it(folder, capsys):
    assert main(["choose", *SMALL, "--criterion", "recoverability", "--count", "2", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert len(payload["candidates"]) == 5 and payload["cost"]["memory_bytes"] > 0
    # A second start finds the similarity in the cache and no states: it reads the text again and agrees.
    assert main(["choose", *SMALL, "--criterion", "recoverability", "--count", "2", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["remove"] == payload["remove"] and again["cost"]["tokens"] > payload["cost"]["tokens"]


def test_bench_map_compares_with_exact_solves(folder, capsys, monkeypatch):
    monkeypatch.setattr("ghosted.bench.map.ROUNDS", 1)
    from ghosted import texts

    with pytest.MonkeyPatch.context() as patch:
        real = texts.slices
        patch.setattr(texts, "slices", lambda e, loaded, **k: real(
            e.__class__(model=e.model, tokens=e.tokens, window=e.window, text="text.txt"), loaded, **k))
        assert main(["bench", "map", "--model", "tiny-llama", "--tokens", "2048", "--window", "64", "--json"]) == 0
    figure = json.loads(capsys.readouterr().out)["map"]
    assert figure["spread"][0] <= figure["ratio"] <= figure["spread"][1] and figure["tokens"] == 2048
    assert figure["largest_difference"] < 1e-2 and figure["rank_correlation"] > 0.98
