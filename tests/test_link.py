"""One experiment, one address: what is written is read back, what is broken is said, and code does the same."""

import argparse
import dataclasses
import shlex
from urllib.parse import parse_qsl

import pytest
from fake_run import NASTY
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis import code, link, portable
from analysis.link import Flags, experiment_of, query_of
from analysis.settings import DEFAULT
from ghosted import flags
from ghosted.commands import compare, generate
from ghosted.experiment import DTYPES, FITS, Experiment
from ghosted.models.entries import ENTRIES
from ghosted.registry import members
from ghosted.removed import RemovedBlocks
from ghosted.texts import SOURCES

DIGEST = "ab" * 32
UPLOADS = {DIGEST: "/uploads/my text.txt", "cd" * 32: "/uploads/other.jsonl"}


def rarely(strategy, otherwise):
    return st.one_of(st.just(otherwise), strategy)


WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._]{0,20}", fullmatch=True)
MODEL = st.one_of(st.sampled_from([e.name for e in ENTRIES]), st.builds("{}/{}".format, WORD, WORD)).filter(
    lambda name: ".." not in name and not name.lower().endswith(".gguf"))
TEXT = st.sampled_from([*SOURCES, *UPLOADS.values()])
EXPERIMENTS = st.builds(
    lambda chosen, **more: Experiment(**chosen, **more),
    chosen=st.one_of(
        st.builds(lambda blocks, count: {"remove": str(RemovedBlocks.of(blocks)), "count": count},
                  st.sets(st.integers(0, 40), max_size=12), st.integers(0, 40)),
        st.builds(lambda name, count: {"criterion": name, "count": count},
                  st.sampled_from([name for name in members("ghosted.criteria") if name != "manual"]),
                  st.integers(1, 40)),
    ),
    model=rarely(MODEL, DEFAULT.model), revision=rarely(WORD.filter(lambda name: ".." not in name), None),
    methods=st.lists(st.sampled_from(list(members("ghosted.operators"))), min_size=1, max_size=6).map(tuple),
    text=TEXT, tokens=st.integers(2, 10**9), window=st.integers(2, 10**6),
    calibration_window=rarely(st.integers(2, 10**6), None), held_out=rarely(TEXT, None),
    evaluate=st.lists(TEXT, max_size=3).map(tuple), windows=st.integers(1, 10**6),
    ridge=rarely(st.floats(0, 1e6), "auto"), rank=rarely(st.integers(1, 10**6), None), fit=st.sampled_from(FITS),
    distill=st.integers(0, 10**5), dtype=st.sampled_from(DTYPES), batch=rarely(st.integers(1, 10**6), None),
    seed=st.integers(0, 2**63 - 1), prompt=st.one_of(st.text(max_size=80), st.sampled_from(NASTY)), chat=st.booleans(),
    temperature=st.floats(0, 100), max_new_tokens=st.integers(1, 4096),
)


@settings(max_examples=300, deadline=None)
@given(EXPERIMENTS)
@example(DEFAULT)
@example(Experiment())
def test_a_link_is_read_back_as_the_same_experiment(experiment):
    query = query_of(experiment, UPLOADS)
    assert experiment_of(query, UPLOADS) == (experiment, [])
    assert experiment_of(dict(parse_qsl(query, keep_blank_values=True)), UPLOADS) == (experiment, [])
    assert "/uploads" not in query and query.isascii() and " " not in query


def test_a_link_says_only_what_differs_and_can_be_read_aloud():
    by_hand = dataclasses.replace(DEFAULT, criterion="manual", remove="3,12-17", methods=("none", "ghosted"))
    assert query_of(DEFAULT) == ""
    assert query_of(by_hand) == "remove=3,12-17&methods=none,ghosted"
    assert query_of(dataclasses.replace(by_hand, remove="")) == "remove=&methods=none,ghosted"
    assert query_of(dataclasses.replace(DEFAULT, ridge=1e-8, temperature=1.0, model="owner/name", chat=True)) == (
        "model=owner/name&ridge=1e-8&chat=1&temperature=1")


def test_a_link_written_by_hand_may_use_the_words_of_the_command_line():
    experiment, notices = experiment_of("?remove=7,+5–6&method=ghosted&calibration=wikitext2&max_new_tokens=8")
    assert notices == [] and experiment.criterion == "manual" and experiment.remove == "5-7"
    assert (experiment.methods, experiment.text, experiment.max_new_tokens) == (("ghosted",), "wikitext2", 8)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*link.NAMES.values(), "hide", "x"]), st.text(max_size=40)))
def test_no_link_makes_reading_fail(pairs):
    experiment, notices = experiment_of(pairs)
    assert isinstance(experiment, Experiment) and all(isinstance(notice, str) for notice in notices)
    Flags.of(pairs)


@pytest.mark.parametrize("text", ["", "&&&==", "a=%", "%%%", "=", "?", ";", "a" * 99, "\ud800=\ud800", "remove=\ud800"])
def test_rubbish_is_no_link(text):
    assert isinstance(experiment_of(text)[0], Experiment)


def test_injection_stays_text_and_comes_back_letter_by_letter():
    prompt = "".join(NASTY) + "\r\n\t&prompt=x#y?z=%41+"
    query = query_of(dataclasses.replace(DEFAULT, prompt=prompt))
    assert experiment_of(query)[0].prompt == prompt
    assert not set("<>`${}\"'#\\") & set(query)
    assert experiment_of(query_of(dataclasses.replace(DEFAULT, prompt="a\ud800b")))[0].prompt == "a\ufffdb"


def test_one_bad_value_leaves_the_others():
    experiment, notices = experiment_of("remove=3&tokens=many&methods=ghosted,magic,none")
    assert experiment == dataclasses.replace(DEFAULT, criterion="manual", remove="3", methods=("ghosted", "none"))
    assert len(notices) == 2 and "tokens" in notices[0] and "magic" in notices[1]


def test_blocks_and_a_criterion_together_are_said():
    experiment, notices = experiment_of("remove=3&criterion=cosine")
    assert experiment == dataclasses.replace(DEFAULT, criterion="cosine") and len(notices) == 1


def test_an_uploaded_text_is_named_by_its_content_and_asked_for(tmp_path):
    path = tmp_path / "secret name.txt"
    path.write_text("Some words.\n")
    experiment = dataclasses.replace(DEFAULT, text=str(path), held_out=str(path), evaluate=(str(path), "c4"))
    at_hand = portable.hashes([str(path), str(tmp_path / "missing"), str(tmp_path)])
    (digest,) = at_hand
    query = query_of(experiment, at_hand)
    assert f"text=sha256:{digest}" in query and "secret" not in query and str(tmp_path) not in query
    assert experiment_of(query, at_hand) == (experiment, [])
    elsewhere, notices = experiment_of(query)
    assert elsewhere == dataclasses.replace(DEFAULT, evaluate=("c4",))
    assert len(notices) == 3 and all("upload" in notice and digest[:12] in notice for notice in notices)


def test_paths_that_nobody_uploaded_are_not_named_not_even_by_their_content(tmp_path):
    (tmp_path / "x.txt").write_text("secret")
    experiment = dataclasses.replace(DEFAULT, model=str(tmp_path), text=str(tmp_path / "x.txt"))
    query = query_of(experiment)
    assert query == "model=local&text=local"
    assert [("upload" in n or "choose your own" in n) for n in experiment_of(query)[1]] == [True, True]


def test_a_relative_folder_is_a_folder_also_where_it_looks_like_a_hub_id(tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert query_of(dataclasses.replace(DEFAULT, model="owner/name")) == "model=local"
    assert experiment_of("model=owner/name")[0].model == DEFAULT.model


def test_flags_pass_through():
    assert Flags.of("lesson=cut.2").notices() == [] == Flags().notices()
    flagged = Flags.of("?hide=map,gl-run,%3Cb%3E&lesson=two%20gaps&embed=1&__theme=dark&remove=3")
    assert flagged == Flags(("map", "gl-run"), "two gaps", True, "dark")
    assert Flags.of(flagged.query()) == flagged and Flags().query() == ""
    assert experiment_of(flagged.query()) == (DEFAULT, [])


def test_the_address_is_the_spaces_where_there_is_one(monkeypatch):
    monkeypatch.delenv("SPACE_HOST", raising=False)
    assert link.address_of("http://127.0.0.1:7860/?remove=3") == "http://127.0.0.1:7860/"
    assert link.address_of("http://host/below/gradio_api/queue/join?") == "http://host/below/"
    monkeypatch.setenv("SPACE_HOST", "owner-name.hf.space")
    assert link.address_of("http://10.0.0.1:7860/gradio_api/queue/join") == "https://owner-name.hf.space/"
    monkeypatch.setenv("SPACE_HOST", "evil.com/<script>")
    assert link.address_of("http://host/") == "http://host/"


def parsed(line):
    words = shlex.split(line.replace("\\\n", " "))
    assert words[:3] == ["python", "-m", "ghosted"]
    command = {"compare": compare, "generate": generate}[words[3]]
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(words[4:])
    flags.require_blocks(args)
    return flags.experiment_from(args)


def one_experiment(lines):
    """What the commands say together: ``compare`` knows nothing of the prompt, ``generate`` nothing of the scores."""
    numbers, then, texts = lines.partition("\n\npython -m ghosted generate")
    first = parsed(numbers)
    if not then:
        return first
    second = parsed(then.strip() + texts)
    both = dataclasses.replace(first, **{name: getattr(second, name) for name in flags.GENERATION})
    assert second == dataclasses.replace(both, **{name: getattr(flags.DEFAULTS, name) for name in flags.SCORING})
    return both


@settings(max_examples=200, deadline=None)
@given(EXPERIMENTS)
@example(DEFAULT)
@example(dataclasses.replace(DEFAULT, prompt="-x 'y' \"z\" $HOME `ls` \\"))
def test_the_command_line_is_the_same_experiment(experiment):
    meant = code.meant(experiment)
    if not meant.prompt.strip():  # then no text is written, whatever else is set
        meant = dataclasses.replace(meant, **{name: getattr(flags.DEFAULTS, name) for name in flags.GENERATION})
    assert one_experiment(code.command_line(experiment)) == meant


@settings(max_examples=200, deadline=None)
@given(EXPERIMENTS)
@example(DEFAULT)
def test_the_python_code_is_the_same_experiment(experiment):
    source = code.python_code(experiment)
    compile(source, "shown", "exec")
    names = {"Experiment": Experiment}
    exec(source[source.index("experiment = "):source.index("found = ")], names)
    assert names["experiment"] == code.meant(experiment)


def test_code_is_short_and_names_uploads_by_their_file():
    experiment = dataclasses.replace(DEFAULT, criterion="manual", remove="12-16", text="/cache/ab12/my text.txt",
                                     methods=("none", "ghosted"), prompt="", windows=16)
    assert code.command_line(experiment, ["/cache/ab12/my text.txt"]) == (
        "python -m ghosted compare --remove 12-16 --methods none,ghosted --text 'my text.txt'")
    assert "/cache" not in code.python_code(experiment, ["/cache/ab12/my text.txt"])


def test_the_python_code_runs(tmp_path, monkeypatch, capsys):
    from tiny import TINY, tokenizer

    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    TINY("llama").save_pretrained("tiny-llama")
    tokenizer().save_pretrained("tiny-llama")
    (tmp_path / "text.txt").write_text("".join(f"Line {i} says that {i * i % 89} birds sang. " for i in range(700)))
    experiment = Experiment(model="tiny-llama", text="text.txt", tokens=1024, window=64, remove="2-3", windows=2,
                            methods=("none", "ghosted"), prompt="Line", max_new_tokens=3)
    exec(code.python_code(experiment), {})
    out = capsys.readouterr().out
    assert "removed 2-3" in out and "perplexity" in out and "original: " in out
