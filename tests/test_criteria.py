"""The criteria that read the similarity of states alone: closed forms, margins, and counts that are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ghosted import criteria
from ghosted.calibration.similarity import SimilaritySums
from ghosted.commands import choose as command
from ghosted.criteria._inner_blocks import inner_blocks
from ghosted.errors import InputError
from ghosted.results import Cost, Similarity


def similarity(by_text, angle_by_text=None):
    cosine = by_text.mean(0)
    angles = np.arccos(by_text) / math.pi if angle_by_text is None else angle_by_text
    histogram, norms = np.zeros((*cosine.shape, 4)), np.ones((len(cosine), 8))
    return criteria.Evidence(Similarity(cosine, cosine, histogram, by_text, norms, 100, angles.mean(0), angles))


def choose(evidence, count, name="cosine"):
    return criteria.criterion(name).choose(evidence, count)


def states_on_a_line(angles):
    a = np.asarray(angles)
    return np.cos(a[:, None] - a[None])


def test_the_most_alike_pair_wins_and_ends_are_legal():
    cosine = similarity(states_on_a_line([0, 0.1, 0.9, 1.5, 1.6, 2.0, 2.001])[None])
    choice = choose(cosine, 1)
    assert choice.remove == "5" and choice.runner_up.remove in {"0", "3"}
    assert choice.score == pytest.approx(np.cos(0.001))
    assert len(choice.candidates) == 6
    assert choose(cosine, 2).remove == "4-5"


def test_near_tie_is_a_margin_inside_the_spread_over_texts():
    base = states_on_a_line([0, 0.1, 0.2001, 1.0])
    noisy = np.stack([base, base]).copy()
    noisy[0, 0, 1] += 0.004
    noisy[1, 0, 1] -= 0.004
    steady = np.stack([base, base])
    for name in ("cosine", "block-influence", "angular"):
        assert choose(similarity(noisy), 1, name).near_tie, name
        assert not choose(similarity(steady), 1, name).near_tie, name


def test_block_influence_takes_the_least_blocks_wherever_they_stand():
    turns = [0.3, 0.1, 0.7, 0.2, 0.9, 0.15]
    evidence = similarity(states_on_a_line(np.cumsum([0, *turns]))[None])
    choice = choose(evidence, 3, "block-influence")
    influence = 1 - np.cos(turns)
    assert choice.remove == "1,3,5" and not choice.higher_is_better
    assert choice.score == pytest.approx(influence[[1, 3, 5]].sum())
    assert choice.runner_up.remove == "0-1,5"  # the last chosen, 3, swapped for the next, 0
    assert choice.runner_up.score == pytest.approx(influence[[0, 1, 5]].sum())
    assert [c.remove for c in choice.candidates] == list("012345")
    assert [c.score for c in choice.candidates] == pytest.approx(influence.tolist())
    assert choose(evidence, 3).remove != choice.remove  # a run of three is another question


def test_angular_reads_the_last_token_of_each_window_only():
    # Two windows of three tokens in the plane; state i of the last token stands at these angles, all others elsewhere.
    last = [[0.0, 0.5, 0.6, 1.6], [0.0, 0.7, 0.9, 1.1]]
    sums = SimilaritySums(4, 2, 3)
    for row in last:
        angles = torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) * 3
        angles[-1] = torch.tensor(row)
        sums.add([torch.stack([angles[:, i].cos(), angles[:, i].sin()], dim=-1)[None] for i in range(4)])
    found = sums.result()
    expected = np.abs(np.subtract.outer(last[0], last[0])) + np.abs(np.subtract.outer(last[1], last[1]))
    assert found.angle == pytest.approx(expected / 2 / math.pi, abs=1e-6)
    assert found.angle_by_text.shape == (2, 4, 4)
    choice = choose(criteria.Evidence(found), 1, "angular")
    assert choice.remove == "1" and choice.score == pytest.approx(0.15 / math.pi, rel=1e-5)
    assert choice.runner_up.remove in {"0", "2"} and not choice.higher_is_better


def test_the_angle_of_equal_states_is_nothing_and_of_opposite_ones_is_one():
    sums = SimilaritySums(3, 8, 4)
    state = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0))
    sums.add([state, state, -state])
    angle = sums.result().angle
    assert angle[0, 1] < 1e-7 and angle[0, 2] == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("name", ["cosine", "angular", "block-influence"])
@pytest.mark.parametrize("count", [0, 3, 9])
def test_a_count_that_leaves_nothing_is_refused(name, count):
    with pytest.raises(InputError, match="choose a count from 1 to 2"):
        choose(similarity(states_on_a_line([0, 1, 2, 3])[None]), count, name)


def test_outer_blocks_stay_under_the_plus_rule():
    assert inner_blocks("taylor+", 24, 30) == range(4, 28)
    for count, blocks in ((25, 30), (1, 6), (1, 3)):
        with pytest.raises(InputError, match=rf"keeps the first 4 and the last 2 of these {blocks} blocks") as error:
            inner_blocks("taylor+", count, blocks)
        assert "take taylor or a smaller count" in str(error.value) and str(error.value).count(".") == 1


def test_what_a_criterion_cannot_remove_is_known_from_the_number_of_blocks():
    for name in ("taylor+", "perplexity+"):
        criteria.check(name, 24, 30)
        with pytest.raises(InputError, match=rf"{name[:-1]}\+ keeps the first 4"):
            criteria.check(name, 25, 30)
    criteria.check("taylor", 29, 30)
    with pytest.raises(InputError, match="choose a count"):
        criteria.check("taylor", 30, 30)


def test_no_more_blocks_are_taken_than_may_go():
    scores = np.arange(6.0)
    with pytest.raises(InputError, match="may remove 2 of these 6 blocks"):
        criteria.lowest_blocks("x", 3, scores, scores[None], allowed=[1, 2])
    choice = criteria.lowest_blocks("x", 2, scores, scores[None], allowed=[4, 2])
    assert (choice.remove, choice.score, choice.runner_up) == ("2,4", 6.0, None)


def test_unknown_criterion_names_those_there_are():
    with pytest.raises(InputError, match="did you mean cosine"):
        criteria.criterion("cosin")
    with pytest.raises(InputError, match="manual, cosine"):
        criteria.criterion("zzz")


def test_each_published_criterion_is_there_under_its_name():
    published = {"manual", "cosine", "cosine-channel", "angular", "block-influence", "taylor", "taylor+", "perplexity",
                 "perplexity+", "sleb"}  # fmt: skip
    assert published <= set(criteria.criteria())
    for name, module in criteria.criteria().items():
        assert module.LABEL and module.__doc__ and name == module.NAME


def test_the_table_says_what_a_choice_cost_and_whether_it_is_a_near_tie():
    base = states_on_a_line(np.cumsum([0, 0.3, 0.1, 0.7, 0.2]))
    choice = choose(similarity(base[None]), 2, "block-influence")
    table = command.table(choice.to_json())
    assert table.startswith("remove 1,3   score 0.024") and "nothing beside the calibrating pass" in table
    assert "near tie" not in table and "lower is better" in table
    assert [line.split()[0] for line in table.splitlines()[-4:]] == ["1", "3", "0", "2"]
    dear = replace(choice, near_tie=True, cost=Cost(450_560, 300_000_000))
    table = command.table(dear.to_json())
    assert "near tie" in table and "cost 450,560 more tokens through the model, about 0.3 GB more memory" in table
    assert dear.to_json()["cost"] == {"tokens": 450_560, "memory_bytes": 300_000_000}
