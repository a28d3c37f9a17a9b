"""Answers that somebody waits for go first, in the middle of patient work too."""

import threading
import time

import pytest

from ghosted.errors import Cancelled
from ghosted.progress import CancelFlag
from ghosted.turn import Turn


def patient_work(turn, steps, flag=None):
    """Do 200 steps of 10 ms, asking at each; note which were done."""
    with turn.patient(flag) as polite:
        for step in range(200):
            polite.check()
            time.sleep(0.01)
            steps.append(step)


def started(*arguments):
    thread = threading.Thread(target=patient_work, args=arguments, daemon=True)
    thread.start()
    time.sleep(0.1)
    return thread


def test_patient_work_stands_back_in_its_middle_and_goes_on():
    turn, steps = Turn(), []
    thread = started(turn, steps)
    begin = time.monotonic()
    with turn.urgent():
        waited, at = time.monotonic() - begin, len(steps)
        time.sleep(0.2)
        assert len(steps) == at and 0 < at < 200 and waited < 0.2
    thread.join(10)
    assert steps == list(range(200)) and not turn.is_wanted


def test_patient_work_does_not_begin_while_somebody_waits():
    turn, steps = Turn(), []
    with turn.urgent():
        thread = started(turn, steps)
        assert steps == []
    thread.join(10)
    assert len(steps) == 200


def test_standing_back_can_be_stopped_and_gives_the_turn_back():
    turn, steps, flag = Turn(), [], CancelFlag()

    def work():
        with pytest.raises(Cancelled):
            patient_work(turn, steps, flag)
        steps.append("stopped")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    time.sleep(0.1)
    with turn.urgent():
        flag.set()
        thread.join(0.3)
    thread.join(5)
    assert steps[-1] == "stopped"
    with turn.urgent():  # and nobody holds it any more
        assert turn.is_wanted
    assert not turn.is_wanted


def test_letting_others_pass_has_an_end():
    turn = Turn()
    with turn.urgent():
        begin = time.monotonic()
        turn.let_pass(0.1)
        assert 0.1 <= time.monotonic() - begin < 1
    begin = time.monotonic()
    turn.let_pass()
    assert time.monotonic() - begin < 0.05
