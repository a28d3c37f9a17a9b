import pytest

from ghosted.errors import InputError
from ghosted.removed import RemovedBlocks


@pytest.mark.parametrize(
    ("text", "canonical", "count"),
    [
        ("", "", 0),
        ("3", "3", 1),
        ("12-16", "12-16", 5),
        (" 12 – 16 , 3 ", "3,12-16", 6),
        ("12-17,3,15-18", "3,12-18", 8),
        ("5,6,7", "5-7", 3),
        ("4-4", "4", 1),
        ("3-5,6-8", "3-8", 6),
    ],
)
def test_grammar_has_one_canonical_form(text, canonical, count):
    removed = RemovedBlocks.parse(text, 30)
    assert str(removed) == canonical
    assert removed.count == count
    assert RemovedBlocks.parse(str(removed)) == removed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("40-50", "does not exist"),
        ("30", "blocks 0 to 29"),
        ("16-12", "runs backwards"),
        ("a-b", "Cannot read"),
        ("1-2-3", "Cannot read"),
        ("-3", "Cannot read"),
        ("0-29", "keep at least one"),
        ("1.5", "Cannot read"),
        ("9" * 50, "Cannot read"),
        ("0-99999999999", "does not exist"),
    ],
)
def test_bad_ranges_get_one_sentence(text, words):
    with pytest.raises(InputError, match=words) as caught:
        RemovedBlocks.parse(text, 30)
    assert "\n" not in str(caught.value)


def test_a_huge_range_is_refused_even_without_a_model():
    with pytest.raises(InputError):
        RemovedBlocks.parse("0-99999999999")


def test_survivors_are_named():
    removed = RemovedBlocks.parse("5-7", 12)
    assert removed.survivors(12) == (0, 1, 2, 3, 4, 8, 9, 10, 11)
    assert removed.describe(12) == "removes blocks 5–7 (3 of 12)"
    assert RemovedBlocks.parse("2", 12).describe(12) == "removes block 2 (1 of 12)"
    assert RemovedBlocks().describe(12) == "removes nothing (0 of 12)"
