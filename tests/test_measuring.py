"""The panel Evidence: what is asked for, what it costs beforehand, and what its tables and pictures say."""

import dataclasses

import fake_run
import numpy as np
import pytest

from analysis.evidence_tables import tables
from analysis.figures.evidence import BIN, binned, loss_lines, sequence_lines
from analysis.measuring import WHAT, Asked, cost_line, named_blocks, tokens
from analysis.record import Record
from analysis.settings import DEFAULT
from ghosted.errors import InputError
from ghosted.experiment import Experiment
from ghosted.progress import drain
from ghosted.removed import RemovedBlocks
from ghosted.results import Run

BY_HAND = Experiment(remove="14-18", methods=("none", "ghosted"))
EVERYTHING = Asked(BY_HAND, tuple(WHAT), ("<ARC>",), 7)


@pytest.mark.parametrize("remove", ["", "3,12-16"])
def test_sensitivity_needs_one_gap(remove):
    with pytest.raises(InputError, match="one run of blocks"):
        Asked(dataclasses.replace(BY_HAND, remove=remove), ("sensitivity",))


def test_blocks_that_a_run_chose_are_taken_over_only_from_a_run_of_the_same_experiment():
    record = Record(Run(DEFAULT, removed=RemovedBlocks.parse("14-18")), {}, "live", "")
    assert named_blocks(DEFAULT, record).remove == "14-18"
    other = dataclasses.replace(DEFAULT, tokens=1024)
    assert named_blocks(other, record) == other and named_blocks(DEFAULT, None) == DEFAULT


def test_the_cost_is_the_sum_of_its_parts_and_said_in_seconds_only_where_they_are_known():
    said = cost_line(EVERYTHING, lambda number: number / 1000)
    total = sum(tokens(what, EVERYTHING) for what in WHAT) / 1000 + (16_384 + 8_192) / 1000
    assert f"in all about {total:,.0f} s" in said
    assert all(f"{tokens(what, EVERYTHING):,} tokens" in said for what in WHAT)
    assert "about" not in cost_line(EVERYTHING, lambda number: None)


def test_tables_say_every_number_with_its_protocol_and_escape_names():
    said = tables(drain(fake_run.measure(EVERYTHING)))
    assert "&lt;ARC&gt;" in said and "<ARC>" not in said
    for part in ("1 windows of 2048 tokens", "600 tokens scored", "22.7", "55.6", "0.500 ± 0.05"):
        assert part in said, part
    assert "This model is broken" in said and said.count("<table") == len(WHAT)


def test_only_what_was_asked_for_has_a_table():
    said = tables(drain(fake_run.measure(Asked(BY_HAND, ("probe",)))))
    assert said.count("<table") == 1 and "Behaviour probe" in said


def test_losses_are_drawn_as_what_is_lost_above_the_original():
    found = drain(fake_run.measure(EVERYTHING)).evaluation
    lines = loss_lines(found.dense, found.methods, "python-docs").data
    assert [line.name for line in lines] == ["plain pruning", "ghosted"]
    mean = float(np.mean(binned(found.method("none").texts["python-docs"].losses)
                         - binned(found.dense.texts["python-docs"].losses)))
    assert np.mean(lines[0].y) == pytest.approx(mean, rel=0.01) and mean > 0.5
    assert len(binned(np.zeros(BIN + 1))) == 2 and binned(np.r_[np.zeros(BIN), 3.0])[-1] == 3


def test_sequences_are_drawn_for_each_method_and_median():
    figure = sequence_lines(drain(fake_run.measure(EVERYTHING)).sources)
    assert [line.name for line in figure.data] == ["ghosted, held-out", "ghosted, median token"]
    assert list(figure.data[0].x) == [4, 8, 16, 32]
