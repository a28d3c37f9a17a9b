"""What one server does for its visitors, who can reach it, and the sentence at every bound."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import hub as hub_stand_in
import pytest

from analysis import limits, serving
from analysis.limits import ALONE, DEMO, FLAGS, SHARED, Limits, flag_of
from analysis.runner import Runner
from analysis.session import Sessions
from ghosted.errors import GhostedError, InputError, ResourceError
from ghosted.experiment import Experiment

ROOT = Path(__file__).parents[1]
NAMED = ("python-docs", "wikitext2")


def one_sentence(error):
    said = str(error.value)
    assert "\n" not in said and not said[0].islower() and said.endswith(".") and len(said) < 300
    return said


def parsed(*arguments, alone=True):
    parser = argparse.ArgumentParser(exit_on_error=False)
    serving.add_flags(parser)
    limits.add_flags(parser)
    return limits.limits_from(parser.parse_args(arguments), alone)


def test_every_bound_has_a_default_a_flag_and_a_description():
    bounds = {field.name for field in dataclasses.fields(Limits)} - {"local_paths", "any_model"}
    assert bounds == set(FLAGS)
    for name in bounds:
        size = name in ("memory", "cache", "upload")
        assert getattr(parsed(flag_of(name), "7M" if size else "7"), name) == (7 * 2**20 if size else 7)


def test_others_get_less_than_oneself_and_a_demo_least():
    assert parsed() == ALONE and parsed(alone=False) == SHARED
    assert parsed("--demo") == parsed("--demo", alone=False) == DEMO
    assert ALONE.local_paths and not SHARED.local_paths and not DEMO.local_paths and not DEMO.any_model
    for name in set(FLAGS) - {"memory"}:
        assert getattr(DEMO, name) <= getattr(SHARED, name) <= getattr(ALONE, name), name
    assert DEMO.memory is not None


@pytest.mark.parametrize(("changes", "says"), [
    ({"tokens": SHARED.text + 1}, "calibration tokens"),
    ({"windows": SHARED.text, "window": 512}, "tokens of scored text"),
    ({"calibration_window": SHARED.text + 1}, "tokens per calibration window"),
    ({"prompt": "x" * (SHARED.letters + 1)}, "letters of a prompt"),
    ({"max_new_tokens": SHARED.new_tokens + 1}, "new tokens"),
    ({"methods": tuple(f"m{i}" for i in range(SHARED.columns))}, "models side by side"),
    ({"distill": SHARED.steps + 1}, "steps of distillation"),
    ({"batch": SHARED.text + 1}, "windows at a time"),
    ({"text": "/etc/passwd"}, "upload the text"),
    ({"evaluate": ("/etc/passwd",)}, "upload the text"),
    ({"held_out": "~/.ssh/id_rsa"}, "upload the text"),
    ({"model": "/root"}, "Folders of the server"),
    ({"model": "weights.gguf"}, "Folders of the server"),
])  # fmt: skip
def test_what_is_too_much_is_refused_in_a_sentence_that_names_the_bound(changes, says):
    SHARED.check(Experiment(), (), NAMED)
    with pytest.raises(InputError, match=says) as error:
        SHARED.check(Experiment(**changes), (), NAMED)
    said = one_sentence(error)
    assert "of the server" in said or "start your own page with --max-" in said


def test_a_demo_has_its_own_models_only():
    DEMO.check(Experiment(model="qwen3-0.6b"), (), NAMED)
    for experiment in (Experiment(model="someone/tiny"), Experiment(model="smollm2-135m", revision="v9")):
        SHARED.check(experiment, (), NAMED)
        with pytest.raises(InputError, match="This demo has") as error:
            DEMO.check(experiment, (), NAMED)
        one_sentence(error)


@pytest.mark.parametrize(("bounds", "tasks", "items", "says"), [
    (SHARED, ["ARC-e"], SHARED.items + 1, "items per task"),
    (SHARED, ["/tmp/task.yaml"], 10, "files cannot be given"),
    (SHARED, ["../task"], 10, "files cannot be given"),
    (DEMO, ["mmlu"], 10, "This demo scores"),
])  # fmt: skip
def test_tasks_are_bounded_too(bounds, tasks, items, says):
    ALONE.check_tasks(tasks, items)
    with pytest.raises(InputError, match=says) as error:
        bounds.check_tasks(tasks, items)
    one_sentence(error)


def test_memory_uploads_and_the_queue_say_when_they_are_full():
    DEMO.check_memory(DEMO.memory)
    ALONE.check_memory(10**15)  # left to what is free, which the run itself looks at
    with pytest.raises(ResourceError, match="lends a run 8 GiB") as error:
        DEMO.check_memory(DEMO.memory + 2**30)
    one_sentence(error)
    SHARED.check_upload(SHARED.uploads - 1)
    with pytest.raises(InputError, match="uploaded texts"):
        SHARED.check_upload(SHARED.uploads)


def test_a_full_queue_is_refused_with_the_time_it_takes(monkeypatch):
    import threading

    gate = threading.Event()

    def run(experiment, cancel=None):
        gate.wait(20)
        yield from ()

    runner = Runner(run, pace=0.01, most=2)
    runner._took[Experiment] = 60.0
    for seed in range(3):
        runner.submit(str(seed), Experiment(seed=seed))
    with pytest.raises(ResourceError, match=r"2 runs wait already, .* in about 3 min") as error:
        runner.submit("late", Experiment(seed=9))
    one_sentence(error)
    assert runner.submit("late", Experiment(seed=1)).experiment.seed == 1  # the same as another's is no more work
    gate.set()


def test_a_page_too_many_is_told_and_an_idle_one_makes_room():
    now = [0.0]
    sessions = Sessions(most=2, idle=60, clock=lambda: now[0])
    sessions.admit("a")
    sessions.of("b").uploads.add("kept")
    with pytest.raises(ResourceError, match="open 2 times") as error:
        sessions.admit("c")
    one_sentence(error)
    assert sessions.of("c") is not sessions.of("c") and len(sessions) == 2
    now[0] = 50
    sessions.of("b")
    now[0] = 61
    sessions.admit("c")
    assert len(sessions) == 2 and sessions.of("b").uploads == {"kept"}


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "x", "", "9" * 30, "１"])
def test_a_bound_that_is_no_number_is_refused(wrong):
    with pytest.raises(argparse.ArgumentError, match="whole number of at least 1"):
        parsed(f"{flag_of('tokens'[:0] + 'text')}={wrong}")
    if wrong not in ("1.5", "9" * 30):
        with pytest.raises(argparse.ArgumentError, match="a size such as"):
            parsed(f"{flag_of('memory')}={wrong if wrong != '-1' else '-1G'}")


@pytest.mark.parametrize(("host", "environment", "alone"), [
    ("127.0.0.1", {}, True), ("localhost", {}, True), ("::1", {}, True), ("[::1]", {}, True), ("127.0.0.2", {}, True),
    ("0.0.0.0", {}, False), ("::", {}, False), ("192.168.1.4", {}, False), ("localhost.evil.example", {}, False),
    ("127.0.0.1.evil.example", {}, False), ("", {}, False), ("127.0.0.1", {"SPACE_ID": "a/b"}, False),
    ("127.0.0.1", {"GRADIO_SHARE": "True"}, False), ("127.0.0.1", {"GRADIO_SHARE": "False"}, True),
    ("127.0.0.1", {"GRADIO_ROOT_PATH": "/ghosted"}, False),
])  # fmt: skip
def test_whatever_is_not_bound_to_this_machine_is_shared(host, environment, alone):
    assert serving.is_alone(host, environment) is alone


def test_accounts_come_from_the_flag_or_a_file(tmp_path):
    assert serving.accounts("teacher:a:b") == [("teacher", "a:b")]
    listed = tmp_path / "class.txt"
    listed.write_text("# the class\nann:one\n\nben:two words\n")
    assert serving.accounts(str(listed)) == [("ann", "one"), ("ben", "two words")]
    for wrong in ("teacher", ":secret", "teacher:", str(tmp_path / "missing")):
        with pytest.raises(InputError, match="--auth wants USER:PASSWORD") as error:
            serving.accounts(wrong)
        assert "secret" not in one_sentence(error)
    listed.write_text("# nobody\n")
    with pytest.raises(InputError, match="names nobody"):
        serving.accounts(str(listed))
    listed.write_bytes(b"\xff\xfe")
    with pytest.raises(GhostedError, match="cannot be read"):
        serving.accounts(str(listed))


TOKENLESS = """
import os, sys
from analysis import serving
os.environ.update(serving.shared_environment() if sys.argv[1] == "shared" else {})
from ghosted import models
try:
    models.describe("someone/missing")
except Exception:
    pass
"""


@pytest.mark.parametrize(("where", "sent"), [("shared", False), ("alone", True)])
def test_visitors_models_are_not_fetched_with_the_owners_token(where, sent, tmp_path):
    with hub_stand_in.serving() as (stand_in, address):
        environment = os.environ | {"HF_ENDPOINT": address, "HF_TOKEN": "hf_ownersown", "HF_HUB_CACHE": str(tmp_path),
                                    "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
                                    "PYTHONPATH": str(ROOT)}  # fmt: skip
        environment.pop("HF_HUB_DISABLE_IMPLICIT_TOKEN", None)
        environment.pop("SPACE_ID", None)
        subprocess.run([sys.executable, "-c", TOKENLESS, where], env=environment, cwd=ROOT, check=True, timeout=120)
        assert stand_in.asked and any("hf_ownersown" in token for token in stand_in.tokens) is sent


def test_the_queue_of_the_page_holds_more_handlers_than_can_wait(tmp_path):
    from fake_run import facts, make_run

    from analysis.page import build_page, look_and_feel

    page = build_page(make_run(pace=0, steps=1), facts, limits=SHARED)
    options = look_and_feel(SHARED)
    assert options["max_threads"] >= 2 * SHARED.sessions + 40 and options["max_file_size"] == SHARED.upload
    assert page._queue.max_size >= 4 * SHARED.sessions
    assert json.dumps(page._queue.default_concurrency_limit) == str(SHARED.sessions)
