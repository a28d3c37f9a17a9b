"""Slices of texts: calibration, held-out and evaluation tokens never overlap (CASES 21, 22)."""

from itertools import pairwise

import pytest
import tiny
from tiny import TINY

from ghosted import texts
from ghosted.errors import InputError, TextError
from ghosted.experiment import Experiment
from ghosted.models import LoadedModel
from ghosted.progress import drain
from ghosted.texts import Windows


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_words(path, words, salt=""):
    path.write_text("".join(f"{salt}{i:06d} " for i in range(words)))  # one byte is one token: no two places are alike
    return str(path)


def cut(experiment, tokenizer):
    return drain(texts.slices(experiment, tokenizer))


def words_of(windows: Windows):
    skip = 1 if windows.bos else 0
    return bytes(t for row in windows.rows for t in row.tolist()[skip:])


@pytest.mark.parametrize("bos", [False, True])
def test_slices_of_one_text_follow_each_other(tmp_path, bos):
    path = write_words(tmp_path / "a.txt", 4000)
    e = Experiment(text=path, tokens=4100, window=512, windows=4)
    s = cut(e, tiny.tokenizer(bos=bos))
    parts = [s.calibration, s.held_out, s.evaluation["a.txt"]]
    content = (tmp_path / "a.txt").read_bytes()
    assert parts[0].start == 0
    for part, following in pairwise(parts):
        assert part.stop == following.start
    for part in parts:
        assert words_of(part) == content[part.start : part.stop]
        assert part.bos == bos and all((row == tiny.BOS).sum() == bos for row in part.rows)
    assert [len(row) for row in s.calibration.rows] == [512] * 8 + [4]
    assert s.held_out.tokens == 8192 and len(s.evaluation["a.txt"]) == 4
    assert s.same_source == {"a.txt": True}


def test_a_copy_under_another_name_is_the_same_source(tmp_path):
    path = write_words(tmp_path / "a.txt", 4000)
    copy = write_words(tmp_path / "b.txt", 4000)
    s = cut(Experiment(text=path, tokens=4096, evaluate=(copy,), windows=2), tiny.tokenizer())
    assert s.evaluation["b.txt"].start == s.held_out.stop == 4096 + 8192
    assert s.same_source == {"b.txt": True}


def test_other_texts_start_at_their_beginning(tmp_path):
    path, other, third = (write_words(tmp_path / f"{n}.txt", 4000, n) for n in "abc")
    e = Experiment(text=path, tokens=4096, held_out=other, evaluate=(third, other, path), windows=2)
    s = cut(e, tiny.tokenizer())
    assert (s.held_out.text, s.held_out.start) == ("b.txt", 0)
    starts = {name: w.start for name, w in s.evaluation.items()}
    assert starts == {"c.txt": 0, "b.txt": 8192, "a.txt": 4096}
    assert s.same_source == {"c.txt": False, "b.txt": False, "a.txt": True}


def test_held_out_text_that_is_the_calibration_text_does_not_overlap(tmp_path):
    path = write_words(tmp_path / "a.txt", 4000)
    s = cut(Experiment(text=path, tokens=4096, held_out=path, windows=1), tiny.tokenizer())
    assert s.held_out.start == 4096


def test_two_files_of_one_name_stay_apart(tmp_path):
    (tmp_path / "x").mkdir()
    path = write_words(tmp_path / "a.txt", 4000)
    one, two = write_words(tmp_path / "b.txt", 400, "p"), write_words(tmp_path / "x" / "b.txt", 400, "q")
    s = cut(Experiment(text=path, tokens=4096, evaluate=(one, two), windows=2), tiny.tokenizer())
    assert len(s.evaluation) == 2 and len({w.digest for w in s.evaluation.values()}) == 2
    assert [w.start for w in s.evaluation.values()] == [0, 0]


def test_held_out_is_a_quarter_of_many_tokens_in_whole_windows(tmp_path):
    path = write_words(tmp_path / "a.txt", 10_000)
    s = cut(Experiment(text=path, tokens=40_000, window=300, windows=1), tiny.tokenizer())
    assert s.held_out.tokens == 10_000 // 300 * 300
    s = cut(Experiment(text=path, tokens=10_000, window=200, calibration_window=300, windows=1), tiny.tokenizer())
    assert s.held_out.tokens == 8192 // 300 * 300
    assert s.calibration.window == 300 and next(iter(s.evaluation.values())).window == 200


def test_an_evaluation_text_that_ends_gives_fewer_windows(tmp_path):
    path, short = write_words(tmp_path / "a.txt", 4000), write_words(tmp_path / "s.txt", 100, "s")
    s = cut(Experiment(text=path, tokens=4096, evaluate=(short,), windows=16), tiny.tokenizer())
    assert [len(row) for row in s.evaluation["s.txt"].rows] == [512, 288]


@pytest.mark.parametrize(
    ("words", "settings", "says"),
    [
        (500, {"tokens": 16_384}, "has 3,500 tokens, and 16,384 calibration tokens"),
        (1000, {"tokens": 4096}, "8,192 held-out tokens"),
        (2048, {"tokens": 6144}, "none are left to score"),
    ],
)
def test_a_text_that_is_too_short_says_how_long_it_is(tmp_path, words, settings, says):
    path = write_words(tmp_path / "a.txt", words)
    with pytest.raises(TextError, match=says) as raised:
        cut(Experiment(text=path, **settings), tiny.tokenizer())
    assert "\n" not in str(raised.value)


def test_a_one_token_text_gives_one_sentence(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(TextError, match="has 1 token, and"):
        cut(Experiment(text=str(tmp_path / "a.txt")), tiny.tokenizer())
    path = write_words(tmp_path / "b.txt", 4000)
    with pytest.raises(TextError, match="has 1 token, and"):
        cut(Experiment(text=path, tokens=4096, evaluate=(str(tmp_path / "a.txt"),)), tiny.tokenizer())


def test_a_window_longer_than_the_context_is_refused(tmp_path):
    path = write_words(tmp_path / "a.txt", 4000)
    loaded = LoadedModel.of(TINY("gpt2"), tiny.tokenizer())
    with pytest.raises(InputError, match="context of 256"):
        cut(Experiment(text=path, window=257), loaded)
    assert cut(Experiment(text=path, window=256, tokens=512, windows=1), loaded).calibration.tokens == 512


def test_generated_text_is_cut_like_any_other(own_cache, monkeypatch):
    from ghosted.texts import generated

    def quick(model, *, seed, index, length, stage, rows=64):
        yield stage.step()
        return [[(index * 7 + row + at) % 256 for at in range(length)] for row in range(rows)]

    monkeypatch.setattr(generated, "sample", quick)
    loaded = LoadedModel.of(TINY("llama"), tiny.tokenizer())
    s = cut(Experiment(text="generated", tokens=512, window=64, windows=2), loaded)
    assert s.held_out.start == 512 and s.evaluation["generated"].start == 512 + 8192


def test_hub_splits_count_as_one_source(own_cache, monkeypatch):
    from ghosted.texts import _hub

    def rows(dataset, split, characters):
        return "".join(f"{split}{i:05d} " for i in range(4000))

    def reachable(dataset, cancel):
        yield from ()

    monkeypatch.setattr(_hub, "_fetch", rows)
    monkeypatch.setattr(_hub, "_reachable", reachable)
    e = Experiment(text="wikitext2", tokens=4096, evaluate=("wikitext2",), windows=2)
    s = cut(e, tiny.tokenizer())
    assert list(s.evaluation) == ["wikitext2 (test)"] and s.evaluation["wikitext2 (test)"].start == 0
    assert s.same_source == {"wikitext2 (test)": True}
