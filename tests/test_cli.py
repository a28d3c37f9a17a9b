import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import TINY, tokenizer

from ghosted.__main__ import commands, main

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny model in a local folder, a text beside it, and a cache of their own."""
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "tiny-llama"
    TINY("llama").save_pretrained(model)
    tokenizer().save_pretrained(model)
    (tmp_path / "text.txt").write_text("".join(f"Line {i} says that {i * i % 89} birds sang. " for i in range(700)))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "one.txt").write_text("x")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 20)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SMALL = ["--model", "tiny-llama", "--calibration", "text.txt", "--tokens", "1024", "--window", "64"]


def test_compare_prints_one_json_object(folder, capsys):
    code = main(["compare", *SMALL, "--remove", "2-3", "--windows", "2", "--methods", "none,ghosted", "--json"])
    out = capsys.readouterr().out
    payload = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert [m["method"] for m in payload["methods"]] == ["none", "ghosted"]
    assert payload["methods"][1]["residual"]["calibration"] < 1


def test_several_texts_are_told_apart_by_name(folder, capsys):
    (folder / "other.txt").write_text("".join(f"{i} is not {i + 1}; " for i in range(300)))
    code = main(["compare", *SMALL, "--remove", "2", "--windows", "2", "--method", "ghosted", "--json",
                 "--evaluate", "other.txt", "text.txt"])  # fmt: skip
    payload = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(payload["dense"]["perplexity"]) == {"other.txt", "text.txt"} == set(payload["protocol"])
    assert payload["protocol"]["text.txt"]["same_source"] and not payload["protocol"]["other.txt"]["same_source"]


def test_a_table_of_several_texts_keeps_its_columns_apart(folder, capsys):
    (folder / "other.txt").write_text("".join(f"{i} is not {i + 1}; " for i in range(300)))
    assert main(["compare", *SMALL, "--remove", "2", "--windows", "2", "--method", "ghosted",
                 "--evaluate", "other.txt", "text.txt"]) == 0  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    head, row = (next(line for line in lines if line.startswith(word)) for word in ("method", "ghosted"))
    assert len(row.split()) == 9 and head.split()[4:] == ["text", "1", "damage", "text", "2", "damage", "added"]
    assert any(line.startswith("text 2: perplexity on text.txt") for line in lines)


def test_a_full_disk_behind_stdout_is_one_sentence(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "ghosted", "models"], stdout=full, stderr=subprocess.PIPE,
                              text=True, cwd=ROOT, timeout=60)  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "No space left" in done.stderr


@pytest.mark.parametrize("variable", ["GHOSTED_CACHE_LIMIT", "GHOSTED_STATES_LIMIT"])
def test_a_limit_that_is_no_number_is_said(folder, monkeypatch, capsys, variable):
    monkeypatch.setenv(variable, "abc")
    assert main(["compare", *SMALL, "--remove", "2", "--windows", "2", "--method", "ghosted"]) == 2
    assert f"{variable} must be a whole number of bytes" in capsys.readouterr().err


def test_tables_are_for_people(folder, capsys):
    assert main(["compare", *SMALL, "--remove", "2-3", "--windows", "2"]) == 0
    table = capsys.readouterr().out
    assert "ghosted-weighted" in table and "2 windows of 64, stride 64" in table and "no BOS" in table
    assert main(["choose", *SMALL, "--criterion", "cosine", "--count", "2"]) == 0
    assert "runner-up" in capsys.readouterr().out
    generation = ["--remove", "2", "--method", "none", "--prompt", "A", "--max-new-tokens", "3"]
    assert main(["generate", *SMALL, *generation]) == 0
    assert "— original" in capsys.readouterr().out


def test_choose_needs_no_more_text_than_it_reads(folder, capsys):
    (folder / "short.txt").write_text("A short text about nothing much. " * 10)
    arguments = ["--model", "tiny-llama", "--calibration", "short.txt", "--tokens", "300", "--window", "64"]
    assert main(["choose", *arguments, "--criterion", "cosine", "--count", "2", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert set(payload) == {"remove", "score", "higher_is_better", "runner_up", "candidates", "cost"}
    assert set(payload["runner_up"]) == {"remove", "score", "near_tie"}
    assert len(payload["candidates"]) == 5


def test_generate_with_nothing_removed_gives_identical_columns(folder, capsys):
    code = main(["generate", *SMALL, "--remove", "", "--methods", "none,ghosted", "--prompt", "Birds", "--json",
                 "--max-new-tokens", "8"])  # fmt: skip
    columns = json.loads(capsys.readouterr().out)["columns"]
    assert code == 0 and [c["method"] for c in columns] == ["original", "none", "ghosted"]
    assert len({c["text"] for c in columns}) == 1
    assert all(c["diverges_at"] is None and set(c["kl"]) == {0.0} for c in columns)


def test_the_agreed_commands_are_there():
    assert {"models", "choose", "compare", "generate", "bench"} <= set(commands())


def test_a_real_process_ends_with_code_2_and_one_line(folder):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "ghosted", "compare", *SMALL, "--remove", "4-40"],
        capture_output=True, text=True, env=environment, timeout=120,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "Block 40 does not exist: this model has blocks 0 to 5.\n"


def test_importing_the_library_is_light():
    probe = "import sys, ghosted; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_imports_go_one_way():
    for path in (ROOT / "ghosted").rglob("*.py"):
        text = path.read_text("utf-8")
        for package in ("gradio", "plotly", "analysis", "app"):
            assert f"\nimport {package}" not in text and f"\nfrom {package}" not in text, path
    for path in (ROOT / "analysis").rglob("*.py"):
        text = path.read_text("utf-8")
        assert "\nimport app" not in text and "\nfrom app" not in text, path


def test_bench_calibrate_is_a_ratio_within_one_run(folder, capsys):
    assert main(["bench", "calibrate", "--model", "tiny-llama", "--tokens", "2048", "--window", "128", "--json"]) == 0
    payload = json.loads(capsys.readouterr().out)
    figure = payload["calibrate"]
    assert figure["ratio"] > 0 and figure["spread"][0] <= figure["ratio"] <= figure["spread"][1]
    assert figure["tokens"] == 2048 and "machine" in payload


def test_bench_range_is_a_ratio_within_one_run(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ghosted.bench.range.ROUNDS", 1)
    command = ["bench", "range", "--model", "tiny-llama", "--tokens", "1024", "--window", "64", "--json"]
    assert main(command) == 0
    figure = json.loads(capsys.readouterr().out)["range"]
    assert 0 < figure["spread"][0] <= figure["ratio"] <= figure["spread"][1]
    assert figure["ratio"] == pytest.approx(figure["step_s"] / figure["calibrate_s"])
    assert figure["seen_s"] < figure["step_s"] and figure["rest_s"] > 0
    assert figure["tokens"] == 1024 and figure["held_out_tokens"] == 8192
