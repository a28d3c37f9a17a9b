"""One worker, first come first served: places in the queue, stopping, failing, and leaving early."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest
from fake_run import make_run

from analysis.finished import Finished
from analysis.job import Ended, Waiting
from analysis.record import Record
from analysis.runner import Runner
from analysis.session import MOST_RUNS, Session, Sessions
from ghosted.errors import InputError, ModelError
from ghosted.experiment import Experiment
from ghosted.progress import Progress
from ghosted.results import Run, Update

EXPERIMENT = Experiment(remove="3-4", methods=("none", "ghosted"), prompt="x", max_new_tokens=3)


def follow(runner, visitor="a"):
    """Every event that a page sees of its newest job."""

    async def collect():
        return [event async for event in runner.follow(runner.claim(visitor, "lines"), visitor)]

    return asyncio.run(collect())


def watch(runner, visitor="a"):
    runner.submit(visitor, EXPERIMENT)
    return follow(runner, visitor)


def test_a_run_tells_where_it_is_and_ends_with_its_result():
    runner = Runner(make_run(pace=0.005, steps=3), pace=0.01)
    job = runner.submit("a", EXPERIMENT)
    events = follow(runner)
    assert {type(event) for event in events} == {Progress, Update, Ended}
    assert {event.part for event in events if isinstance(event, Update)} == {"columns"}
    assert events[-1].how == "finished" and len(events[-1].run.columns) == 3
    assert list(job.parts) == ["similarity", "boundary", "decomposition", "scores", "columns", "map"]
    assert asyncio.run(runner.part(job, "a", "boundary")).run is events[-1].run
    assert asyncio.run(runner.end(job, "a")) is events[-1]


def test_only_the_first_watcher_gets_a_job():
    runner = Runner(make_run(pace=0, steps=1))
    job = runner.submit("a", EXPERIMENT)
    assert runner.claim("a", "scores") is job
    assert runner.claim("a", "scores") is None and runner.claim("nobody", "scores") is None


def test_a_part_that_never_comes_is_not_waited_for():
    runner = Runner(make_run(pace=0, steps=1, fail=ModelError("No.")), pace=0.01)
    job = runner.submit("a", EXPERIMENT)
    assert asyncio.run(runner.part(job, "a", "scores")) is None


def test_stop_ends_the_run_and_the_next_one_works():
    runner = Runner(make_run(pace=0.02, steps=200))
    threading.Timer(0.2, runner.stop, ["a"]).start()
    start = time.monotonic()
    assert watch(runner)[-1].how == "stopped" and time.monotonic() - start < 2
    assert runner.stop("a") is False
    assert runner.submit("a", EXPERIMENT).ended is None
    runner.stop("a")


def test_a_second_run_of_the_same_page_is_answered_in_a_sentence():
    runner = Runner(make_run(pace=0.02, steps=100))
    runner.submit("a", EXPERIMENT)
    with pytest.raises(InputError, match="already running"):
        runner.submit("a", replace(EXPERIMENT, tokens=EXPERIMENT.tokens + 1))
    runner.stop("a")


def test_a_double_click_is_one_job():
    runner = Runner(make_run(pace=0.02, steps=100))
    job = runner.submit("a", EXPERIMENT)
    assert runner.submit("a", EXPERIMENT) is job and runner.before(job) == 0
    runner.stop("a")
    assert runner.submit("a", EXPERIMENT) is not job
    runner.stop("a")


def test_jobs_never_overlap_and_others_see_their_place():
    active, most = [], []

    def run(experiment, cancel=None):
        active.append(1)
        most.append(len(active))
        yield Progress("working", 1, 1)
        time.sleep(0.15)
        active.pop()
        return None

    runner = Runner(run, pace=0.02)
    jobs = [runner.submit(str(i), replace(EXPERIMENT, seed=i)) for i in range(3)]
    last = follow(runner, "2")
    assert max(most) == 1 and len(most) == 3
    assert [event.before for event in last if isinstance(event, Waiting)] == [2, 1]
    assert all(job.ended.how == "finished" for job in jobs)


def test_a_queued_job_can_be_stopped_before_it_starts():
    runner = Runner(make_run(pace=0.02, steps=100), pace=0.02)
    runner.submit("a", EXPERIMENT)
    runner.submit("b", replace(EXPERIMENT, seed=1))
    assert runner.stop("b")
    assert follow(runner, "b")[-1].said == "Stopped before it started."
    runner.stop("a")


def ended(job, seconds=2.0):
    until = time.monotonic() + seconds
    while job.ended is None and time.monotonic() < until:
        time.sleep(0.02)
    return job.ended


def test_leaving_stops_the_work_after_the_time_to_come_back():
    runner = Runner(make_run(pace=0.02, steps=1000), pace=0.02, grace=0.3)
    job = runner.submit("a", EXPERIMENT)
    runner.forget("a")
    time.sleep(0.1)
    assert not job.cancel.is_set
    assert ended(job).how == "stopped"


def test_a_reload_comes_back_to_its_job_under_another_name():
    runner = Runner(make_run(pace=0.02, steps=10), pace=0.02, grace=0.2)
    job = runner.submit("a", EXPERIMENT)
    runner.forget("a")
    assert runner.join("b", EXPERIMENT) is job and runner.join("b", replace(EXPERIMENT, seed=9)) is None
    time.sleep(0.3)
    assert follow(runner, "b")[-1].how == "finished"


def test_equal_experiments_are_computed_once_and_stop_only_for_who_stops():
    computed = []

    def run(experiment, cancel=None):
        computed.append(experiment)
        return (yield from make_run(pace=0.01, steps=8)(experiment, cancel=cancel))

    runner = Runner(run, pace=0.01)
    jobs = {runner.submit(visitor, EXPERIMENT) for visitor in "abc"}
    assert len(jobs) == 1 and runner.stop("b") and runner.stop("b") is False
    assert "for others" in follow(runner, "b")[-1].said
    assert follow(runner, "a")[-1].how == follow(runner, "c")[-1].how == "finished" and len(computed) == 1


def test_whoever_joins_late_sees_what_there_is_and_the_end():
    runner = Runner(make_run(pace=0.005, steps=5), pace=0.01)
    job = runner.submit("a", EXPERIMENT)
    assert follow(runner)[-1].how == "finished"
    assert {type(event) for event in asyncio.run(collected(runner, job, "a"))} == {Progress, Update, Ended}


async def collected(runner, job, visitor):
    return [event async for event in runner.follow(job, visitor)]


@pytest.mark.parametrize(
    ("error", "said"),
    [(ModelError("There is no such model; pick another."), "There is no such model; pick another."),
     (ZeroDivisionError("secret"), "ZeroDivisionError")],
)
def test_failures_end_in_one_sentence_and_leave_the_runner_alive(error, said, caplog):
    runner = Runner(make_run(pace=0, steps=1, fail=error))
    ended = watch(runner)[-1]
    assert isinstance(ended, Ended) and ended.how == "failed" and said in ended.said and "secret" not in ended.said
    assert watch(runner, "b")[-1].how == "failed"


def test_a_slow_browser_gets_the_newest_state_not_a_backlog():
    runner = Runner(make_run(pace=0, steps=300))
    job = runner.submit("a", EXPERIMENT)
    while not job.ended:
        time.sleep(0.01)
    assert [type(event) for event in follow(runner)] == [Progress, Update, Ended]


def test_what_ended_is_told_even_if_nobody_watches():
    told = []
    runner = Runner(make_run(pace=0, steps=1), on_end=lambda job, ended: told.append((job.experiment, ended.how)))
    assert ended(runner.submit("a", EXPERIMENT)).how == "finished"
    assert told == [(EXPERIMENT, "finished")]


def test_sessions_are_bounded_and_forgotten():
    sessions = Sessions(most=3)
    for visitor in "abcd":
        sessions.of(visitor).uploads.add(visitor)
    assert len(sessions) == 3 and sessions.of("a").uploads and not sessions.of("d").uploads
    sessions.forget("a")
    sessions.of("d").uploads.add("now there is room")
    assert sessions.of("d").uploads and not sessions.of("a").uploads


def test_runs_are_numbered_bounded_and_the_pinned_one_stays():
    session = Session()
    numbers = [session.keep(Record(Run(EXPERIMENT))) for _ in range(3)]
    session.pinned = 1
    for _ in range(MOST_RUNS):
        session.keep(Record(Run(EXPERIMENT)))
    assert numbers == [1, 2, 3] and len(session.runs) == MOST_RUNS and 1 in session.runs and 2 not in session.runs
    session.drop(1)
    session.drop(1)
    assert session.pinned is None and session.keep(Record(Run(EXPERIMENT))) == MOST_RUNS + 4


def test_the_very_same_run_is_listed_once_and_stays_pinned():
    session, first, second = Session(), Record(Run(EXPERIMENT)), Record(Run(EXPERIMENT))
    session.pinned = session.keep(first)
    assert (session.keep(second), session.keep(first)) == (2, 3)
    assert session.runs == {2: second, 3: first} and session.pinned == 3


def test_finished_runs_are_at_hand_by_experiment_and_bounded():
    finished = Finished(most=2)
    records = [Record(Run(replace(EXPERIMENT, seed=seed))) for seed in range(3)]
    finished.put(records[0].run.experiment, records[0])
    finished.put(records[1].run.experiment, records[1])
    assert finished.get(replace(EXPERIMENT, seed=0)) is records[0]
    finished.put(records[2].run.experiment, records[2])
    assert finished.get(replace(EXPERIMENT, seed=1)) is None and finished.get(EXPERIMENT) is records[0]
