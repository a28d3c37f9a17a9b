import dataclasses
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiny import FAMILIES, TINY, VARIANTS, tokenizer

from ghosted import operators
from ghosted import workspace as workspace_module
from ghosted.errors import Cancelled, InputError, TextError
from ghosted.experiment import DEFAULT_METHODS, Experiment
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, Progress, drain
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.results import Update
from ghosted.run import compare_json, run
from ghosted.scores.chained import chained_residuals
from ghosted.scores.perplexity import score
from ghosted.scores.residual import boundary_residuals
from ghosted.texts import slices
from ghosted.workspace import Workspace


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))


def experiment(path, **changes):
    settings = {"text": path, "tokens": 1024, "window": 64, "windows": 3, "remove": "2-3"}
    return Experiment(**settings | changes)


def workspace(family="llama"):
    return Workspace(LoadedModel.of(TINY(family), tokenizer()))


def test_every_part_arrives_in_order_and_the_json_has_the_agreed_shape(text):
    events = []
    finished = drain(run(experiment(text, prompt="It is", max_new_tokens=5), workspace()), events.append)
    parts = [e.part for e in events if isinstance(e, Update)]
    assert list(dict.fromkeys(parts)) == ["similarity", "boundary", "decomposition", "columns", "scores", "map"]
    assert {"calibrating", "scoring"} <= {e.stage for e in events if isinstance(e, Progress)}
    assert finished.self_check is True
    assert [c.method for c in finished.columns] == ["original", *DEFAULT_METHODS]
    payload = compare_json(finished)
    assert payload["experiment"]["remove"] == "2-3"
    assert isinstance(payload["dense"]["perplexity"], float)
    assert [m["method"] for m in payload["methods"]] == list(DEFAULT_METHODS)
    for entry in payload["methods"]:
        assert set(entry) >= {"residual", "perplexity", "damage", "downstream", "added_parameters"}
        assert set(entry["residual"]) == {"calibration", "held_out", "median"}
        assert entry["damage"] == pytest.approx(math.log(entry["perplexity"] / payload["dense"]["perplexity"]))
        assert [d["state"] for d in entry["downstream"]] == [4, 5, 6]
    none, ghosted = payload["methods"][0], payload["methods"][4]
    assert none["residual"] == {"calibration": 1.0, "held_out": 1.0, "median": 1.0}
    assert ghosted["residual"]["calibration"] < 1 and ghosted["rank"] == 32 and ghosted["dof"] <= 32
    assert ghosted["added_parameters"] == 32 * 32 and none["added_parameters"] == 0
    protocol = payload["protocol"]
    assert (protocol["window"], protocol["stride"], protocol["windows"], protocol["tokens_scored"]) == (64, 64, 3, 189)
    assert protocol["bos"] is False and protocol["same_source"] is True and len(protocol["sha256"]) == 64


def test_states_are_kept_up_to_the_limit_and_change_no_number(text, monkeypatch):
    errors = []
    for limit in ("0", str(2**30)):
        monkeypatch.setenv("GHOSTED_STATES_LIMIT", limit)
        space = Workspace(workspace().loaded, keeps_states=True)
        finished = drain(run(experiment(text, remove="1,3-4", methods=("ghosted",)), space, parts=("boundary",)))
        errors.append(finished.method("ghosted").gaps["3-4"].held_out)
        assert (space.at_hand(experiment(text)) is not None) == (limit != "0")
    assert errors[0] == pytest.approx(errors[1], rel=1e-6)


def test_nothing_removed_changes_nothing(text):
    e = experiment(text, remove="", prompt="It is", max_new_tokens=6, temperature=0.8)
    finished = drain(run(e, workspace()))
    payload = compare_json(finished)
    assert finished.self_check is True
    for entry in payload["methods"]:
        assert entry["perplexity"] == payload["dense"]["perplexity"] and entry["damage"] == 0
        assert entry["residual"] is None
    assert len({c.text for c in finished.columns}) == 1
    assert all(set(c.kl) == {0.0} for c in finished.columns)


def test_perplexity_equals_a_plain_reference(text):
    space = workspace()
    finished = drain(run(experiment(text, methods=("none",)), space, parts=("scores",)))
    model = space.loaded.model
    ids = space.loaded.tokenizer(Path(text).read_text(), add_special_tokens=False)["input_ids"]
    start = 1024 + 8192
    losses = []
    for i in range(3):
        row = torch.tensor(ids[start + 64 * i : start + 64 * (i + 1)])
        losses.append(F.cross_entropy(model(row[None]).logits[0, :-1], row[1:], reduction="none"))
    expected = math.exp(float(torch.cat(losses).mean()))
    assert next(iter(finished.dense_perplexity.values())) == pytest.approx(expected, rel=1e-5)


class Text:
    """Two windows of 40 random tokens."""

    window, ids = 40, torch.randint(0, 250, (2, 40), generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return 2

    def batches(self, size):
        return iter([self.ids])


def test_downstream_error_is_that_of_the_variants_own_states():
    model, ids, gap = TINY("llama"), Text.ids, range(2, 4)
    M = torch.randn(32, 32, generator=torch.Generator().manual_seed(1)) * 0.1
    repairs = {"x": [Repair(gap, "state", M)]}
    _, scores, same = drain(score(LoadedModel.of(model, tokenizer()), RemovedBlocks((gap,)), repairs, Text()))
    hidden = model(ids, output_hidden_states=True).hidden_states
    repaired = hidden[2] + hidden[2] @ M
    first = scores["x"].downstream[0]
    assert same and first.state == 4
    assert first.error == pytest.approx(float((repaired - hidden[4]).norm() / hidden[4].norm()), rel=1e-5)
    assert first.cosine == pytest.approx(float(F.cosine_similarity(repaired, hidden[4], dim=-1).mean()), rel=1e-5)
    assert [d.state for d in scores["x"].downstream] == [4, 5, 6]


@pytest.mark.parametrize("family", [*FAMILIES, *VARIANTS])
@pytest.mark.parametrize("remove", ["0-1", "2-3", "1,3", "4-5"])
def test_resuming_before_the_gap_scores_exactly_what_the_whole_variant_scores(family, remove):
    model, removed = TINY(family), RemovedBlocks.parse(remove)
    M = torch.randn(32, 32, generator=torch.Generator().manual_seed(1)) * 0.1
    repairs = {"none": [], "state": [Repair(gap, "state", M) for gap in removed.gaps]}
    if removed.gaps[0].start > 0 and family != "opt-post":
        repairs["feed_forward"] = [Repair(gap, "feed_forward", M) for gap in removed.gaps]
    _, scores, _ = drain(score(LoadedModel.of(model, tokenizer()), removed, repairs, Text()))
    for name, several in repairs.items():
        logits = pruned_view(model, removed, several)(Text.ids, use_cache=False).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), Text.ids[:, 1:].flatten())
        assert scores[name].perplexity == pytest.approx(math.exp(float(loss)), rel=1e-5), name


def test_a_repair_that_gives_no_number_is_said_and_never_printed_as_one():
    loaded, gap = LoadedModel.of(TINY("llama"), tokenizer()), range(2, 4)
    broken = {"x": [Repair(gap, "state", torch.full((32, 32), float("nan")))], "none": []}
    dense, scores, _ = drain(score(loaded, RemovedBlocks((gap,)), broken, Text()))
    assert scores["x"].perplexity is None and scores["none"].perplexity > 1 and dense.perplexity > 1


def test_a_method_without_meaning_is_said_and_the_others_go_on(text):
    payload = compare_json(drain(run(experiment(text, remove="0-1"), workspace(), parts=("boundary", "scores"))))
    replaceme = next(m for m in payload["methods"] if m["method"] == "replaceme")
    assert "block 0" in replaceme["not_defined"] and replaceme["residual"] is None
    assert replaceme["perplexity"] is None and replaceme["added_parameters"] is None
    assert all(m["perplexity"] for m in payload["methods"] if m["method"] != "replaceme")


def test_a_criterion_stands_where_blocks_may(text):
    e = experiment(text, remove="", criterion="cosine", count=2, methods=("none", "ghosted"))
    finished = drain(run(e, workspace(), parts=("boundary",)))
    assert finished.removed.count == 2 and str(finished.removed) == finished.choice.remove
    assert finished.method("ghosted").residual.calibration < 1


def test_another_gap_does_not_run_the_model_again(text, monkeypatch):
    import ghosted.calibration as calibration_module

    passes = []
    real = calibration_module.hidden_forward
    monkeypatch.setattr(calibration_module, "hidden_forward", lambda *a: (passes.append(1), real(*a))[1])
    space = workspace()
    drain(run(experiment(text), space, parts=("boundary",)))
    assert passes
    passes.clear()
    moved = drain(run(experiment(text, remove="1-3"), space, parts=("boundary",)))
    assert not passes
    fresh = drain(run(experiment(text, remove="1-3"), workspace(), parts=("boundary",)))
    for name in DEFAULT_METHODS:
        assert moved.method(name).residual.held_out == pytest.approx(fresh.method(name).residual.held_out, rel=1e-4)


def test_a_criterion_runs_the_model_no_more_than_it_must(text, monkeypatch):
    import ghosted.calibration as calibration_module

    passes = []
    real = calibration_module.hidden_forward
    monkeypatch.setattr(calibration_module, "hidden_forward", lambda *a: (passes.append(1), real(*a))[1])
    monkeypatch.setattr(calibration_module.StateStore, "add", lambda self, states: None)  # nothing fits
    chosen = experiment(text, remove="", criterion="cosine", count=2, batch=1)
    drain(run(dataclasses.replace(chosen, methods=("none",)), workspace(), parts=()))
    assert len(passes) == 1024 // 64
    drain(run(dataclasses.replace(chosen, methods=("none",)), workspace(), parts=()))
    assert len(passes) == 1024 // 64


def test_saved_statistics_give_the_same_numbers(text, monkeypatch):
    first = drain(run(experiment(text), workspace(), parts=("boundary",)))
    monkeypatch.setattr("ghosted.calibration.calibrate", lambda *a, **k: pytest.fail("calibrated again"))
    again = drain(run(experiment(text), workspace(), parts=("boundary",)))
    for name in DEFAULT_METHODS:
        assert again.method(name).residual.calibration == first.method(name).residual.calibration
        assert again.method(name).residual.held_out == pytest.approx(first.method(name).residual.held_out, rel=1e-6)
    assert (again.similarity.cosine == first.similarity.cosine).all()


def test_several_gaps_have_a_residual_each_and_the_last_is_read_in_the_repaired_model(text):
    space = workspace()
    finished = drain(run(experiment(text, remove="1,3-4"), space, parts=("boundary", "scores")))
    ghosted, none = finished.method("ghosted"), finished.method("none")
    assert set(ghosted.gaps) == {"1", "3-4"} and ghosted.added_parameters == 2 * 32 * 32
    assert "gaps" in compare_json(finished)["methods"][4]["residual"]
    assert (none.residual.calibration, none.residual.held_out, none.residual.median) == (1.0, 1.0, 1.0)
    assert ghosted.residual.held_out < 1
    assert ghosted.residual.held_out != ghosted.gaps["3-4"].held_out


def test_one_gap_read_in_the_repaired_model_is_its_own_residual(text):
    space, gap = workspace(), range(2, 4)
    e = experiment(text)
    cut = drain(slices(e, space.loaded))
    calibration = drain(space.calibration(e, cut, (gap,), operators.needs(DEFAULT_METHODS)))
    settings, names = operators.Settings(1e-6), ("none", "replaceme", "ghosted")
    fitted = {m: operators.method(m).fit(calibration.gaps["2-3"], settings) for m in names}
    repairs = {m: [Repair(gap, f.feature, f.M.float())] if f.M is not None else [] for m, f in fitted.items()}
    alone = drain(boundary_residuals(calibration, gap, fitted, calibration.gaps["2-3"]))
    chained = drain(chained_residuals(calibration, RemovedBlocks((gap,)), repairs))
    for name, residual in alone.items():
        assert chained[name].held_out == pytest.approx(residual.held_out, rel=1e-4)
        assert chained[name].median == pytest.approx(residual.median, rel=1e-4)
        assert chained[name].calibration == pytest.approx(residual.calibration, rel=1e-4)


def test_few_tokens_are_warned_about(text):
    finished = drain(run(experiment(text, tokens=100), workspace(), parts=("boundary",)))
    assert any("fits noise" in w for w in finished.warnings)
    assert not any("fits noise" in w for w in drain(run(experiment(text), workspace(), parts=())).warnings)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"remove": "0-5"}, InputError), ({"remove": "4-9"}, InputError), ({"methods": ("magic",)}, InputError),
        ({"criterion": "magic", "count": 2, "remove": ""}, InputError), ({"text": "no/such/file.txt"}, TextError),
        ({"window": 100_000}, InputError),
    ],
)
def test_bad_settings_are_refused_before_work(text, changes, error):
    with pytest.raises(error):
        drain(run(experiment(text, **changes), workspace()))


def test_a_stop_frees_the_lock(text):
    space, flag = workspace(), CancelFlag()
    steps = run(experiment(text), space, flag)
    next(steps)
    flag.set()
    with pytest.raises(Cancelled):
        drain(steps)
    assert not space.lock.locked()
    assert drain(run(experiment(text), space, parts=("boundary",))).method("ghosted").residual is not None


def test_an_abandoned_run_frees_the_lock(text):
    space = workspace()
    steps = run(experiment(text), space)
    next(steps)
    assert space.lock.locked()
    steps.close()
    assert not space.lock.locked()


def test_never_two_models_in_memory(tmp_path, text, monkeypatch):
    import weakref

    alive = []

    def load(name, **_):
        assert all(ref() is None for ref in alive)
        from tiny import build, config_of

        loaded = LoadedModel.of(build(config_of("llama")), tokenizer(), name=name)
        alive.append(weakref.ref(loaded.model))
        return loaded
        yield

    monkeypatch.setattr("ghosted.models.load", load)
    facts = dataclasses.replace(LoadedModel.of(TINY("llama")).facts, cached=False)
    monkeypatch.setattr(workspace_module.Workspace, "facts", lambda self, e: facts)
    space = Workspace()
    for name in ("a", "b", "a"):
        drain(run(experiment(text, model=name), space, parts=("boundary",)))
    assert len(alive) == 3 and sum(ref() is not None for ref in alive) == 1


def test_writing_leaves_the_states_of_the_last_run_where_they_are(text):
    space = Workspace(LoadedModel.of(TINY("llama"), tokenizer()), keeps_states=True)
    drain(run(experiment(text), space, parts=("boundary",)))
    held = space.at_hand(experiment(text))
    stages = []
    written = experiment(text, remove="3", prompt="It is", max_new_tokens=2)
    drain(run(written, space, parts=("columns",)), lambda e: stages.append(getattr(e, "stage", "")))
    assert "calibrating" not in stages and space.at_hand(experiment(text)) is held and len(held.stores["held_out"])
