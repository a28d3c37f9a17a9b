"""Pages that are opened and closed leave nothing: memory, threads and open files are back where they were (case 33)."""

import gc
import os
import threading
import time

import psutil
import pytest
from fake_run import make_run
from pages import served
from test_classroom import LESSON, States, inputs, line

from analysis import runner
from analysis.bench._visitor import Site, Visitor
from analysis.link import query_of
from ghosted import machine


@pytest.fixture(scope="module")
def site():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "GRACE", 0.2)
        with served(make_run(pace=0.001, steps=2), preview=States) as address:
            yield Site(address)


def visit(site):
    """Open the lesson, run it, change the range, look at a picture, close the page; some leave in the middle."""
    visitor = Visitor(site, query_of(LESSON))
    visitor.arrive()
    try:
        visitor.call("open")
        visitor.call("start", inputs(LESSON))
        visitor.call("follow")
        assert "12-16" in line(visitor, visitor.call("draw_boundary"))
        visitor.call("finish")
        visitor.call("quick", inputs(LESSON))
        visitor.call("near", [], event={"panels": ["boundary"]})
    finally:
        visitor.leave()


POOLS = 8
"""Threads of pools that grow to their bound, once, whatever the number of sessions: the page's own and the server's."""


def state():
    gc.collect()
    machine.give_back_memory()
    here = psutil.Process()
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else here.num_fds()
    return here.memory_info().rss / 1e6, threading.active_count(), files


def rested(before, seconds=20.0):
    """Wait until threads and files are back; gradio notices a closed page at its next heartbeat."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        now = state()
        if now[1] <= before[1] + POOLS and now[2] <= before[2] + 2:
            break
        time.sleep(0.5)
    return now


def come_and_go(site, sessions, at_once):
    visit(site)  # what is made once
    others = [threading.Thread(target=visit, args=(site,)) for _ in range(at_once)]
    for each in others:
        each.start()
    for each in others:
        each.join(60)
    before = rested(state(), 2)
    for _ in range(sessions // at_once):
        threads = [threading.Thread(target=visit, args=(site,)) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    after = rested(before)
    assert after[1] <= before[1] + POOLS and after[2] <= before[2] + 2, (before, after)
    return after[0] - before[0]


def test_ten_sessions_leave_nothing(site):
    assert come_and_go(site, 10, 5) < 100


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_hundred_sessions_leave_nothing(site):
    assert come_and_go(site, 200, 10) < 200
