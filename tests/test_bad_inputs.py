"""Bad inputs of every way in, each with the sentence it gets: no traceback, no error 500, and nothing is lost.

The page's handlers, its HTTP endpoints, the command line, text files, imported files, links, adapters. More on adapters
is in ``test_adapter.py``, on model folders in ``test_refusals.py``.
"""

import asyncio
import dataclasses
import inspect
from types import SimpleNamespace

import gradio as gr
import pytest
from fake_run import facts, make_run
from gradio_client import Client
from gradio_client.exceptions import AppError
from pages import served
from test_cli import SMALL, folder  # noqa: F401
from test_page import forms, live, opening, values

from analysis.endpoints import Endpoints, _typed
from analysis.export import settings_file
from analysis.limits import SHARED
from analysis.link import experiment_of
from analysis.measuring import Asked
from analysis.page import build_page
from analysis.panels import layer_map
from analysis.settings import DEFAULT, FIELDS
from ghosted.__main__ import main
from ghosted.adapter import Adapter
from ghosted.errors import GhostedError, InputError, TextError
from ghosted.experiment import Experiment
from ghosted.removed import RemovedBlocks
from ghosted.texts import file


def visitor(name):
    return SimpleNamespace(session_hash=name)


def one_sentence(said):
    assert said and "\n" not in said and "Traceback" not in said and len(said) < 400
    return said


# The page: what Run says to settings that make no sense


@pytest.fixture(scope="module")
def page():
    return build_page(make_run(pace=0, steps=1), facts, limits=SHARED)


BY_HAND = {"criterion": "manual", "remove": "12-16"}
SETTINGS = [
    ({"model": ""}, "No model is chosen"), ({"model": None}, "No model is chosen"),
    ({"model": "  "}, "No model is chosen"),
    ({"model": "/etc"}, "Folders of the server"), ({"model": "../weights"}, "Folders of the server"),
    ({"model": "~/models/x"}, "Folders of the server"), ({"model": "x.gguf"}, "Folders of the server"),
    ({"model": "a/b/c"}, "Folders of the server"), ({"model": "\\\\host\\share"}, "Folders of the server"),
    ({"model": "tests"}, "Folders of the server"),
    ({"text": ""}, "No text is chosen"), ({"text": "/etc/passwd"}, "upload the text"),
    ({"text": "file:///etc/passwd"}, "upload the text"), ({"text": "README.md"}, "upload the text"),
    ({"evaluate": "c4,/etc/passwd"}, "upload the text"), ({"held_out": "/etc/shadow"}, "upload the text"),
    ({"tokens": None}, "tokens is empty"), ({"tokens": -5}, "tokens must be"), ({"tokens": 0}, "tokens must be"),
    ({"tokens": 1.5}, "must be a whole number, not 1.5"), ({"tokens": 1e12}, "tokens must be"),
    ({"tokens": float("inf")}, "whole number, not inf"), ({"tokens": float("nan")}, "whole number, not nan"),
    ({"tokens": "lots"}, "whole number, not lots"), ({"tokens": [1]}, "whole number"),
    ({"tokens": 10**7}, "--max-text"),
    ({"window": None}, "window is empty"), ({"window": 1}, "window must be"), ({"window": 10**9}, "window must be"),
    ({"window": 10**6}, "--max-text"), ({"calibration_window": 1}, "calibration window must be"),
    ({"count": None}, "count is empty"), ({"count": 0}, "needs a count"), ({"count": 10**9}, "count must be"),
    ({"methods": []}, "No method is chosen"), ({"methods": None}, "No method is chosen"),
    ({"methods": [f"m{i}" for i in range(40)]}, "--max-columns"),
    ({"prompt": "x" * 50_000}, "--max-letters"), ({"max_new_tokens": 0}, "max new tokens must be"),
    ({"max_new_tokens": 5000}, "max new tokens must be"), ({"max_new_tokens": 2000}, "--max-new-tokens"),
    ({"temperature": None}, "temperature is empty"), ({"temperature": -1}, "temperature must be"),
    ({"temperature": 1e9}, "temperature must be"), ({"temperature": "hot"}, "temperature must be a number"),
    ({"ridge": "big"}, "ridge must be auto"), ({"ridge": "-1"}, "ridge must be"), ({"ridge": "nan"}, "ridge must be"),
    ({"rank": -1}, "rank must be"), ({"rank": 2.5}, "rank must be a whole number"), ({"batch": -1}, "batch must be"),
    ({"batch": 10**6}, "--max-text"), ({"distill": -1}, "distill must be"), ({"distill": 5000}, "--max-steps"),
    ({"windows": 0}, "windows must be"), ({"windows": 10**6}, "--max-text"), ({"seed": -1}, "seed must be"),
    ({"seed": None}, "seed is empty"), ({"fit": "both"}, "no fit"), ({"dtype": "float16"}, "no dtype"),
    (BY_HAND | {"remove": "18-14"}, "runs backwards"), (BY_HAND | {"remove": "a"}, "Cannot read"),
    (BY_HAND | {"remove": "1;2"}, "Cannot read"), (BY_HAND | {"remove": "0-999999999"}, "longer than any model"),
    (BY_HAND | {"remove": "<script>"}, "Cannot read"), (BY_HAND | {"remove": "9" * 50}, "Cannot read"),
]


@pytest.mark.parametrize(("changes", "says"), SETTINGS, ids=[str(changes)[:60] for changes, _ in SETTINGS])
def test_run_says_what_is_wrong_and_starts_nothing(page, changes, says):
    handlers = live(page)
    said = handlers.start(visitor("bad"), *values(**changes))
    assert list(said) == [handlers.layout.status.line] and not handlers.runner.running("bad")
    line = one_sentence(said[handlers.layout.status.line])
    assert says in line.replace("&#x27;", "'") and "gl-failed" in line and "<script>" not in line


@pytest.mark.parametrize(("changes", "says"), [
    ({"remove": "40-50"}, "does not exist"), ({"remove": "0-29"}, "keep at least one"),
])  # fmt: skip
def test_what_only_the_run_can_know_is_its_last_word(page, changes, says):
    handlers = live(page)
    handlers.start(visitor("late"), *values(criterion="manual", **changes))
    job = handlers.runner.claim("late", "lines")
    ended = asyncio.run(handlers.runner.end(job, "late"))
    assert ended.how == "failed" and says in one_sentence(ended.said)


MAPS = ["", "x", "null", "[]", "{}", '{"gaps": 3}', '{"gaps": [[5]]}', '{"gaps": [["a", "b"]]}', '{"gaps": [[9, 3]]}',
        '{"gaps": [[0, 999999999999]]}', '{"gaps": [[-4, 2]]}', '{"gaps": [[1.5, 2]]}', '{"gaps": [[true, 2]]}',
        "[" * 9000, '{"gaps": [], "active": "x"}', None]  # fmt: skip


@pytest.mark.parametrize("value", MAPS, ids=[str(value)[:30] for value in MAPS])
def test_what_the_map_cannot_have_sent_is_told_beside_it(page, value):
    problem = live(page).layout.layer_map.problem
    form, who = forms(page), visitor("form")
    for said in (form.from_map(value), form.from_numbers(3, 5, value), form.from_text("3", value, who)):
        assert list(said) == [problem] and "role='alert'" in one_sentence(said[problem])
    previewing = next(fn.fn for fn in page.fns.values() if fn.name == "quick").__self__
    assert asyncio.run(previewing.from_map(visitor("map"), value, *values())) == gr.skip()


@pytest.mark.parametrize(("first", "last", "says"), [
    (9, 5, "runs backwards"), (float("nan"), 5, "whole number"), (3, float("inf"), "whole number"),
    (-3, 5, "Cannot read"), (1e17, 1e18, "does not exist"), (3, 99, "does not exist"),
])  # fmt: skip
def test_numbers_that_are_no_blocks_are_told_beside_them(page, first, last, says):
    panel = live(page).layout.layer_map
    said = forms(page).from_numbers(first, last, layer_map.map_value(30, RemovedBlocks.parse("3-7")))
    assert says in one_sentence(said[panel.problem]) and panel.remove not in said


@pytest.mark.parametrize("asked", [
    None, "", "x", "[1]", '["open"]', '["burn", 1]', '["open", "1"]', '["open", 9999]', {}, 7,
])  # fmt: skip
def test_a_button_that_the_list_of_runs_does_not_have_does_nothing(page, asked):
    table = live(page).layout.runs.table
    said = opening(page).act(SimpleNamespace(asked=asked), visitor("list"))
    assert table in said


@pytest.mark.parametrize("near", [None, 3, "x", ["x"], [None], [{}], {"boundary": 1}])
def test_panels_that_do_not_exist_are_never_near(page, near):
    assert opening(page).near(SimpleNamespace(panels=near), visitor("near")) == gr.skip()


@pytest.mark.parametrize(("query", "says"), [
    ({"model": "/etc/passwd"}, "cannot name a folder or file"), ({"text": "/etc/passwd"}, "no text"),
    ({"tokens": "999999999"}, "calibration tokens"), ({"prompt": "x" * 30_000}, "letters of a prompt"),
    ({"lesson": "nonsense.2"}, "nonsense&#x27;; the lessons are layer, cut, bridge, few, where."),
])  # fmt: skip
def test_a_link_that_asks_for_too_much_opens_the_page_with_a_sentence(page, query, says):
    handlers = live(page)
    request = SimpleNamespace(session_hash="link", query_params=query, headers={})
    shown = opening(page).open(request)
    assert says in one_sentence(shown[handlers.layout.status.line])
    assert not handlers.runner.busy and handlers.layout.bus in shown


# The HTTP endpoints


@pytest.fixture(scope="module")
def client():
    with served(make_run(pace=0.001, steps=1), limits=SHARED) as address:
        yield Client(address, verbose=False)


@pytest.mark.parametrize(("endpoint", "given", "said"), [
    ("/export", {"remove": "14", "method": "ghosted,none,symmetric"}, "One model is exported at a time"),
    ("/export", {"remove": "14", "format": "merged"}, "can be merged"),
    ("/export", {}, "Name the blocks to remove, such as 14-18"),
    ("/export", {"method": "none", "format": "mergekit"}, "Name the blocks to remove, such as 14-18"),
    ("/compare", {"remove": "18-14"}, "runs backwards"),
    ("/compare", {"remove": "14-18", "methods": ""}, "at least one method"),
    ("/compare", {"remove": "14", "criterion": "cosine", "count": 2}, "not both"),
    ("/compare", {"remove": "14", "ridge": "big"}, "ridge must be auto or a number"),
    ("/compare", {"remove": "14", "tokens": -3}, "tokens must be a whole number"),
    ("/compare", {"remove": "14", "text": "/etc/passwd"}, "cannot be read from this page"),
    ("/compare", {"remove": "14", "model": "/etc"}, "cannot be read from this page"),
    ("/choose", {"criterion": "manual"}, "chooses nothing"),
    ("/choose", {"criterion": "cosine", "count": 0}, "needs a count"),
    ("/generate", {"prompt": " "}, "Give the text to continue"),
    ("/compare", {"remove": "14", "tokens": 10**9}, "--max-text"),
    ("/compare", {"remove": "999"}, "does not exist"),
    ("/generate", {"prompt": "x", "remove": "14", "max_new_tokens": 4000}, "--max-new-tokens"),
    ("/generate", {"prompt": "x" * 30_000, "remove": "14"}, "--max-letters"),
    ("/generate", {"prompt": "x", "remove": "14", "temperature": -1}, "temperature must be"),
    ("/generate", {"prompt": "x", "remove": "14", "seed": -1}, "seed must be"),
])  # fmt: skip
def test_what_is_wrong_with_a_call_is_the_sentence_of_the_page(client, endpoint, given, said):
    with pytest.raises(AppError, match=said):
        client.predict(**given, api_name=endpoint)


ENDPOINTS = ("choose", "compare", "generate", "similarity", "decompose", "export")
ARGUMENTS = [(endpoint, name, about.annotation) for endpoint in ENDPOINTS
             for name, about in inspect.signature(getattr(Endpoints, endpoint)).parameters.items()
             if name not in ("self", "request")]  # fmt: skip
NEEDED = {"generate": {"prompt": "x", "remove": "14"}, "decompose": {"remove": "14"}, "export": {"remove": "14"}}


@pytest.mark.parametrize(("endpoint", "name", "kind"), ARGUMENTS)
def test_an_argument_of_another_type_is_named(endpoint, name, kind):
    call = _typed(getattr(Endpoints(None), endpoint))
    needs = {"request": None} if endpoint == "export" else {}
    for value in (None, ["x"], {"a": 1}, True, "x" if kind in (int, float) else 5):
        if name == "ridge" and value == 5:
            continue  # a number is as good as its text
        with pytest.raises(gr.Error, match=f"{name} must be (a text|a whole number|a number), not ") as error:
            asyncio.run(call(**needs | NEEDED.get(endpoint, {}) | {name: value}))
        one_sentence(error.value.message)


@pytest.mark.parametrize(("endpoint", "given"), [
    ("choose", {"count": None}), ("compare", {"remove": ["14-18"]}), ("generate", {"prompt": 5}),
    ("similarity", {"tokens": "many"}), ("decompose", {"methods": {"a": 1}}), ("export", {"format": None}),
    ("export", {"method": 5}),
])  # fmt: skip
def test_a_type_is_refused_over_http_and_nothing_is_logged(client, capfd, caplog, endpoint, given):
    (name,) = given
    with pytest.raises(AppError, match=f"^{name} must be "):
        client.predict(**NEEDED.get(endpoint, {}) | given, api_name=f"/{endpoint}")
    assert "Traceback" not in "".join((*capfd.readouterr(), caplog.text))


# What is measured on demand


@pytest.mark.parametrize(("what", "options", "said"), [
    ((), {}, "tick at least one box"),
    (("tasks",), {}, "No task is named"),
    (("texts",), {"limit": 0}, "from 1 to 100,000, not 0"),
    (("nothing",), {}, "tick at least one box"),
])  # fmt: skip
def test_what_cannot_be_measured_is_one_sentence(what, options, said):
    with pytest.raises(InputError, match=said):
        Asked(Experiment(remove="14-18"), what, **options)


# The command line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--remove", "40-50"], "does not exist"),
        (["--remove", "3-1"], "runs backwards"),
        (["--remove", "a-b"], "Cannot read"),
        (["--remove", "0-5"], "keep at least one"),
        (["--remove", "2", "--methods", "magic"], "no method 'magic'"),
        (["--remove", "2", "--methods", ""], "at least one method"),
        (["--remove", "2", "--tokens", "-4"], "tokens must be"),
        (["--remove", "2", "--tokens", "many"], "invalid int value"),
        (["--remove", "2", "--window", "9999"], "context"),
        (["--remove", "2", "--calibration", "empty.txt"], "empty"),
        (["--remove", "2", "--calibration", "one.txt"], "too short"),
        (["--remove", "2", "--calibration", "binary.txt"], "not"),
        (["--remove", "2", "--calibration", "nowhere.txt"], "nowhere.txt"),
        (["--remove", "2", "--evaluate", "empty.txt"], "empty"),
        (["--remove", "2", "--model", "no-such-model"], "no-such-model"),
        (["--remove", "2", "--model", "gpt2"], "openai-community/gpt2"),
        (["--remove", "2", "--criterion", "cosine", "--count", "2"], "not both"),
        (["--criterion", "cosine", "--count", "9"], "choose a count"),
        (["--criterion", "taylor+", "--count", "1"], "keeps the first 4 and the last 2 of these 6 blocks"),
        (["--criterion", "magic", "--count", "2"], "no criterion"),
        (["--criterion", "cosine"], "needs a count"),
        (["--remove", "2", "--dtype", "float16"], "no dtype"),
        (["--remove", "2", "--ridge", "-1"], "ridge must be"),
        (["--nonsense"], "Unrecognized"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, capsys, arguments, words):  # noqa: F811
    code = main(["compare", *SMALL, *arguments, "--json"])
    out, err = capsys.readouterr()
    assert code == 2 and out == ""
    assert words in err and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize("argv", [[], ["nothing"], ["choose"], ["choose", "--criterion", "manual", "--count", "2"],
                                  ["generate", "--remove", "2"], ["compare"], ["generate", "--prompt", "A"],
                                  ["generate", "--remove", "2", "--prompt", "  "], ["bench", "nothing"],
                                  ["bench", "classroom", "--students", "0"],
                                  ["bench", "classroom", "--minutes", "-1"]])  # fmt: skip
def test_a_wrong_command_is_one_sentence(argv, capsys):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err


# Text files


FILES = {
    "empty.txt": (b"", "is empty"),
    "blank.txt": (b" \n\t ", "is empty"),
    "binary.txt": (bytes(range(256)), "not UTF-8"),
    "nul.txt": (b"abc\x00def", "not UTF-8"),
    "latin.txt": ("Grüße".encode("latin-1"), "not UTF-8"),
    "broken.jsonl": (b'{"text": "a"}\n{"text": ', "Line 2"),
    "field.jsonl": (b'{"words": "a"}\n', "Line 1"),
    "number.jsonl": (b'{"text": 3}\n', "Line 1"),
    "list.jsonl": (b'["text"]\n', "Line 1"),
    "empty.jsonl": (b"\n\n", "is empty"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_gives_one_sentence(tmp_path, name):
    content, expected = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=expected) as raised:
        file.read(str(tmp_path / name))
    assert str(raised.value).count("\n") == 0 and str(raised.value).endswith(".")


# Links


@pytest.mark.parametrize("query", [
    "remove=12-", "remove=9-3", "tokens=lots", "tokens=-5", "tokens=1e3", "tokens=" + "9" * 30, "window=1", "ridge=nan",
    "ridge=inf", "ridge=-1", "temperature=hot", "temperature=1e999", "criterion=none", "criterion=cosine&count=0",
    "methods=magic", "methods=", "text=/etc/passwd", "text=../x.txt", "text=wikitext", "text=sha256:12", "model=gpt2",
    "model=/etc", "model=../x", "model=a.gguf", "model=", "model=a/b/c", "revision=../x", "held-out=/etc/passwd",
    "evaluate=c4,/etc/passwd", "dtype=float16", "fit=both", "chat=maybe", "seed=-1", "batch=0", "rank=0", "rank=x",
    "distill=-1", "max-new-tokens=0", "windows=0", "calibration-window=1", "count=-1", "methds=ghosted",
    "text=sha256:" + "0" * 64, "text=local", "model=local", "evaluate=local", "held-out=local",
    "tokens=%00", "tokens=%ff", "methods=%3Cimg%20src=x%20onerror=alert(1)%3E", "x" * 30_000,
])
def test_a_broken_value_gives_one_sentence_and_the_default(query):
    experiment, notices = experiment_of(query)
    assert len(notices) == 1 and notices[0][-1] in ".?" and "\n" not in notices[0] and len(notices[0]) < 300
    kept = {"criterion": "cosine"} if query.startswith("criterion=cosine") else {}
    kept |= {"evaluate": ("c4",)} if query.startswith("evaluate=c4") else {}
    assert experiment == dataclasses.replace(DEFAULT, **kept)


# Imported files, and adapters


IMPORTS = {
    "empty.json": (b"", "not JSON"), "binary.json": (bytes(range(256)), "not JSON"),
    "half.json": (b'{"format": ', "not JSON"),
    "list.json": (b"[]", "export"), "null.json": (b"null", "export"), "foreign.json": (b'{"a": 1}', "export"),
    "deep.json": (b"[" * 100_000, "not JSON"), "nan.json": (b'{"tokens": NaN}', "no number"),
    "wide.json": (b'{"tokens": "many"}', "settings"), "negative.json": (b'{"tokens": -3}', "tokens must be"),
    "evil.json": (b'{"methods": ["__import__"]}', "no method"), "none.json": (b'{"methods": []}', "no method"),
    "unknown.json": (b'{"tokens": 4, "shell": "rm"}', "no setting"),
    "version.json": (b'{"format": "ghosted-export", "version": 99}', "version|export"),
    "record.json": (b'{"format": "ghosted-record", "version": 1}', "damaged"),
    "pickle.safetensors": (b"\x80\x04cos\nsystem\n(S'id'\ntR.", "not|damaged|ghost"),
    "short.safetensors": (b"\xff" * 8, "not|damaged|ghost"), "empty.safetensors": (b"", "not|damaged|ghost"),
    "fake.zip": (b"PK\x03\x04", "zip|damaged|not"),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_a_file_that_is_not_ours_is_refused_in_a_sentence(tmp_path, name):
    content, says = IMPORTS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=says) as error:
        settings_file.read(str(tmp_path / name))
    one_sentence(str(error.value))


@pytest.mark.parametrize("name", ["pickle.safetensors", "short.safetensors", "empty.safetensors"])
def test_an_adapter_that_is_none_is_refused_in_a_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(IMPORTS[name][0])
    with pytest.raises(GhostedError) as error:
        Adapter.read(tmp_path / name)
    one_sentence(str(error.value))


def test_after_all_of_it_the_page_still_works(page):
    handlers = live(page)
    handlers.start(visitor("good"), *values(max_new_tokens=1, **BY_HAND))
    ended = asyncio.run(handlers.runner.end(handlers.runner.claim("good", "lines"), "good"))
    assert ended.how == "finished" and len(FIELDS) == len(handlers.layout.inputs())
