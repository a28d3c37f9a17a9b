import json

import pytest
from tiny import TINY, tokenizer

from ghosted import operators, texts
from ghosted.__main__ import main
from ghosted.calibration import calibrate
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.models.loaded import LoadedModel
from ghosted.progress import drain
from ghosted.scores.residual import boundary_residuals
from ghosted.sensitivity import Size, saturation, sensitivity
from ghosted.workspace import Workspace


def loaded():
    return LoadedModel.of(TINY("llama"), tokenizer(), name="tiny")


def test_each_size_is_what_a_calibration_of_its_own_gives(text):
    model = loaded()
    e = Experiment(model="tiny", remove="2-3", methods=("ghosted",), window=64, windows=2)
    source, = drain(sensitivity(e, [text], [8, 16], Workspace(model)))
    assert [s.sequences for s in source.sizes] == [8, 16] and source.sizes[0].tokens == 8 * 64
    slices = drain(texts.slices(Experiment(model="tiny", text=text, tokens=16 * 64, window=64), model))
    gap = range(2, 4)
    alone = drain(calibrate(model, slices.calibration.first(8), slices.held_out, (gap,), frozenset({"state"})))
    fit = operators.method("ghosted").fit(alone.gaps["2-3"], operators.Settings(1e-6))
    residual = drain(boundary_residuals(alone, gap, {"ghosted": fit}, alone.gaps["2-3"]))["ghosted"]
    assert source.sizes[0].held_out == pytest.approx(residual.held_out, rel=1e-4)
    assert source.sizes[1].held_out < source.sizes[0].held_out
    assert source.dense < source.plain or source.plain > 0


def test_a_text_too_short_for_all_sizes_says_so_and_goes_on(text, tmp_path):
    e = Experiment(model="tiny", remove="2-3", methods=("ghosted",), window=64, windows=2)
    source, = drain(sensitivity(e, [text], [8, 100_000], Workspace(loaded())))
    assert len(source.sizes) == 1 and "too short for 100000" in source.note


def test_saturation_is_the_first_size_within_two_percent():
    def sizes(*errors):
        return [Size(8 * 2**i, 1, error, error, None) for i, error in enumerate(errors)]

    assert saturation(sizes(0.9, 0.71, 0.70, 0.70)) == 16
    assert saturation(sizes(0.9, 0.8, 0.7)) == 32
    assert saturation(sizes(None, None)) is None


def test_two_gaps_are_refused(text):
    with pytest.raises(InputError, match="one gap"):
        drain(sensitivity(Experiment(model="tiny", remove="1,3"), [text], [8], Workspace(loaded())))


def test_the_command_prints_sizes(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    TINY("llama").save_pretrained(tmp_path / "m")
    tokenizer().save_pretrained(tmp_path / "m")
    common = ["sensitivity", "--model", str(tmp_path / "m"), "--remove", "2-3", "--calibration", text, "--window", "64",
              "--sequences", "8,16", "--windows", "2"]  # fmt: skip
    assert main(common) == 0
    assert "saturates at" in capsys.readouterr().out
    assert main([*common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][0]["method"] == "ghosted"
