"""A class on one page, over HTTP: thirty equal runs are one, nobody's answer waits or is wrong, and all leave again."""

import threading
import time
from dataclasses import replace

import pytest
from fake_run import LEFT, decomposition, make_run, method_result
from pages import served

from analysis import runner
from analysis.bench import classroom
from analysis.bench._visitor import Refused, Site, Visitor
from analysis.link import query_of
from analysis.record import Record
from analysis.settings import FIELDS, values_of
from analysis.tables import left_line
from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.removed import RemovedBlocks, gap_name
from ghosted.results import Run

LESSON = Experiment(remove="12-16", methods=classroom.METHODS, prompt="The river", max_new_tokens=4, windows=8)


class States:
    """A stand-in for ghosted.preview.Preview whose numbers belong to the range."""

    def __init__(self, experiment):
        self.experiment = experiment

    def quick(self, removed, methods, cancel=None):
        gap = removed.gaps[0]
        run = Run(self.experiment, "model", 30, 64, "float32", removed)
        run.methods = [method_result(name, gap) for name in methods if name in LEFT]
        for each in run.methods:
            if each.residual is not None:
                each.residual = replace(each.residual, held_out=each.residual.held_out + gap.start / 100)
        run.decompositions = {"ghosted": decomposition("ghosted", gap_name(gap))}
        return run

    rest = quick

    def warm(self, methods, cancel=None):
        pass

    def prefetch(self, removed, methods, cancel=None):
        pass


class Counting:
    """The stand-in run, counted; ``gate`` holds it back."""

    def __init__(self, **options):
        self.run, self.asked, self.gate = make_run(**options), [], threading.Event()
        self.gate.set()

    def __call__(self, experiment, cancel=None, parts=None):
        self.asked.append(experiment)
        steps = self.run(experiment, cancel=cancel)
        while True:
            try:
                event = next(steps)
            except StopIteration as stop:
                return stop.value
            yield event
            while not self.gate.wait(0.02):
                cancel.check()


@pytest.fixture(scope="module")
def counting():
    return Counting(pace=0.002, steps=2)


@pytest.fixture(scope="module")
def site(counting):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "GRACE", 0.5)
        yield from opened(counting)


def opened(counting):
    with served(counting, preview=States) as address:
        yield Site(address)


def inputs(experiment):
    values = values_of(experiment)
    return [values[name] for name in FIELDS]


def line(visitor, answer):
    return answer[visitor.site.ids["gl-left"]]


def status(visitor, answer):
    return answer[visitor.site.ids["gl-status"]]


def at_once(works):
    """Do all of it at the same time and return what each gave, in order."""
    found = [None] * len(works)

    def do(place, work):
        try:
            found[place] = work()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=do, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def expected(plans):
    run = drain(make_run(pace=0, steps=1)(LESSON))
    lines = {LESSON.remove: left_line(Record.of(run))}
    for blocks in {each for student in plans for each in student.ranges}:
        lines[blocks] = left_line(Record.of(States(LESSON).quick(RemovedBlocks.parse(blocks), LESSON.methods)))
    texts = {}
    for number, student in enumerate(plans):
        columns = drain(make_run(pace=0, steps=1)(classroom.writing(LESSON, student))).columns
        texts[number] = [column.text for column in columns]
    return classroom.Expected(lines[LESSON.remove], lines, texts)


def test_a_small_class_gets_right_answers_only(site, counting):
    counting.asked.clear()
    plans = classroom.plan(2, 30)
    assert not set(plans[0].ranges) & set(plans[1].ranges) and plans[0].prompt != plans[1].prompt
    seen = classroom.drive(site, LESSON, plans, expected(plans), 4.0, lambda event: None, every=(0.8, 1.5, 2.0))
    found = classroom.figures(seen)
    assert (found["wrong"], found["lost"], found["errors"]) == (0, 0, 0), found["examples"]
    assert found["runs"] == 2 and found["range_changes"] >= 6 and found["cacheds"] >= 2 and found["generations"] >= 2
    assert sum(each == LESSON for each in counting.asked) == 1
    assert found["p95_range_change_s"] < 10 and found["p95_cached_s"] < 5, "five times what is asked of thirty"


def test_a_wrong_answer_is_noticed(site):
    plans = classroom.plan(1, 30)
    other = expected(plans)
    other.lines = {blocks: said.replace("<b>0.", "<b>1.") for blocks, said in other.lines.items()}
    other.texts = {0: ["something else"]}
    seen = classroom.drive(site, LESSON, plans, other, 1.5, lambda event: None, every=(0.5, 9, 1.0))
    assert len(seen.wrong) >= 3 and not seen.lost and not seen.errors


def test_numbers_are_the_same_to_what_rounding_makes_of_them():
    run = drain(make_run(pace=0, steps=1)(LESSON))
    right = left_line(Record.of(run))
    assert classroom.same_numbers(right, right)
    assert not classroom.same_numbers(right.replace("12-16", "12-17"), right)
    assert not classroom.same_numbers(right.replace("<b>0.6", "<b>0.7"), right)
    assert not classroom.same_numbers("<p data-removed='12-16'></p>", right)


def test_thirty_equal_runs_are_computed_once_also_after_it_has_ended(site, counting):
    counting.asked.clear()
    lesson = replace(LESSON, seed=30)
    counting.gate.clear()
    visitors = [Visitor(site) for _ in range(30)]
    at_once([lambda v=v: v.call("start", inputs(lesson)) for v in visitors])
    threading.Timer(0.5, counting.gate.set).start()

    def follow(visitor):
        visitor.call("follow")
        return line(visitor, visitor.call("draw_boundary"))

    lines = at_once([lambda v=v: follow(v) for v in visitors])
    assert len(set(map(str, lines))) == 1 and "12-16" in lines[0] and counting.asked == [lesson]
    late = Visitor(site)
    start = time.monotonic()
    late.call("start", inputs(lesson))
    late.call("follow")
    assert line(late, late.call("draw_boundary")) == lines[0] and time.monotonic() - start < 2
    assert counting.asked == [lesson]


def test_light_work_never_waits_behind_a_heavy_run_and_forty_handlers_that_watch_it(site, counting):
    ready = Visitor(site, query_of(LESSON))
    ready.call("open")
    counting.gate.clear()
    heavy = replace(LESSON, seed=40)
    watching = [Visitor(site) for _ in range(22)]
    at_once([lambda v=v: v.call("start", inputs(heavy)) for v in watching])
    threads = [threading.Thread(target=lambda v=v, name=name: v.call(name), daemon=True)
               for v in watching for name in ("follow", "draw_map")]  # fmt: skip
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        start = time.monotonic()
        shown = ready.call("quick", inputs(replace(LESSON, remove="3-7")), 10)
        assert "data-removed='3-7'" in line(ready, shown)
        ready.call("bars", [], 10)
        other = Visitor(site, query_of(LESSON))
        assert "12-16" in line(other, other.call("open", [], 10))
        assert time.monotonic() - start < 5
        assert all(thread.is_alive() for thread in threads)
    finally:
        counting.gate.set()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_the_queue_is_seen_with_place_and_time(site, counting):
    from analysis.job import Waiting
    from analysis.panels.status import event_line

    assert "Waiting: 3 runs before yours, about 2 min." in event_line(Waiting(3, 130.0))
    assert "Waiting: 1 run before yours, about 40 s." in event_line(Waiting(1, 40.0))
    assert "Waiting: 1 run before yours." in event_line(Waiting(1))


def test_a_closed_tab_ends_its_job_unless_others_wait_for_it(site, counting):
    counting.gate.clear()
    alone, shared = replace(LESSON, seed=51), replace(LESSON, seed=52)
    first, second, third = (Visitor(site) for _ in range(3))
    for visitor, lesson in ((first, alone), (second, shared), (third, shared)):
        visitor.arrive()
        visitor.call("start", inputs(lesson))
    first.leave()
    second.leave()
    end = time.monotonic() + 25
    counting.asked.clear()
    while time.monotonic() < end and shared not in counting.asked:  # it begins when the abandoned one has ended
        time.sleep(0.1)
    assert shared in counting.asked and third.call("stop", [], 10)
    counting.gate.set()
    third.leave()


def test_what_the_server_refuses_is_said(site):
    with pytest.raises(Refused, match=r"422|400|404|500"):
        site.post("/gradio_api/queue/join", {"data": [], "fn_index": site.events["start"]})
