import numpy as np
import pytest

from ghosted import criteria
from ghosted.errors import InputError
from ghosted.results import Similarity


def similarity(by_text):
    cosine = by_text.mean(0)
    histogram, norms = np.zeros((*cosine.shape, 4)), np.ones((len(cosine), 8))
    return criteria.Evidence(Similarity(cosine, cosine, histogram, by_text, norms, 100))


def choose(evidence, count):
    return criteria.criterion("cosine").choose(evidence, count)


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
    noisy[0, 0, 1] += 0.01
    noisy[1, 0, 1] -= 0.01
    steady = np.stack([base, base])
    assert choose(similarity(noisy), 1).near_tie
    assert not choose(similarity(steady), 1).near_tie


@pytest.mark.parametrize("count", [0, 3, 9])
def test_a_count_that_leaves_nothing_is_refused(count):
    with pytest.raises(InputError, match="choose a count from 1 to 2"):
        choose(similarity(states_on_a_line([0, 1, 2, 3])[None]), count)


def test_unknown_criterion_names_those_there_are():
    with pytest.raises(InputError, match="did you mean cosine"):
        criteria.criterion("cosin")
    with pytest.raises(InputError, match="manual, cosine"):
        criteria.criterion("zzz")
