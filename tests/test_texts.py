"""Texts: what is read, and how it is packed (CASES 21, 25)."""

import hashlib
import json

import pytest
import tiny
from tiny import TINY

from ghosted import texts
from ghosted.errors import Cancelled, TextError
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, drain
from ghosted.texts import Text, file, pack, token_ids
from ghosted.texts.windows import positions


def read(name, **settings):
    return drain(texts.read(str(name), **settings))


def of_ids(n, **more):
    settings = {"start": 0, "tokens": n, "window": 8, "bos_id": None, "text": "t", "digest": "d"} | more
    return pack(list(range(n)) if "ids" not in more else settings.pop("ids"), **settings)


# --- packing -------------------------------------------------------------------------------------------------------


def test_packing_gives_whole_windows_and_one_rest():
    windows = of_ids(20)
    assert [len(row) for row in windows.rows] == [8, 8, 4]
    assert [token for row in windows.rows for token in row.tolist()] == list(range(20))
    assert (windows.start, windows.stop, windows.tokens, len(windows)) == (0, 20, 20, 3)


def test_a_rest_of_one_token_is_dropped():
    windows = of_ids(17)
    assert [len(row) for row in windows.rows] == [8, 8] and windows.stop == 16


def test_bos_is_one_position_of_each_window():
    windows = of_ids(30, tokens=20, bos_id=99)
    assert [len(row) for row in windows.rows] == [8, 8, 4]
    assert all(row[0] == 99 and (row == 99).sum() == 1 for row in windows.rows)
    assert [t for row in windows.rows for t in row.tolist()[1:]] == list(range(17))
    assert windows.stop == 17 and windows.bos and windows.tokens == 20


def test_packing_ends_with_the_text():
    windows = of_ids(10, tokens=24)
    assert [len(row) for row in windows.rows] == [8, 2] and windows.stop == 10
    assert len(of_ids(1, tokens=24)) == 0
    assert len(of_ids(10, start=10)) == 0


@pytest.mark.parametrize("bos", [None, 99])
@pytest.mark.parametrize("tokens", range(2, 40))
def test_positions_says_what_packing_fills(tokens, bos):
    assert of_ids(100, tokens=tokens, bos_id=bos).tokens == positions(tokens, 8, bos is not None)


def test_batches_have_equal_lengths_and_keep_the_order():
    shapes = [tuple(batch.shape) for batch in of_ids(44).batches(3)]
    assert shapes == [(3, 8), (2, 8), (1, 4)]
    flat = [t for batch in of_ids(44).batches(3) for t in batch.flatten().tolist()]
    assert flat == list(range(44))


def test_first_knows_where_it_stops():
    windows = of_ids(30, tokens=24, bos_id=99).first(2)
    assert len(windows) == 2 and windows.stop == 14


# --- tokenising ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bos", [False, True])
def test_special_tokens_in_a_text_are_plain_text(bos):
    tokenizer = tiny.tokenizer(bos=bos)
    content = "a<|im_end|>b</s><s>"
    ids = token_ids(Text.of(content, "t"), tokenizer, 100)
    assert ids == list(content.encode())  # one id per byte: no special id, no BOS
    assert max(ids) < tiny.BOS


def test_a_prefix_tokenises_as_the_whole_does():
    tokenizer, text = tiny.tokenizer(), Text.of("The quick brown fox. " * 500, "t")
    whole = token_ids(text, tokenizer, 10**6)
    part = token_ids(text, tokenizer, 50)
    assert 50 <= len(part) < len(whole) and part == whole[: len(part)]


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_text_file_and_its_digest(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("Grüße, 世界\nzwei\n".encode())
    text = read(path)
    assert text.content == "Grüße, 世界\nzwei\n" and text.name == "a.txt" and text.path_or_name == str(path)
    assert text.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_line_ends_and_byte_order_marks_do_not_change_the_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read(tmp_path / "a.txt").digest == read(tmp_path / "b.txt").digest


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "id": 1}\n\n{"text": "two\\u2028three"}\n')
    assert read(path).content == "one\n\ntwo\u2028three"


def test_missing_files_and_folders_give_one_sentence(tmp_path):
    with pytest.raises(TextError, match="There is no file"):
        read(tmp_path / "missing.txt")
    with pytest.raises(TextError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(TextError, match="did you mean python-docs"):
        read("python-doc")
    for name in ("nonsense", "", "a\0b.txt", "x" * 5000):
        with pytest.raises(TextError, match="There is no text"):
            read(name)


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "LARGEST", 10)
    (tmp_path / "a.txt").write_text("x" * 11)
    with pytest.raises(TextError, match="larger than"):
        read(tmp_path / "a.txt")


def test_an_upload_is_parsed_as_the_file_would_be(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"words")
    assert file.parse(b"words", "a.txt").digest == read(tmp_path / "a.txt").digest


# --- named sources -------------------------------------------------------------------------------------------------


def test_python_docs_are_prose_without_a_network():
    text = read("python-docs")
    assert len(text.content) > 100_000 and "exception" in text.content
    assert read("python-docs").digest == text.digest


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_rounds(monkeypatch):
    from ghosted.texts import generated

    monkeypatch.setattr(generated, "LENGTH", 12)
    monkeypatch.setattr(generated, "ROWS", 4)


def write_rows(monkeypatch, rows=4):
    from ghosted.texts import generated

    real = generated.sample
    calls = []

    def counted(*args, **settings):
        calls.append(settings["index"])
        return (yield from real(*args, rows=rows, **settings))

    monkeypatch.setattr(generated, "sample", counted)
    return calls


@pytest.mark.parametrize("bos", [False, True])
def test_generated_text_is_seeded_kept_and_free_of_special_tokens(own_cache, small_rounds, monkeypatch, bos):
    calls = write_rows(monkeypatch)
    loaded = LoadedModel.of(TINY("llama"), tiny.tokenizer(bos=bos))
    short = read("generated", model=loaded, tokens_needed=40, seed=1)
    assert len(short.ids) == 48 and calls == [0]
    longer = read("generated", model=loaded, tokens_needed=60, seed=1)
    assert longer.ids[:48] == short.ids and calls == [0, 1]  # the first round came from the cache
    assert read("generated", model=loaded, tokens_needed=40, seed=2).ids != short.ids
    assert max(longer.ids) < tiny.BOS
    assert short.digest != longer.digest
    assert token_ids(short, loaded.tokenizer, 10)[:10] == list(short.ids[:10])


def test_generating_can_be_stopped(own_cache, small_rounds):
    cancel = CancelFlag()
    cancel.set()
    with pytest.raises(Cancelled):
        read("generated", model=LoadedModel.of(TINY("gpt2"), tiny.tokenizer()), tokens_needed=40, cancel=cancel)


def test_generated_text_needs_a_model():
    with pytest.raises(TextError, match="needs a loaded model"):
        read("generated")


@pytest.mark.parametrize("name", ["wikitext2", "c4", "ptb"])
def test_hub_texts_are_named_in_full_and_run_no_script(own_cache, monkeypatch, name):
    import datasets

    from ghosted.texts import _hub

    asked = []

    def load_dataset(repo, config, **settings):
        asked.append((repo, settings))
        return [{"text": "one two", "sentence": "one two"}, {"text": "three", "sentence": "three"}]

    def reachable(dataset, cancel):
        yield from ()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(_hub, "_reachable", reachable)
    text = read(name, split="train", tokens_needed=100)
    assert "one two" in text.content and "three" in text.content
    (repo, settings), = asked
    assert repo.count("/") == 1 and "trust_remote_code" not in settings
    files = settings["data_files"]
    assert files is None or all(f.endswith((".parquet", ".json.gz")) for f in files.values())
    assert settings["streaming"] == (name == "c4")
    test = read(name, split="test", tokens_needed=100)
    assert test.name != text.name and len(asked) == 2
    read(name, split="train", tokens_needed=90)
    assert len(asked) == 2  # kept


@pytest.mark.parametrize("name", ["wikitext2", "c4", "ptb"])
def test_without_a_network_the_way_out_is_named(own_cache, monkeypatch, name):
    import huggingface_hub

    def blocked(self, *args, **settings):
        raise ConnectionError("blocked")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", blocked)
    with pytest.raises(TextError, match="choose python-docs, generated or a file"):
        read(name)


def test_no_dead_loader_is_named_anywhere():
    from pathlib import Path

    for path in (Path(texts.__file__).parent).glob("*.py"):
        source = path.read_text()
        assert "trust_remote_code=True" not in source
        for dead in ('"wikitext"', '"ptb_text_only"', '"c4",', "'wikitext'"):
            assert f"load_dataset({dead}" not in source
    assert json.dumps(sorted(texts.sources())) == json.dumps(sorted(texts.SOURCES))
