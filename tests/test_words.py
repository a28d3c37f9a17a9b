"""Is everything that the page says in the catalogue, in both languages, and is everything in the catalogue said?"""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_run import facts, make_run, measure, outlook, take

from analysis import precomputed
from analysis.first_words import asked_in
from analysis.names import choices, label_in
from analysis.page import build_page
from analysis.panels import parts
from analysis.panels.status import resaid
from analysis.record import Record
from analysis.settings import DEFAULT, FIELDS, values_of
from analysis.shown import Shown
from analysis.speech import as_here, language, say, speaking
from analysis.teaching import Teaching
from analysis.words import LANGUAGES, catalogue, said
from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.registry import members

ROOT = Path(__file__).parents[1]
ENGLISH = {"bench", "commands", "export", "code.py", "endpoints.py", "sweeps.py", "serving.py", "zero_gpu.py",
           "precomputed.py", "lessons"}
"""Modules of ``analysis`` that a visitor does not read: commands, exported files, the HTTP endpoints, lessons' data."""
PYTHON = [path for path in sorted((ROOT / "analysis").rglob("*.py"))
          if not ENGLISH & set(path.relative_to(ROOT / "analysis").parts)]
SCRIPTS = [path for path in sorted((ROOT / "assets").rglob("*.js")) if "report" not in path.parts]
SAME = {  # names, units and words that German has taken over
    "minutes", "controls.run", "controls.tokens", "controls.prompt", "controls.ridge", "texts.ptb", "columns.kl",
    "operators.linearpatch-diag", "operators.procrustes", "formats.adapter", "formats.checkpoint", "operator.method",
    "operator.pair_hover", "share.python", "take.format", "runs.text", "status.took", "status.progress",
    "boundary.share", "similarity.pick_hover",
}
ALLOWED = (  # what stays English, by how it begins
    "(text", "(file)", "\0: name", "the default model is not", "the panel %s",
    "a lesson's run is missing",  # scripts, logs
    "Photosynthesis is", "ln(perplexity",  # the default prompt, a formula of the cheat sheet
    "memory that", "what is kept", "size of an", "uploaded texts", "tokens of cal", "letters of", "new tokens per",
    "models side", "steps of", "items per", "runs that", "tighter where", "it must be a",  # help of the command line
    "An array in this", "The picture of the op", "The operator in this", "This file is no run", "This run was exported",
    "This run's file", "This run needs about", "The run failed in a way",  # read from files, or said while computing
)
SHOWN = {"label", "info", "placeholder", "title", "title_text", "hovertemplate", "text"}
"""Arguments whose words a visitor sees, on components and in figures."""


def places(text):
    """Return the places of a text; ``\\text{word}`` of a formula is none."""
    return sorted(re.findall(r"(?<!\\text)\{\w+\}", text))


def test_every_text_is_there_in_both_languages_with_the_same_places():
    for key, texts in catalogue().items():
        assert list(texts) == list(LANGUAGES) and all(texts.values()), key
        assert set(places(texts["en"])) == set(places(texts["de"])), key
    same = {key for key, texts in catalogue().items() if texts["en"] == texts["de"]}
    assert set(catalogue()) >= SAME, sorted(SAME - set(catalogue()))
    assert same <= SAME, f"still English, or the same in German: {sorted(same - SAME)}"


def test_the_catalogue_calls_methods_what_their_own_files_do():
    for kind in ("operators", "criteria", "formats", "texts"):
        for name, member in members(f"ghosted.{kind}").items() if kind != "texts" else ():
            if f"{kind}.{name}" in catalogue():
                assert catalogue()[f"{kind}.{name}"]["en"] == member.LABEL
    assert label_in("ghosted.criteria", "manual") == "chosen by hand"
    with speaking("de"):
        assert label_in("ghosted.criteria", "manual") == "von Hand gewählt"
        assert dict(map(reversed, choices("ghosted.operators")))["none"] == "bloßes Streichen"
        assert dict(map(reversed, choices("ghosted.operators")))["ghosted"] == "ghosted"


def literals(path):
    """Yield the strings of a module that are no docstrings: constants, and f-strings with their holes as a pattern."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node, "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inside | told):
            yield node, node.value


def pattern(text):
    return re.compile(".+".join(map(re.escape, text.split("\0"))))


def spoken():
    """Return what code says: keys, and patterns of keys."""
    found = [text for path in PYTHON for _, text in literals(path)]
    for path in (ROOT / "analysis" / "lessons").glob("*.py"):
        found += [text for _, text in literals(path)]
    for path in SCRIPTS:
        script = path.read_text("utf-8")
        found += re.findall(r"\"([\w.+-]+)\"", script)
        found += [re.sub(r"\$\{[^}]*\}", "\0", text) for text in re.findall(r"`([\w.${}\[\]]+)`", script)]
    return {text for text in found if re.fullmatch(r"[\w.+\0-]+", text)}


def test_every_text_is_said_somewhere():
    exact = {text for text in spoken() if "\0" not in text}
    patterns = [pattern(text) for text in spoken() if "\0" in text and "." in text]
    registered = re.compile(r"(operators|criteria|formats|texts|about|controls|stage)\..+")  # by a registry's names
    unused = [key for key in catalogue() if key not in exact and not registered.fullmatch(key)
              and not any(each.fullmatch(key) for each in patterns)]
    assert not unused


def test_every_text_that_is_said_is_there_with_values_for_its_places():
    wrong = []
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say" and node.args):
                continue
            key = node.args[0]
            keys = [part.value for part in ast.walk(key) if isinstance(part, ast.Constant) and "." in str(part.value)]
            for each in keys if not isinstance(key, ast.JoinedStr) else []:
                given = {word.arg for word in node.keywords}
                known = {place[1:-1] for place in places(catalogue().get(each, {}).get("en", "{missing}"))}
                if None not in given and not known <= given:
                    wrong.append(f"{path.name}:{node.lineno} {each} {sorted(known - given)}")
    for path in SCRIPTS:
        for key in re.findall(r"say\(\"([\w.]+)\"", path.read_text("utf-8")):
            wrong += [] if key in catalogue() else [f"{path.name} {key}"]
    assert not wrong


def words_of(text):
    """Return the words of a literal that a person would read, without tags, formulas and places of plotly."""
    bare = re.sub(r"<[^>]*>?|\$[^$]*\$|%\{[^}]*\}|data-[\w-]+|gl-[\w-]+", " ", text.replace("\0", " "))
    return re.findall(r"(?<![\w.'=/-])[A-Za-z]{2,}(?![\w('=/-])", bare)


def test_no_component_or_figure_says_a_literal():
    wrong = []
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            for word in node.keywords:
                value = word.value
                if word.arg not in SHOWN or not isinstance(value, (ast.Constant, ast.JoinedStr)):
                    continue
                parts_ = value.values if isinstance(value, ast.JoinedStr) else [value]
                text = "".join(str(part.value) for part in parts_ if isinstance(part, ast.Constant))
                if len(words_of(text)) and not re.fullmatch(r"[\w.-]+", text):
                    wrong.append(f"{path.name}:{node.lineno} {word.arg}={text!r}")
    assert not wrong


def test_no_module_of_the_page_writes_a_sentence_of_its_own():
    wrong = []
    for path in PYTHON:
        for node, text in literals(path):
            sentence = " ".join(words_of(text))
            if re.search(r"\b[A-Za-z]{3,} [a-z]{2,} [a-z]{2,} ?[a-z]*\b", sentence) and not text.startswith(ALLOWED):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {text[:70]!r}")
    assert not wrong


@pytest.fixture(scope="module")
def record():
    asked = Experiment(remove="14-18,22", methods=("none", "linearpatch", "ghosted", "best"), prompt="x",
                       max_new_tokens=3)
    return Record.of(drain(make_run(pace=0, steps=1)(asked)))


@pytest.fixture(scope="module")
def page(record):
    return build_page(make_run(), facts, first=lambda: record, measure=measure, take=take, outlook=outlook)


def sent(page, tongue):
    """Return all that the server sends to a visitor who opens the page in a language, as text."""
    opening = next(fn.fn for fn in page.fns.values() if fn.name == "reword").__self__
    request = SimpleNamespace(session_hash="v", query_params={"lang": tongue}, headers={})
    opened = opening.open(request)
    with speaking(tongue):
        told = opening.reword(request, *(values_of(DEFAULT)[name] for name in FIELDS))
    reached = next(fn for fn in page.fns.values() if fn.name == "reword").outputs
    assert set(told) <= set(reached)
    return "\n".join(str(v.get_config() if hasattr(v, "get_config") else v) for v in (opened | told).values())


def test_what_the_server_sends_is_german_throughout(page):
    text = sent(page, "de")
    long = {key: texts for key, texts in catalogue().items()
            if key not in SAME and len(texts["en"]) > 12 and not places(texts["en"])}
    assert not [key for key, texts in long.items() if texts["en"] in text]
    assert sum(texts["de"] in text for texts in long.values()) > 100


def test_the_button_of_the_menu_changes_the_language_of_what_stands_there(page):
    bound = (getattr(fn.fn, "__self__", None) for fn in page.fns.values())
    teaching = next(each for each in bound if isinstance(each, Teaching))
    layout, request = teaching.live.layout, SimpleNamespace(session_hash="w", query_params={}, headers={})
    teaching.opening.open(request)
    assert page.language_of("w") == page.language_of("nobody") == "en"
    for tongue in ("de", "en"):
        event = SimpleNamespace(asked=json.dumps(["lang", tongue]))
        shown = teaching.act(event, request)
        assert page.language_of("w") == json.loads(shown[layout.bus])["language"] == tongue
        assert said("status.ready", tongue, criterion="best", count=5) in shown[layout.status.line]


def test_a_drawing_that_is_kept_does_not_reach_a_visitor_of_another_language(record):
    kept = Shown({"it": None})
    said_now = {}
    for tongue in ("en", "de", "en"):
        with speaking(tongue):
            said_now.setdefault(tongue, []).append(kept.of(record, "it", lambda _, __: {"says": say("scores.title")}))
    show = lambda _, __: {"says": say("scores.title")}  # noqa: E731
    with speaking("de"):
        german = kept.of(record, "it", show)
    with speaking("en"):
        assert kept.of(record, "it", show) != german
    assert said_now["en"][0] != said_now["de"][0]


def test_the_stages_of_the_library_have_german_names():
    for stage, german in (("calibrating", "kalibriert"), ("held-out error of 12-16", "Fehler von 12-16 auf"),
                          ("reading blocks 3-4", "liest Blöcke 3-4"), ("scoring ranges", "bewertet Bereiche")):
        assert resaid(stage) == stage
        with speaking("de"):
            assert resaid(stage).startswith(german)
    known = [re.sub(r"\{[^}]*\}", "x", text) for path in (ROOT / "ghosted").rglob("*.py")
             if "bench" not in path.parts and path.name != "sweep.py"
             for text in re.findall(r"Stage\(f?\"([^\"]*)\"", path.read_text("utf-8"))]
    with speaking("de"):
        unnamed = {text for text in known if resaid(text) == text}
    assert len(known) > 20 and unnamed <= {"error after all gaps, x text"}, "x is one of the two splits"


def test_another_thread_speaks_as_is_spoken_here_and_outside_is_english():
    with speaking("de"):
        call = as_here(say, "status.starting")
    assert language() == "en" and call() == said("status.starting", "de") != say("status.starting")


def test_a_component_says_its_words_again():
    import gradio as gr

    with gr.Blocks():
        field = parts.worded(gr.Number, 3, words={"label": "controls.window"}, precision=0)
    assert field.label == "Window"
    with speaking("de"):
        assert parts.reworded(field) == {"__type__": "update", "label": "Fenster"}


def test_the_page_opens_in_its_visitors_language():
    page = build_page(make_run(pace=0, steps=1), facts, first=precomputed.record)
    english, described = json.dumps(page.config), page.get_api_info()
    with speaking("de"):
        german = json.dumps(page.config, ensure_ascii=False)
        assert page.get_api_info() == described, "the endpoints are described once for all"
    for key in ("controls.text", "layer_map.text", "boundary.title", "lessons", "about.python-docs"):
        assert said(key, "de") in german and said(key, "en") not in german, key
    assert json.dumps(page.config) == english and said("controls.text", "en") in english
    ids = [[each["id"] for each in json.loads(config)["components"]] for config in (german, english)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(("path", "query", "header", "tongue"), [
    ("/", b"lang=de", b"en", "de"), ("/", b"", b"de-AT,en;q=0.5", "de"), ("/config", b"lang=en", b"de", "en"),
    ("/ui/", b"lang=de", b"", "de"), ("/gradio_api/info", b"lang=de", b"de", "en"),
    ("/", b"lang=%ff&lang", b"\xff", "en"),
])  # fmt: skip
def test_who_asks_for_the_page_says_in_which_language(path, query, header, tongue):
    root = "/ui" if path.startswith("/ui") else ""
    scope = {"type": "http", "path": path, "root_path": root, "query_string": query,
             "headers": [(b"Accept-Language", header)]}
    assert asked_in(scope) == tongue
