"""The real model gives the numbers that are known of it (measured before, on the same text and protocol)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ghosted import criteria, operators
from ghosted.calibration import calibrate
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.fitting import fit_gaps
from ghosted.progress import drain
from ghosted.pruned import Repair
from ghosted.run import run
from ghosted.scores.perplexity import score
from ghosted.scores.residual import boundary_residuals
from ghosted.texts import slices
from ghosted.workspace import Workspace

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
TRAIN, VALID = DATA / "wikitext2_train_1mb.txt", DATA / "wikitext2_valid.txt"
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not TRAIN.exists(), reason="the WikiText-2 texts that these numbers belong to are not here"),
]
PERPLEXITY = {  # method: after removing 14-18, after removing 10-18
    "none": (55.6, 219.1), "linearpatch-diag": (50.8, 168.0), "linearpatch": (48.9, 166.8),
    "replaceme": (34.4, 419.4), "ghosted": (31.8, 276.1), "ghosted-weighted": (32.0, 74.2),
}  # fmt: skip
MEDIAN = {"none": 1.0, "linearpatch-diag": 0.96, "linearpatch": 0.91, "ghosted": 0.63, "ghosted-weighted": 0.63}
LADDER = {"procrustes": (40.1, 0.87), "symmetric": (34.9, 0.75)}  # perplexity and median after removing 14-18


@pytest.fixture(scope="module")
def space(smol, tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("GHOSTED_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield Workspace(smol)
    patch.undo()


def experiment(**changes):
    settings = {"text": str(TRAIN), "tokens": 32_768, "evaluate": (str(VALID),), "windows": 16}
    return Experiment(**settings | changes)


@pytest.fixture(scope="module")
def removed_14_to_18(space):
    return drain(run(experiment(remove="14-18"), space, parts=("boundary", "decomposition", "scores")))


def test_perplexities_after_removing_14_to_18(removed_14_to_18):
    assert removed_14_to_18.dense_perplexity[VALID.name] == pytest.approx(22.7, rel=0.03)
    for name in DEFAULT_METHODS:
        found = removed_14_to_18.method(name).perplexity[VALID.name]
        assert found == pytest.approx(PERPLEXITY[name][0], rel=0.03), name
    assert removed_14_to_18.self_check is True


@pytest.mark.soak
def test_other_rungs_of_the_ladder_after_removing_14_to_18(space):
    methods = (*LADDER, "ghosted", "normalised")
    found = drain(run(experiment(remove="14-18", methods=methods), space, parts=("boundary", "scores")))
    for name, (perplexity, median) in LADDER.items():
        assert found.method(name).perplexity[VALID.name] == pytest.approx(perplexity, rel=0.03), name
        assert found.method(name).residual.median == pytest.approx(median, abs=0.03), name
    normalised, ghosted = (found.method(name).perplexity[VALID.name] for name in ("normalised", "ghosted"))
    assert normalised < ghosted


def test_boundary_errors_after_removing_14_to_18(removed_14_to_18):
    for name, median in MEDIAN.items():
        assert removed_14_to_18.method(name).residual.median == pytest.approx(median, abs=0.03), name
    assert removed_14_to_18.method("ghosted").residual.held_out == pytest.approx(0.62, abs=0.03)
    assert removed_14_to_18.method("replaceme").residual.held_out < 1


def test_shares_after_removing_14_to_18(removed_14_to_18):
    found = removed_14_to_18.decompositions["ghosted"]
    assert found.share_antisymmetric == pytest.approx(0.22, abs=0.02)
    assert found.share_antisymmetric_M == pytest.approx(0.39, abs=0.02)
    assert removed_14_to_18.decompositions["linearpatch"].share_antisymmetric < 1e-10


def test_the_symmetric_part_of_the_best_operator_ruins_the_model(space, removed_14_to_18):
    gap, e = range(14, 19), removed_14_to_18.experiment
    (fitted,) = drain(fit_gaps(space._calibration, removed_14_to_18.removed, "ghosted", operators.Settings(e.ridge)))
    parts = {"whole": fitted.M, "symmetric part": (fitted.M + fitted.M.mT) / 2}
    windows = drain(slices(replace(e, windows=4), space.loaded)).evaluation[VALID.name]
    repairs = {name: [Repair(gap, "state", M)] for name, M in parts.items()}
    _, scores, _ = drain(score(space.loaded, removed_14_to_18.removed, repairs, windows, downstream=False))
    none = removed_14_to_18.method("none").perplexity[VALID.name]
    assert scores["whole"].perplexity < none < scores["symmetric part"].perplexity / 20


def test_cosine_chooses_12_to_16_in_a_near_tie_and_10_to_18(removed_14_to_18):
    evidence = criteria.Evidence(removed_14_to_18.similarity)
    choose = criteria.criterion("cosine").choose
    five = choose(evidence, 5)
    assert (five.remove, five.runner_up.remove, five.near_tie) == ("12-16", "11-15", True)
    assert five.score == pytest.approx(0.906, abs=0.003)
    assert choose(evidence, 9).remove == "10-18"


def test_case_17_six_blocks_start_elsewhere_per_token_than_over_flattened_states(removed_14_to_18):
    similarity = removed_14_to_18.similarity
    per_token = criteria.criterion("cosine").choose(criteria.Evidence(similarity), 6)
    of_flattened = criteria.Evidence(replace(similarity, cosine=similarity.flattened))
    flattened = criteria.criterion("cosine").choose(of_flattened, 6)
    assert per_token.remove != flattened.remove
    assert per_token.score == np.diagonal(similarity.cosine, offset=6).max()


@pytest.mark.soak
def test_cosine_per_channel_chooses_14_to_18_and_12_to_20(space):
    e = experiment(criterion="cosine-channel", count=5, methods=("none",))
    five = drain(run(e, space, parts=())).choice
    assert (five.remove, five.runner_up.remove) == ("14-18", "12-16")
    assert drain(run(replace(e, count=9), space, parts=())).choice.remove == "12-20"


@pytest.mark.soak
def test_where_the_sink_block_goes_the_smallest_error_ruins_the_model(space):
    methods = ("none", "ghosted", "ghosted-weighted")
    found = drain(run(experiment(remove="10-18", methods=methods), space, parts=("boundary", "scores")))
    perplexity = {name: found.method(name).perplexity[VALID.name] for name in methods}
    for name in methods:
        assert perplexity[name] == pytest.approx(PERPLEXITY[name][1], rel=0.05), name
    assert found.method("ghosted").residual.held_out < found.method("ghosted-weighted").residual.held_out
    assert perplexity["ghosted-weighted"] < perplexity["none"] < perplexity["ghosted"]
    assert any("ghosted makes the model worse than plain pruning" in w for w in found.warnings)


def test_case_5_states_are_block_inputs_not_the_normalised_last_one(space, removed_14_to_18):
    assert removed_14_to_18.similarity.cosine[29, 30] == pytest.approx(0.75, abs=0.03)
    ids = torch.tensor([space.loaded.tokenizer(VALID.read_text("utf-8")[:3000])["input_ids"][:512]])
    with torch.inference_mode():
        hidden = space.loaded.model(ids, output_hidden_states=True).hidden_states
    wrong = torch.nn.functional.cosine_similarity(hidden[29].float(), hidden[30].float(), dim=-1).mean()
    assert float(wrong) < 0.2
    evidence = criteria.Evidence(removed_14_to_18.similarity)
    ends = {c.remove for c in criteria.criterion("cosine").choose(evidence, 1).candidates}
    assert {"0", "29"} <= ends


def test_case_15_as_many_tokens_as_channels_fit_noise(space):
    few = drain(run(experiment(tokens=576, remove="12-16", methods=("ghosted",)), space, parts=("boundary",)))
    assert few.method("ghosted").residual.held_out > 1
    assert any("worse than no repair" in w for w in few.warnings) and any("fits noise" in w for w in few.warnings)
    more = drain(run(experiment(tokens=6_000, remove="12-16", methods=("ghosted",)), space, parts=("boundary",)))
    assert more.method("ghosted").residual.held_out < 0.9


def test_case_17_the_first_token_of_a_window_is_a_sink(removed_14_to_18):
    norms = removed_14_to_18.similarity.norms
    assert norms[12, 0] > 20 * norms[12, 1:].mean() and norms[11, 0] < 5 * norms[11, 1:].mean()


def test_case_18_the_batch_size_changes_little_in_bfloat16(space):
    if space.loaded.dtype != "bfloat16":
        assert space.loaded.dtype == "float32"  # this machine is faster in float32; tiny models test that case
        return
    found = []
    for batch in (1, 4, 8):
        cut = drain(slices(experiment(tokens=2_048), space.loaded))
        needs = operators.needs(("ghosted",))
        steps = calibrate(space.loaded, cut.calibration, cut.held_out, (range(12, 17),), needs, batch=batch)
        calibration = drain(steps)
        statistics = calibration.gaps["12-16"]
        fitted = {"ghosted": operators.method("ghosted").fit(statistics, operators.Settings(1e-6))}
        residual = drain(boundary_residuals(calibration, range(12, 17), fitted, statistics))["ghosted"]
        found.append((calibration.similarity.cosine, residual.held_out))
    for cosine, held_out in found[1:]:
        assert abs(cosine - found[0][0]).max() < 1e-4
        assert held_out == pytest.approx(found[0][1], abs=1e-3)
