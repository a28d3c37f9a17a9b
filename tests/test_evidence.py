"""Tasks through the harness, speed and the probe: on tiny models, and the real numbers where they are known."""

import json
import time

import pytest
from tiny import TINY, tokenizer

from ghosted.errors import Cancelled, InputError, ResourceError
from ghosted.evaluation import Plan, evaluate
from ghosted.experiment import Experiment
from ghosted.models.loaded import LoadedModel
from ghosted.progress import CancelFlag, drain
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.scores.probe import Probe, probe, questions, repetition
from ghosted.scores.speed import Added, speed
from ghosted.scores.tasks import NAMES, Tasks
from ghosted.workspace import Workspace


def loaded():
    return LoadedModel.of(TINY("llama"), tokenizer(), name="tiny")


@pytest.fixture
def own_tasks(tmp_path, monkeypatch):
    """A folder with one local task of twelve items, its data beside it; datasets keep theirs there, too."""
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "items.jsonl"
    rows = [{"question": f"What is {i}?", "answers": ["one thing", "another", "a third"], "right": i % 3}
            for i in range(12)]  # fmt: skip
    data.write_text("\n".join(map(json.dumps, rows)))
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "own.yaml").write_text(f"""
task: own_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{right}}}}"
doc_to_choice: "{{{{answers}}}}"
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
""")
    return str(folder)


def settings(text, **more):
    return Experiment(**({"model": "tiny", "remove": "2-3", "text": text, "tokens": 1024, "window": 64,
                          "methods": ("none", "ghosted")} | more))  # fmt: skip


def test_local_tasks_need_no_network_and_nothing_removed_scores_the_same(text, own_tasks, capsys):
    plan = Plan(tasks=("own_local",), limit=10, include_path=(own_tasks,))
    found = drain(evaluate(settings(text, remove=""), plan, Workspace(loaded())))
    dense = found.dense.tasks["own_local"]
    assert dense.n == 10 and 0 <= dense.acc <= 1 and dense.acc_norm is not None and dense.stderr > 0
    for method in found.methods:
        assert method.tasks["own_local"] == dense and method.retained(found.dense) in (100.0, None)
    assert capsys.readouterr().out == ""
    payload = json.loads(json.dumps(found.to_json()))
    assert payload["protocol"]["tasks"]["limit"] == 10 and payload["dense"]["average"] == dense.acc
    assert payload["dense"]["perplexity"] is None


def test_scores_are_kept_and_change_with_the_items_and_the_operators(text, own_tasks, tmp_path, monkeypatch):
    from ghosted.scores import _harness

    scored, real = [], _harness.run
    monkeypatch.setattr(_harness, "run", lambda *a: (scored.append(1), real(*a))[1])
    plan = Plan(tasks=("own_local",), include_path=(own_tasks,))
    first = drain(evaluate(settings(text), plan, Workspace(loaded())))
    assert len(scored) == 3  # the original, none, ghosted
    again = drain(evaluate(settings(text), plan, Workspace(loaded())))
    assert len(scored) == 3 and again.method("ghosted").tasks == first.method("ghosted").tasks
    drain(evaluate(settings(text, ridge=0.5), plan, Workspace(loaded())))
    assert len(scored) == 4
    items = tmp_path / "items.jsonl"
    items.write_text(items.read_text().replace("What is 3?", "What was 3?"))
    drain(evaluate(settings(text), plan, Workspace(loaded())))
    assert len(scored) == 7


def test_scores_are_the_harnesss_own(own_tasks):
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    tasks = drain(Tasks.found(("own_local",), (own_tasks,)))
    ours = drain(tasks.score(loaded().model, tokenizer(), "dense"))["own_local"]
    manager = lm_eval.tasks.TaskManager(include_path=own_tasks, include_defaults=False)
    theirs = lm_eval.simple_evaluate(HFLM(pretrained=loaded().model, tokenizer=tokenizer(), batch_size=1),
                                     tasks=["own_local"], task_manager=manager)["results"]["own_local"]  # fmt: skip
    assert ours.acc == theirs["acc,none"] and ours.acc_norm == theirs["acc_norm,none"]
    assert ours.stderr == pytest.approx(theirs["acc_stderr,none"])


def test_tasks_stop_between_batches(own_tasks):
    flag = CancelFlag()
    tasks = drain(Tasks.found(("own_local",), (own_tasks,)))
    flag.set()
    with pytest.raises(Cancelled):
        drain(tasks.score(loaded().model, tokenizer(), "dense", flag))


def test_an_unknown_task_or_folder_is_one_sentence(own_tasks):
    with pytest.raises(InputError, match="did you mean own_local"):
        drain(Tasks.found(("own_locl",), (own_tasks,)))
    with pytest.raises(InputError, match="no folder"):
        drain(Tasks.found(("own_local",), ("/no/such/folder",)))


def test_without_the_hub_the_ways_out_are_named_in_ten_seconds(monkeypatch):
    import huggingface_hub

    def hangs(self, *args, timeout=None, **settings):
        time.sleep(min(timeout, 0.5))
        raise ConnectionError("blocked")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", hangs)
    for name in ("ARC-c", "wsc273", "COPA"):
        start = time.monotonic()
        with pytest.raises(ResourceError, match=r"--include-path.*--probe") as refused:
            drain(Tasks.found((name,)))
        assert time.monotonic() - start < 10 and "\n" not in str(refused.value)
    assert len(NAMES) == 9


def test_the_probe_has_questions_of_several_kinds():
    items = questions()["items"]
    assert len(items) >= 60 and len({item["kind"] for item in items}) >= 6
    assert all(item["wrong"] and item["right"] not in item["wrong"] for item in items)
    assert len({item["prompt"] for item in items}) == len(items)


def test_the_probe_scores_by_mean_likelihood_whatever_the_batch(monkeypatch):
    from ghosted.scores import probe as module

    whole = drain(probe(TINY("llama"), tokenizer()))
    monkeypatch.setattr(module, "ROWS", 3)
    assert drain(probe(TINY("llama"), tokenizer())) == whole
    assert 0 <= whole.accuracy < 0.6 and whole.n == len(questions()["items"]) and len(whole.texts) == 6


def test_a_model_near_chance_or_in_a_loop_is_red():
    good = Probe(0.95, 0.25, 74, {}, 0.1, ())
    assert good.verdict(good) == ""
    lost = Probe(0.35, 0.25, 74, {}, 0.1, ()).verdict(good)
    assert lost.startswith("This model is broken") and "a guess 25%" in lost and lost.count(".") == 1
    assert "repeats itself" in Probe(0.9, 0.25, 74, {}, 0.8, ()).verdict(good)
    assert repetition([1, 2, 3, 4, 5]) == 0 and repetition([1, 2, 1, 2, 1, 2, 1, 2]) > 0.5


def test_nothing_removed_is_as_fast_as_itself():
    """CASE 27, its first half."""
    model = loaded()
    views = {name: pruned_view(model.model, RemovedBlocks()) for name in ("dense", "none")}
    ratio = drain(speed(views, model, {}, rounds=25, prompt=128))["models"]["none"]["prefill_ratio"]
    assert ratio == pytest.approx(1.0, abs=0.5)  # 0.1 on a machine that does nothing else


def test_fewer_blocks_are_smaller_and_the_operator_is_counted():
    model, removed = loaded(), RemovedBlocks.parse("1-4")
    views = {"dense": pruned_view(model.model, RemovedBlocks()), "ghosted": pruned_view(model.model, removed),
             "linearpatch": pruned_view(model.model, removed)}  # fmt: skip
    added = {"ghosted": Added(32 * 32, 4 * 32 * 32)}
    found = drain(speed(views, model, added, rounds=3, prompt=64))
    dense, ghosted = found["models"]["dense"], found["models"]["ghosted"]
    block = sum(p.numel() for p in model.model.model.layers[0].parameters())
    assert dense["parameters"] - ghosted["parameters"] == 4 * block - 32 * 32
    assert ghosted["bytes"] == dense["bytes"] - 4 * 4 * block + 4 * 32 * 32
    assert ghosted["prefill_ratio"] > 1.2 and dense["prefill_ratio"] == 1.0
    low, high = found["ghosted_over_linearpatch"]["spread"]
    assert low <= found["ghosted_over_linearpatch"]["ratio"] <= high
    assert found["operator"]["decode_us"] > 0


@pytest.mark.model
def test_a_removed_first_block_turns_the_probe_red(smol):
    """CASE 26."""
    start = time.monotonic()
    dense = drain(probe(pruned_view(smol.model, RemovedBlocks()), smol.tokenizer))
    assert time.monotonic() - start < 60 and dense.accuracy > 0.8
    broken = drain(probe(pruned_view(smol.model, RemovedBlocks.parse("0-1")), smol.tokenizer))
    assert broken.verdict(dense).startswith("This model is broken")


@pytest.mark.model
def test_ten_of_thirty_blocks_removed_is_faster_and_says_by_how_much(smol):
    """CASE 27, its second half."""
    removed = RemovedBlocks.parse("12-21")
    views = {"dense": pruned_view(smol.model, RemovedBlocks()), "none": pruned_view(smol.model, removed)}
    found = drain(speed(views, smol, {}, rounds=5))
    pruned, operator = found["models"]["none"], found["operator"]
    low, high = pruned["prefill_ratio_spread"]
    assert low <= pruned["prefill_ratio"] <= high and 1.1 < pruned["prefill_ratio"] < 2.5  # 1.5 where nothing else runs
    assert operator["prefill_us_per_token"] > 0 and operator["decode_us"] > 0


def _shared():
    from pathlib import Path

    folder = Path(__file__).parents[2] / "shared"
    if not (folder / "tasks").is_dir():
        pytest.skip("the local tasks are not on this machine")
    return folder


def _dense_scores(smol, limit, monkeypatch, tmp_path):
    shared = _shared()
    monkeypatch.chdir(shared.parent / "shared")  # their paths say ../shared
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    plan = Plan(tasks=("arc_easy_local", "piqa_local"), limit=limit, include_path=(str(shared / "tasks"),))
    e = Experiment(remove="", methods=("none",), text=str(shared / "data" / "wikitext2_train_1mb.txt"), tokens=2048)
    found = drain(evaluate(e, plan, Workspace(smol)))
    assert found.method("none").tasks == found.dense.tasks and found.method("none").retained(found.dense) == 100.0
    return found.dense.tasks


@pytest.mark.model
def test_nothing_removed_scores_the_same_on_real_tasks(smol, monkeypatch, tmp_path):
    scores = _dense_scores(smol, 8, monkeypatch, tmp_path)
    assert scores["arc_easy_local"].n == 8 and scores["piqa_local"].n == 8


@pytest.mark.model
@pytest.mark.soak
def test_the_known_accuracies_of_the_first_hundred_items(smol, monkeypatch, tmp_path):
    scores = _dense_scores(smol, 100, monkeypatch, tmp_path)
    assert scores["arc_easy_local"].acc == pytest.approx(0.49, abs=0.02)
    assert scores["piqa_local"].acc == pytest.approx(0.64, abs=0.02)


def test_the_table_shows_ratios_with_the_ratios_spread():
    from ghosted.commands.evaluate import _speed

    one = {"parameters": 10, "bytes": 20, "prefill": 1500.0, "prefill_spread": [1400.0, 1600.0], "decode": 17.0,
           "prefill_ratio": 1.5, "prefill_ratio_spread": [1.4, 1.6]}  # fmt: skip
    said = "\n".join(_speed({"models": {"none": one}}))
    assert "1.50 (1.40–1.60)" in said
