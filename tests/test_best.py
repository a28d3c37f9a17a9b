"""The recipe ``best``: its joint repair, its fit, its sets of gaps, and what of it is kept."""

import math
from itertools import chain, combinations

import numpy as np
import pytest
import torch
from test_recoverability import written_by
from tiny import FAMILIES, PLANTED, TINY, VARIANTS, WIDTH, logits_of, prompt_ids, tokenizer
from transformers import DynamicCache

from ghosted import criteria, operators
from ghosted.calibration import calibrate
from ghosted.calibration.statistics import Boundary, GapStatistics
from ghosted.criteria.best import likely_sets
from ghosted.errors import Cancelled, InputError, NotDefined
from ghosted.experiment import Experiment
from ghosted.fitting import fit_gaps, repairs_of
from ghosted.merge import merged_view
from ghosted.models import LoadedModel
from ghosted.models.families import find_family
from ghosted.operators.best import GENERATED_WEIGHT, RIDGE
from ghosted.progress import CancelFlag, Note, Progress, drain
from ghosted.pruned import Repair, hidden_channels, pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.run import compare_json, run
from ghosted.states import hidden_forward, recording
from ghosted.texts import pack
from ghosted.workspace import Workspace

GAP = RemovedBlocks.parse("2-3")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ghosted.texts.generated.ROWS", 8)
    monkeypatch.setattr("ghosted.texts.generated.LENGTH", 64)
    for module in ("operators", "criteria"):
        monkeypatch.setattr(f"ghosted.{module}.best.GENERATED_TOKENS", 512)


def windows(tokens, seed):
    ids = torch.randint(0, 250, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    return pack(ids, start=0, tokens=tokens, window=40, bos_id=None, text="random", digest=str(seed))


def calibration(model, tokens=480, **settings):
    loaded = LoadedModel.of(model, tokenizer())
    return drain(calibrate(loaded, windows(tokens, 1), windows(160, 2), **settings))


def channels(name):
    """F of a tiny model's branch before the gap 2-3, 0 where no single linear map ends it."""
    try:
        return hidden_channels(TINY(name), GAP.gaps[0], find_family(TINY(name)))
    except NotDefined:
        return 0


def joint(name, scale=0.1, seed=1):
    rows = WIDTH + channels(name)
    return Repair(GAP.gaps[0], "joint", torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed)) * scale)


@pytest.mark.parametrize("name", FAMILIES + VARIANTS)
def test_a_joint_repair_is_its_formula_and_its_lower_rows_merge(name):
    model, ids = TINY(name), prompt_ids(20, rows=2)
    if not channels(name):
        with pytest.raises(NotDefined):
            pruned_view(model, GAP, [joint(name)])
        return
    repair = joint(name)
    original, repaired = pruned_view(model, RemovedBlocks()), pruned_view(model, GAP, [repair])
    with recording(original, (1,)) as reference, recording(repaired) as recorder:
        hidden_forward(original, ids)
        hidden_forward(repaired, ids)
    x = reference.states[2]
    features = torch.cat([x - reference.feed_forward[1], reference.hidden[1]], -1)
    assert torch.allclose(recorder.states[2], x + features @ repair.M, atol=1e-5)
    merged = logits_of(merged_view(model, GAP, [repair]), ids)
    assert (merged - logits_of(repaired, ids)).abs().max() < 1e-4
    with torch.inference_mode():  # with and without the key-value cache
        past = DynamicCache(config=repaired.config)
        repaired(input_ids=ids[:, :-1], cache=past, use_cache=True)
        last = repaired(input_ids=ids[:, -1:], cache=past, use_cache=True).logits
    assert torch.allclose(last[:, 0], logits_of(repaired, ids)[:, -1], atol=1e-4)


def test_an_operator_of_the_wrong_height_is_refused():
    with pytest.raises(InputError, match="96 × 32, not 40 × 32"):
        pruned_view(TINY("llama"), GAP, [Repair(GAP.gaps[0], "joint", torch.zeros(40, 32))])


def test_the_fit_is_weighted_least_squares_on_both_texts():
    drawn, sums, rows = torch.Generator().manual_seed(4), {}, {}
    for name, tokens in (("calibration", 300), ("generated", 100)):
        pre, post, branch, hidden = (torch.randn(1, tokens, n, generator=drawn) for n in (4, 4, 4, 6))
        sums[name] = GapStatistics(range(2, 4), 4, operators.method("best").NEEDS, hidden=6)
        sums[name].add(Boundary(pre, post, branch, hidden))
        weight = 1 / post.norm(dim=-1, keepdim=True)
        phi = torch.cat([pre - branch, hidden], -1)
        rows[name] = ((phi * weight)[0].double(), ((post - pre) * weight)[0].double())
    fitted = operators.method("best").fit(sums["calibration"], operators.Settings(generated=sums["generated"]))
    share = math.sqrt(GENERATED_WEIGHT * 300 / 100)
    phi, delta = (torch.cat([a, share * b]) for a, b in zip(rows["calibration"], rows["generated"], strict=True))
    G = phi.mT @ phi
    penalty = torch.cat([part.mean().expand(len(part)) for part in G.diagonal().split([4, 6])])
    expected = torch.linalg.solve(G + RIDGE * penalty.diag(), phi.mT @ delta)
    assert torch.allclose(fitted.M, expected, atol=1e-5)
    assert (fitted.feature, fitted.added_parameters, fitted.rank) == ("joint", 16, 10)


def test_where_no_single_map_ends_the_branch_it_says_so_and_acts_on_the_state():
    (fitted,) = drain(fit_gaps(calibration(TINY("gemma2")), GAP, "best", operators.Settings()))
    assert fitted.feature == "state" and "acts on x alone" in fitted.note


def test_it_runs_whole_and_its_moments_tell_the_error_that_its_states_have(tmp_path, monkeypatch):
    monkeypatch.setattr("ghosted.texts.windows.HELD_OUT_LEAST", 256)
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Sentence {i} of a text that goes on about {i * i % 97} things. " for i in range(60)))
    e = Experiment(text=str(text), tokens=1024, window=64, windows=2, criterion="best", count=2,
                   methods=("none", "ghosted", "best"), fit="sequential")  # fmt: skip
    space = Workspace(LoadedModel.of(TINY("llama"), tokenizer()))
    payload = compare_json(drain(run(e, space, parts=("boundary", "decomposition", "scores"))))
    entry = payload["methods"][2]
    assert math.isfinite(entry["perplexity"]) and entry["added_parameters"] % WIDTH**2 == 0
    known = space._calibration
    removed = RemovedBlocks.parse(payload["experiment"]["remove"])
    first = removed.gaps[0]
    (fit, *_) = drain(fit_gaps(known, removed, "best", operators.Settings()))
    original = pruned_view(space.loaded.model, RemovedBlocks())
    repaired = pruned_view(space.loaded.model, RemovedBlocks((first,)), repairs_of([first], [fit]))
    ids = torch.stack(list(known.splits["calibration"].rows))
    with recording(original) as reference, recording(repaired) as recorder:
        hidden_forward(original, ids)
        hidden_forward(repaired, ids)
    pre, post = reference.states[first.start], reference.states[first.stop]
    error = (recorder.states[first.start] - post).norm() / (post - pre).norm()
    name = str(RemovedBlocks((first,)))
    residual = entry["residual"]["gaps"][name] if "gaps" in entry["residual"] else entry["residual"]
    assert float(error) == pytest.approx(residual["calibration"], rel=1e-4)


def test_likely_sets_are_the_best_of_all_sets():
    drawn = np.random.default_rng(3)
    ranges = [range(i, i + n) for n in (1, 2, 3) for i in range(9 - n)]
    damages = drawn.random(len(ranges))
    damages[4] = np.nan
    every = {}
    for chosen in chain.from_iterable(combinations(range(len(ranges)), k) for k in (1, 2, 3)):
        blocks = sorted(block for i in chosen for block in ranges[i])
        removed = RemovedBlocks.of(blocks)
        if len(removed.gaps) == len(chosen) and len(set(blocks)) == len(blocks) == 4 and 4 not in chosen:
            every[str(removed)] = float(damages[list(chosen)].sum())
    expected = sorted(every, key=every.get)[:6]
    alone = sorted((one for one in every if "," not in one), key=every.get)[:2]
    expected += [one for one in alone if one not in expected]
    assert [str(removed) for removed in likely_sets(ranges, damages, 4)] == expected


def test_planted_identities_are_chosen_and_the_choice_is_kept(monkeypatch):
    loaded, own = LoadedModel.of(PLANTED(), tokenizer()), written_by(PLANTED(), 16, 32)
    known = drain(calibrate(loaded, windows(480, 1), own))
    evidence, events = criteria.Evidence(known.similarity, known), []
    choice = drain(criteria.choose("best", evidence, 2), events.append)
    assert choice.remove == "14-15" and not choice.higher_is_better
    assert any(isinstance(event, Note) and "more tokens" in str(event) for event in events)
    assert choice.cost.tokens > 0 and len(choice.candidates) <= 8
    assert all(len(RemovedBlocks.parse(c.remove).gaps) <= 3 for c in choice.candidates)
    monkeypatch.setattr("ghosted.criteria.best.choose", lambda *a: pytest.fail("chosen again"))
    again = drain(criteria.choose("best", evidence, 2))
    assert again.cost.tokens == 0
    assert (again.remove, again.score, again.runner_up, again.candidates) == (
        choice.remove, choice.score, choice.runner_up, choice.candidates
    )


def test_a_part_of_a_calibration_shares_what_is_kept_and_reads_what_is_not():
    whole, nothing = calibration(TINY("llama")), calibration(TINY("llama"), store_bytes=0)
    parts = [drain(each.part(4)) for each in (whole, nothing)]
    fits = [drain(fit_gaps(part, GAP, "ghosted", operators.Settings()))[0] for part in parts]
    assert all(part.complete("calibration") and len(part.splits["calibration"]) == 4 for part in parts)
    assert torch.allclose(fits[0].M, fits[1].M, atol=1e-4)
    assert len(whole.stores["calibration"]) == 12


def test_a_choice_can_be_stopped_and_nothing_is_kept():
    known, cancel = calibration(TINY("llama")), CancelFlag()
    evidence = criteria.Evidence(known.similarity, known, cancel=cancel)
    steps = criteria.choose("best", evidence, 2)
    for event in steps:
        if isinstance(event, Progress) and event.stage == "scoring ranges":
            break
    cancel.set()
    with pytest.raises(Cancelled):
        drain(steps)
    cancel = CancelFlag()
    assert drain(criteria.choose("best", criteria.Evidence(known.similarity, known, cancel=cancel), 2)).cost.tokens > 0
