"""The notebook: valid, without outputs, and it runs from top to bottom."""

import json
from functools import partial
from pathlib import Path

import pytest
from tiny import build, config_of, tokenizer

import ghosted
from ghosted.models import LoadedModel

FILE = Path(__file__).parents[1] / "assets" / "notebook.ipynb"


def code():
    cells = json.loads(FILE.read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_it_is_a_notebook_of_texts_and_code_without_outputs():
    notebook = json.loads(FILE.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
    assert sum(cell["cell_type"] == "markdown" for cell in notebook["cells"]) == 6, "an opening and five lessons"


def test_every_cell_runs_on_a_small_model(monkeypatch, capsys):
    small = build(config_of("llama", num_hidden_layers=30, hidden_size=16, num_attention_heads=2, num_key_value_heads=2,
                            intermediate_size=32, max_position_embeddings=2048))  # fmt: skip
    loaded = LoadedModel.of(small, tokenizer(), name="smollm2-135m")
    evaluate = ghosted.evaluate
    monkeypatch.setattr(ghosted, "load_model", lambda *_, **__: loaded, raising=False)
    monkeypatch.setattr(ghosted, "Experiment", partial(ghosted.Experiment, window=128))
    monkeypatch.setattr(ghosted, "evaluate", lambda *a, **k: evaluate(*a, **k | {"tokens": 2048}), raising=False)
    exec(compile(code(), FILE.name, "exec"), {})
    said = capsys.readouterr().out
    assert "30 blocks, width" in said and "x A xᵀ is 0: True" in said
    assert said.count("ghosted-weighted held-out") == 2


@pytest.mark.soak
@pytest.mark.model
def test_it_tells_the_lessons_story_on_the_default_model(capsys):
    exec(compile(code(), FILE.name, "exec"), {})
    said = capsys.readouterr().out
    assert "cosine removes 10-18" in said and "x A xᵀ is 0: True" in said
    medians = [float(line.rsplit(" ", 1)[1]) for line in said.splitlines() if line.startswith("ridge")]
    assert medians[0] > 1 > medians[1], "a perfect fit ruins, a ridge repairs"
    numbers = {tuple(line.split()[:2]): float(line.split()[-1]) for line in said.splitlines()
               if line.startswith(("10-18", "12-20"))}
    assert numbers["10-18", "ghosted"] > numbers["10-18", "none"] > numbers["10-18", "ghosted-weighted"]
    assert numbers["12-20", "ghosted"] < numbers["10-18", "ghosted-weighted"]
