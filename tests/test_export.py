"""What leaves the page as a file is what the page showed, and comes back as the same run."""

import csv
import dataclasses
import hashlib
import io
import json
import re
import zipfile
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import plotly.graph_objects as go
import pytest
from fake_run import NASTY, make_run

from analysis import panels
from analysis.export import csv as as_csv
from analysis.export import json as as_json
from analysis.export import report, settings_file
from analysis.export.pictures import columns, decoded, pictures_of, rows
from analysis.figures.boundary import boundary_bars
from analysis.figures.operator import operator_maps
from analysis.figures.similarity import similarity_map
from analysis.panels import parts
from analysis.portable import hashes
from analysis.record import Record
from analysis.settings import DEFAULT
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.run import compare_json

EXPERIMENT = dataclasses.replace(DEFAULT, criterion="manual", remove="14-18", max_new_tokens=4, prompt="".join(NASTY))
PATHS = {"/secret/folder/notes.txt": "ab" * 32}


def record_of(experiment=EXPERIMENT, pieces=NASTY):
    return Record.of(drain(make_run(pace=0, steps=1, pieces=pieces)(experiment)))


@pytest.fixture(scope="module")
def record():
    return record_of()


@pytest.fixture(scope="module")
def pictures(record):
    """What all panels of the page draw."""
    import gradio as gr

    shown = {}
    with gr.Blocks():
        for name in panels.PANELS:
            panel = panels.module(name).build()
            shown |= panels.module(name).show(panel, record)
    return pictures_of(shown)


def figure_json(figure):
    return json.loads(parts.drawn(figure).plot)


def read_csv(text):
    return list(csv.reader(io.StringIO(text)))


def unzipped(data):
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        return {name: zipped.read(name).decode() for name in zipped.namelist()}


def test_every_picture_of_the_page_is_found_by_name(pictures):
    assert {"boundary", "operator-W", "operator-S", "operator-A", "spectrum-plane", "spectrum-line",
            "spectrum-rotations", "spectrum-singular", "similarity", "influence"} <= set(pictures)
    assert all(figure["data"] for figure in pictures.values())


def test_rows_are_the_plotted_points_of_every_picture(record, pictures):
    files = unzipped(as_csv.write(record, pictures))
    for name, figure in pictures.items():
        head, *body = read_csv(files[f"figures/{name}.csv"])
        assert head[:5] == ["trace", "x", "y", "z", "customdata"]
        expected = [point for trace in figure["data"] for point in plotted(trace)]
        read = [tuple(line[1:4]) for line in body]
        assert len(read) == len(expected) > 0, name
        assert all(same(a, b) for row, point in zip(read, expected, strict=True)
                   for a, b in zip(row, point, strict=True)), name


def plotted(trace):
    """A trace's points, put together in another way than the export does: by numpy."""
    get = {key: np.asarray(decoded(trace[key]), dtype=object) for key in ("x", "y", "z") if key in trace}
    if "z" in get:
        evenly = [np.arange(n) * trace.get(f"d{axis}", 1) + trace.get(f"{axis}0", 0)
                  for axis, n in zip("yx", np.shape(decoded(trace["z"])), strict=True)]
        y, x = np.meshgrid(get.get("y", evenly[0]), get.get("x", evenly[1]), indexing="ij")
        return list(zip(x.ravel(), y.ravel(), get["z"].ravel(), strict=True))
    return [(x, y, None) for x, y in zip(get["x"], get["y"], strict=True)]


def same(read, value):
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return read == ""
    return read.lstrip("'") == value if isinstance(value, str) else float(read) == value


def test_rows_carry_names_hover_numbers_and_typed_arrays(record):
    heat = rows(figure_json(similarity_map(record.run.similarity, record.run.removed)))
    size = record.run.similarity.blocks + 1
    assert len(heat) == size**2 and heat[size + 3]["y"] == 1 and heat[size + 3]["x"] == 3
    assert heat[size + 3]["customdata"] == round(float(record.run.similarity.cosine[1, 3]), 4)
    bars = rows(figure_json(boundary_bars(record.run.methods)))
    assert len(bars) == sum(len(trace["y"]) for trace in boundary_bars(record.run.methods).data)
    turned = record.portraits["ghosted"]
    assert np.allclose([row["z"] for row in rows(figure_json(operator_maps(turned)["A"]))],
                       ((turned.reduced - turned.reduced.T) / 2).ravel())


def test_rows_of_traces_that_no_panel_draws_today():
    figure = go.Figure()
    figure.add_scatter(y=[1.5, None, 3], customdata=[[1, "a"], [2, "b"], [3, "c"]], text=["=1+1", "-", "ok"])
    figure.add_heatmap(z=[[1, 2], [3, float("nan")]], x0=10, dx=5)
    figure.add_scatterpolar(r=[1, 2], theta=[0, 90])
    figure.add_histogram(x=np.arange(3, dtype="int8"))
    found = rows(json.loads(figure.to_json()))
    assert found[0] == {"trace": "trace 1", "y": 1.5, "text": "=1+1", "x": 0, "customdata": 1, "customdata_2": "a"}
    assert [(row["x"], row["y"]) for row in found[3:7]] == [(10, 0), (15, 0), (10, 1), (15, 1)]
    assert found[7] == {"trace": "trace 3", "r": 1, "theta": 0}
    assert len(found) == 12 and found[-1]["x"] == 2
    written = as_csv.table(found, columns(found))
    assert "'=1+1" in written and ",'-" in written and "nan" not in written


def test_the_zip_has_tables_settings_and_the_protocol(record, pictures):
    files = unzipped(as_csv.write(record, pictures))
    head, *body = read_csv(files["methods.csv"])
    assert [line[0] for line in body] == ["original", *record.run.experiment.methods]
    perplexity = {line[0]: float(line[head.index("perplexity")]) for line in body}
    assert perplexity["ghosted"] == record.run.method("ghosted").perplexity["python-docs"]
    assert "Perplexity on python-docs" in files["README.txt"] and "14–18" in files["README.txt"]
    assert "Warning: Only 16,384 tokens" in files["README.txt"]
    tokens = read_csv(files["generations.csv"])
    assert len(tokens) == 1 + 4 * (1 + len(EXPERIMENT.methods)) and tokens[1][3] == NASTY[0]
    assert Experiment(**as_tuples(json.loads(files["settings.json"]))) == EXPERIMENT
    assert as_csv.write(record, pictures) == as_csv.write(record, pictures)


def as_tuples(settings):
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def test_json_holds_what_compare_prints_and_the_record(record):
    found = json.loads(as_json.write(record, {}))
    assert found["compare"] == json.loads(json.dumps(compare_json(record.run)))
    assert found["columns"][1]["method"] == "none" and found["columns"][1]["text"].startswith(NASTY[0])
    again = Record.from_json(found["record"])
    assert again.run.experiment == EXPERIMENT and again.portraits.keys() == record.portraits.keys()


def test_an_exported_run_comes_back_and_draws_the_same(record, pictures):
    import gradio as gr

    imported = settings_file.parse(as_json.write(record, {}))
    assert imported.experiment == EXPERIMENT == imported.record.run.experiment and imported.notices == ()
    assert imported.record.source == "imported"
    with gr.Blocks():
        shown = {}
        for name in panels.PANELS:
            shown |= panels.module(name).show(panels.module(name).build(), imported.record)
    again = pictures_of(shown)
    assert again.keys() == pictures.keys()
    for name, figure in again.items():
        for here, there in zip(rows(figure), rows(pictures[name]), strict=True):
            assert all(close(here[key], there[key]) for key in there), name


def close(here, there):
    """The operator's picture is kept in half precision."""
    both_numbers = isinstance(here, (int, float)) and isinstance(there, (int, float))
    return here == pytest.approx(there, rel=2e-3, abs=2e-4) if both_numbers else here == there


def test_settings_exported_and_imported_again_give_identical_numbers(tmp_path, monkeypatch):
    from tiny import TINY, tokenizer

    from ghosted.run import run

    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    TINY("llama").save_pretrained(tmp_path / "tiny")
    tokenizer().save_pretrained(tmp_path / "tiny")
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Line {i} says that {i * i % 89} birds sang. " for i in range(700)))
    experiment = Experiment(model=str(tmp_path / "tiny"), text=str(text), tokens=1024, window=64, criterion="cosine",
                            count=2, windows=2, methods=("none", "ghosted"), prompt="Line", max_new_tokens=3)
    first = drain(run(experiment))
    uploads = hashes([str(text)])
    imported = settings_file.parse(as_json.write(Record.of(first), {}, uploads), uploads)
    assert [("model" in said) for said in imported.notices] == [True]
    again = drain(run(dataclasses.replace(imported.experiment, model=experiment.model)))
    numbers = [compare_json(each) for each in (first, again)]
    for each in numbers:
        del each["seconds"]
    assert numbers[0] == numbers[1]
    assert [c.tokens for c in first.columns] == [c.tokens for c in again.columns]


def test_no_path_leaves_the_machine(record, pictures):
    path = next(iter(PATHS))
    hidden = dataclasses.replace(EXPERIMENT, text=path, held_out=path, evaluate=(path, "c4"), model="/secret/model")
    secret = dataclasses.replace(record, run=dataclasses.replace(record.run, experiment=hidden))
    for uploads in ({}, {digest: path for path, digest in PATHS.items()}):
        files = unzipped(as_csv.write(secret, pictures, uploads))
        written = [*files.values(), as_json.write(secret, {}, uploads).decode(),
                   report.write(secret, {}, uploads).decode()]
        assert all("/secret" not in each for each in written)
    assert "sha256:" + "ab" * 32 in files["settings.json"]


@pytest.mark.parametrize("data", [
    b"", b"\xff\xfe", b"no json", b"[]", b"3", b"null", b"{}", b'{"a": 1}', b'{"experiment": 3}', b'{"experiment": {}}',
    b'{"experiment": {"tokens": NaN}}', b'{"tokens": Infinity}', b'{"tokens": "many"}', b'{"tokens": true}',
    b'{"tokens": 1.5}', b'{"tokens": -1}', b'{"tokens": 1e400}', b'{"methods": "ghosted"}', b'{"methods": [3]}',
    b'{"methods": []}', b'{"methods": ["magic"]}', b'{"criterion": "magic", "count": 3}', b'{"remove": [3]}',
    b'{"remove": "x"}', b'{"model": null}', b'{"prompt": {"a": 1}}', b'{"text": "c4", "surprise": 1}',
    b'{"format": "ghosted-export", "version": 99}', b'{"format": "ghosted-export", "version": 1}',
    b'{"format": "ghosted-export", "version": 1, "record": {"format": "ghosted-record"}}',
    b'{"format": "ghosted-record", "version": 1, "run": {}, "portraits": {}, "source": "live", "when": 3}',
    b"[" * 200_000, b'{"tokens": ' + b"9" * 6000 + b"}", b'{"ridge": "soft"}',
])
def test_a_foreign_file_gets_one_sentence(data):
    with pytest.raises(InputError) as caught:
        settings_file.parse(data)
    said = str(caught.value)
    assert "\n" not in said and said[-1] in ".?" and len(said) < 300


def test_a_damaged_run_gets_one_sentence(record):
    for where, value in ((("run", "methods"), [{"method": "ghosted", "perplexity": {"a": "<img>"}}]),
                         (("run", "similarity", "cosine"), "x"), (("portraits", "ghosted", "reduced"), 3),
                         (("run", "columns"), [{"method": 3}]), (("run", "removed"), "9-3"), (("source",), "magic")):
        found = json.loads(as_json.write(record, {}))
        inner = found["record"]
        for step in where[:-1]:
            inner = inner[step]
        inner[where[-1]] = value
        with pytest.raises(InputError):
            settings_file.parse(json.dumps(found).encode())


def test_a_file_that_is_too_large_or_missing_gets_one_sentence(tmp_path):
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(settings_file.LARGEST + 1)
    for path in (large, tmp_path / "missing.json", tmp_path):
        with pytest.raises(InputError, match=r"^[^\n]*\.$"):
            settings_file.read(str(path))


def test_settings_alone_and_what_compare_prints_are_read(record, pictures):
    files = unzipped(as_csv.write(record, pictures))
    assert settings_file.parse(files["settings.json"].encode()).experiment == EXPERIMENT
    chosen = record_of(dataclasses.replace(DEFAULT, criterion="cosine", max_new_tokens=2))
    printed = json.dumps(compare_json(chosen.run)).encode()
    read = settings_file.parse(printed)
    assert read.experiment == dataclasses.replace(chosen.run.experiment, dtype="bfloat16") and read.record is None


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self._in = [], [], False

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "script" and not attributes:
            self._in = True
            self.scripts.append("")

    def handle_data(self, data):
        if self._in:
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self._in = False


def test_the_report_is_one_closed_file(record, pictures):
    html = report.write(record, pictures).decode()
    found = Tags()
    found.feed(html)
    names = [tag for tag, _ in found.tags]
    assert not {"img", "link", "iframe", "object", "base", "form", "a"} & set(names)
    assert not any(key in ("src", "href") or key.startswith("on") for _, attributes in found.tags for key in attributes)
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe-eval" not in policy
    allowed = {b64decode(each) for each in re.findall(r"'sha256-([^']+)'", policy)}
    assert {hashlib.sha256(script.encode()).digest() for script in found.scripts} == allowed and len(allowed) == 2
    assert html.count("plotly.js v") >= 1 and html.count("data-figure=") == len(pictures)
    assert len(html) < 8_000_000


def test_the_report_says_everything_and_escapes_it(record, pictures):
    html = report.write(record, pictures).decode()
    body = html[html.index("<main"):html.index("</main>")]
    for said in ("removes blocks 14–18 (5 of 30)", "Perplexity on python-docs", "Only 16,384 tokens", "ridge",
                 "python -m ghosted compare", "--remove 14-18", "from ghosted.run import", "self-check passed"):
        assert said in body, said
    assert "<img src=x" not in body and "&lt;img src=x onerror=alert(1)&gt;" in body and "<b>bold" not in body
    assert body.count("</script>") == len(pictures)


def test_an_unfinished_run_can_be_exported():
    whole = make_run(pace=0, steps=1)(EXPERIMENT)
    run = next(event.run for event in whole if getattr(event, "part", "") == "similarity")
    early = Record.of(run)
    for form in (as_csv, as_json, report):
        assert form.write(early, {})
    assert settings_file.parse(as_json.write(early, {})).record.run.methods == []
