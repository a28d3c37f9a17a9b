"""``import ghosted``: light, without side effects, and its names do what README says."""

import doctest
import inspect
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny import BLOCKS, TINY, build, config_of, logits_of, prompt_ids, tokenizer

import ghosted
from ghosted.adapter import Adapter
from ghosted.errors import InputError, NotDefined
from ghosted.models import LoadedModel

ROOT = Path(__file__).parent.parent


@pytest.fixture
def model():
    return LoadedModel.of(TINY("llama"), tokenizer(), name="tiny")


@pytest.fixture
def experiment(text):
    return ghosted.Experiment(remove="2-3", methods=("ghosted",), text=text, tokens=1024, window=64, windows=2)


def test_importing_is_light_and_changes_nothing():
    code = """
import json, os, sys, time
before, environment, start = set(sys.modules), dict(os.environ), time.monotonic()
import ghosted
seconds = time.monotonic() - start
names = set(ghosted.__all__) <= set(dir(ghosted))
ghosted.Experiment
heavy = [name for name in ("torch", "transformers", "numpy", "gradio") if name in sys.modules]
print(json.dumps([seconds, names, heavy, dict(os.environ) == environment]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    seconds, names, heavy, same = json.loads(done.stdout)
    assert seconds < 0.5 and names and heavy == [] and same


def test_every_name_is_there_with_its_documentation():
    for name in ghosted.__all__:
        assert getattr(ghosted, name).__doc__, name
    assert {name for name in dir(ghosted) if not name.startswith("_")} == set(ghosted.__all__)
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        _ = ghosted.magic


def test_the_steps_one_by_one(model, experiment):
    calibration = ghosted.calibrate(model, experiment)
    choice = ghosted.choose(calibration, "cosine", count=2)
    repairs = ghosted.fit(calibration, choice.remove, "ghosted")
    repaired = ghosted.prune(model, choice.remove, repairs)
    columns = ghosted.generate(model, "The river", {"repaired": repaired}, max_new_tokens=4)
    assert [column.method for column in columns] == ["original", "repaired"]
    assert repaired.config.num_hidden_layers == BLOCKS - 2
    plain = ghosted.prune(model, choice.remove)
    assert not torch.equal(logits_of(plain, prompt_ids(8)), logits_of(repaired, prompt_ids(8)))


def test_a_run_and_its_export_are_one_call_each(model, experiment, tmp_path):
    run = ghosted.evaluate(experiment, model, methods=("none", "ghosted"))
    assert isinstance(run, ghosted.Run) and run.method("none").residual.held_out == 1
    done = ghosted.export(experiment, "adapter", tmp_path / "adapter", model=model)
    assert done.check["logits"] == 0.0
    numbers = {each.method: each for each in Adapter.read(done.path).ghost.numbers}
    assert numbers["ghosted"].perplexity == run.method("ghosted").perplexity
    repairs = ghosted.fit(ghosted.calibrate(model, experiment), "2-3")
    found = ghosted.apply(model, done.path)
    assert torch.equal(logits_of(found, prompt_ids(9)), logits_of(ghosted.prune(model, "2-3", repairs), prompt_ids(9)))


def test_what_makes_no_sense_is_refused_at_once(model, experiment, tmp_path):
    with pytest.raises(InputError, match="one method"):
        ghosted.export(ghosted.Experiment(remove="2-3", methods=("ghosted", "symmetric")), "adapter", tmp_path / "x")
    for form in ("adapter", "mergekit"):
        with pytest.raises(InputError, match="Name the blocks to remove, such as 14-18"):
            ghosted.export(ghosted.Experiment(methods=("none",)), form, tmp_path / "x", model=model)
    with pytest.raises(InputError, match="no export format"):
        ghosted.export(experiment, "zip", tmp_path / "x", model=model)
    with pytest.raises(InputError, match="does not exist"):
        ghosted.prune(model, "9")
    with pytest.raises(NotDefined, match="block 0"):
        ghosted.fit(ghosted.calibrate(model, experiment, remove=""), "0-1", "replaceme")


def test_arguments_of_another_kind_are_one_typed_sentence(model, experiment, tmp_path):
    for wrong, sentence in (
        (lambda: ghosted.Run(experiment).method("nope"), "no method 'nope'; it has none yet"),
        (lambda: ghosted.Experiment(methods="ghosted"), "methods must be a list of names"),
        (lambda: ghosted.Experiment(remove=[14, 15]), "remove must be a text such as '14-18', not "),
        (lambda: ghosted.calibrate(model, experiment, remove="", methods=("nope",)), "no method 'nope'"),
        (lambda: ghosted.apply("name", tmp_path), "model must be what ghosted.load_model returned"),
        (lambda: ghosted.load(None), "Name the folder"), (lambda: ghosted.load_model(5), "name must be a text"),
        (lambda: ghosted.load_model("x", dtype="float8"), "dtype must be"),
        (lambda: ghosted.prune(model, "2-3", None), "repairs must be what ghosted.fit returned"),
        (lambda: ghosted.generate(model, 5, {}), "prompt must be a text"),
        (lambda: ghosted.evaluate("x", model), "experiment must be a ghosted.Experiment, not 'x'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=sentence):
            wrong()


def test_encoders_and_state_space_models_are_one_sentence(tmp_path):
    """CASES 12, where a script meets it."""
    for kind in ("t5", "bert", "mamba"):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        with pytest.raises(ghosted.errors.ModelError) as caught:
            ghosted.load_model(str(tmp_path))
        assert "\n" not in str(caught.value)


SNIPPETS = [block for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
            if "import ghosted" in block and "Experiment" in block]  # fmt: skip


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_what_readme_prints_runs(snippet, tmp_path, monkeypatch, capsys):
    """On a small model of enough blocks, and on less text."""
    less = partial(ghosted.Experiment, tokens=2048, window=128, windows=2)
    small = build(config_of("llama", num_hidden_layers=20, hidden_size=16, num_attention_heads=2, num_key_value_heads=2,
                            intermediate_size=32, max_position_embeddings=2048))  # fmt: skip
    loaded = LoadedModel.of(small, tokenizer(), name="smollm2-135m")
    monkeypatch.setattr(ghosted, "load_model", lambda *_, **__: loaded, raising=False)
    monkeypatch.setattr(ghosted, "Experiment", less)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert "repaired" in capsys.readouterr().out and (tmp_path / "my-adapter" / "ghost.safetensors").exists()


NAMES = ("load_model", "calibrate", "choose", "fit", "prune", "generate", "evaluate", "export", "apply", "load")


def test_the_examples_of_the_names_run_one_after_the_other(tmp_path, monkeypatch):
    """As one session, on a small model of enough blocks, and on less text."""
    small = build(config_of("llama", num_hidden_layers=20, hidden_size=16, num_attention_heads=2, num_key_value_heads=2,
                            intermediate_size=32, max_position_embeddings=2048))  # fmt: skip
    loaded = LoadedModel.of(small, tokenizer(), name="smollm2-135m")
    less = {"tokens": 2048, "window": 128, "windows": 2}
    originals = {name: getattr(ghosted, name) for name in ("calibrate", "evaluate", "Experiment")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ghosted, "load_model", lambda *_: loaded)
    monkeypatch.setattr(ghosted, "load", lambda path: ghosted.apply(loaded, path))
    for name, original in originals.items():
        monkeypatch.setattr(ghosted, name, lambda *given, _call=original, **named: _call(*given, **named | less))
    from ghosted import api, loading

    session, runner = {}, doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for name in NAMES:
        written = inspect.getdoc(getattr(loading if name in ("apply", "load") else api, name))
        test = doctest.DocTestParser().get_doctest(written, session, name, None, None)
        assert test.examples and all(part in written for part in ("Args:", "Raises:", "Example:")), name
        assert runner.run(test, clear_globs=False).failed == 0, name
        session = test.globs
    assert len(session["columns"]) == 2 and session["again"] is not session["model"]
