"""One worker, first come first served: places in the queue, stopping, failing, and leaving early."""

import asyncio
import threading
import time

import pytest
from fake_run import make_run

from analysis.runner import Ended, Runner, Waiting
from analysis.session import Sessions
from ghosted.errors import InputError, ModelError
from ghosted.experiment import Experiment
from ghosted.progress import Progress
from ghosted.results import Update

EXPERIMENT = Experiment(remove="3-4", methods=("none", "ghosted"), prompt="x", max_new_tokens=3)


def follow(runner, visitor="a"):
    """Every event that a page sees of its newest job."""

    async def collect():
        return [event async for event in runner.follow(runner.claim(visitor, "lines"))]

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
    assert list(job.parts) == ["similarity", "boundary", "decomposition", "scores", "columns"]
    assert asyncio.run(runner.part(job, "boundary")).run is events[-1].run
    assert asyncio.run(runner.end(job)) is events[-1]


def test_only_the_first_watcher_gets_a_job():
    runner = Runner(make_run(pace=0, steps=1))
    job = runner.submit("a", EXPERIMENT)
    assert runner.claim("a", "scores") is job
    assert runner.claim("a", "scores") is None and runner.claim("nobody", "scores") is None


def test_a_part_that_never_comes_is_not_waited_for():
    runner = Runner(make_run(pace=0, steps=1, fail=ModelError("No.")), pace=0.01)
    job = runner.submit("a", EXPERIMENT)
    assert asyncio.run(runner.part(job, "scores")) is None


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
        runner.submit("a", EXPERIMENT)
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
    jobs = [runner.submit(str(i), EXPERIMENT) for i in range(3)]
    last = follow(runner, "2")
    assert max(most) == 1 and len(most) == 3
    assert [event.before for event in last if isinstance(event, Waiting)] == [2, 1]
    assert all(job.ended.how == "finished" for job in jobs)


def test_a_queued_job_can_be_stopped_before_it_starts():
    runner = Runner(make_run(pace=0.02, steps=100), pace=0.02)
    runner.submit("a", EXPERIMENT)
    runner.submit("b", EXPERIMENT)
    assert runner.stop("b")
    assert follow(runner, "b")[-1].said == "Stopped before it started."
    runner.stop("a")


def test_leaving_early_stops_the_work():
    runner = Runner(make_run(pace=0.02, steps=1000), pace=0.02)
    job = runner.submit("a", EXPERIMENT)

    async def look_once():
        watching = runner.follow(job)
        await anext(watching)
        await watching.aclose()

    asyncio.run(look_once())
    assert job.cancel.is_set
    for _ in range(100):
        if job.ended:
            break
        time.sleep(0.02)
    assert job.ended.how == "stopped"


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


def test_sessions_are_bounded_and_forgotten():
    sessions = Sessions(most=3)
    for visitor in "abcd":
        sessions.of(visitor).uploads.add(visitor)
    assert len(sessions) == 3 and not sessions.of("a").uploads
    sessions.forget("d")
    assert not sessions.of("d").uploads
