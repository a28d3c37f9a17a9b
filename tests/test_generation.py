import pytest
import torch
from tiny import BOS, CONTEXT, EOS, FAMILIES, TINY, WIDTH, build, config_of, logits_of, tokenizer

from ghosted.errors import Cancelled, InputError
from ghosted.generation import KL_CHUNK, TOP, generate
from ghosted.models.families import blocks_of
from ghosted.progress import CancelFlag, drain
from ghosted.prompts import encode_prompt
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks

PROMPT = "Emoji 🙂 and 中文: longer than the sliding window of eight."
CUT, LAST, NOTHING = (RemovedBlocks.parse(text) for text in ("2-3", "5", ""))


def operator(scale):
    return torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(5)) * scale


def variants(name):
    model = TINY(name)
    return {
        "original": model,
        "same": pruned_view(model, NOTHING),
        "none": pruned_view(model, CUT),
        "repaired": pruned_view(model, LAST, [Repair(range(5, 6), "state", operator(0.1))]),
    }


def write(models, prompt=PROMPT, *, tok=None, **settings):
    settings = {"max_new_tokens": 20} | settings
    return drain(generate(models, tok or tokenizer(), prompt, **settings))


def failing(model, at):
    """A view whose forward pass number ``at`` (from 1) raises."""
    view, passes = pruned_view(model, NOTHING), []

    def count(module, args):
        passes.append(1)
        if len(passes) == at:
            raise RuntimeError("out of luck\nsecond line")

    blocks_of(view)[0].register_forward_pre_hook(count)
    return view


def assert_likeliest(top, log_p):
    assert [len(row) for row in top] == [TOP] * len(log_p)
    probabilities = torch.tensor([[p for _, p in row] for row in top])
    assert torch.allclose(probabilities, log_p.topk(TOP).values.exp(), rtol=6e-3, atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_cached_columns_and_their_kl_equal_full_passes_without_a_cache(name):
    """40 new tokens: three chunks of the original reading the variants' own prefixes."""
    models = variants(name)
    prompt = list(encode_prompt(tokenizer(), PROMPT).ids)
    columns = write(models, max_new_tokens=40).columns
    assert [column.method for column in columns] == list(models)
    assert any(column.diverges_at is not None for column in columns)
    for column in columns:
        assert len(column.tokens) == len(column.kl) == len(column.pieces) == 40 or column.tokens[-1] == EOS
        ids = torch.tensor([prompt + column.tokens[:-1]])
        log_p, log_q = (logits_of(model, ids)[0, len(prompt) - 1 :].log_softmax(-1)
                        for model in (models["original"], models[column.method]))  # fmt: skip
        assert log_q.argmax(-1).tolist() == column.tokens
        assert torch.allclose((log_p.exp() * (log_p - log_q)).sum(-1), torch.tensor(column.kl), atol=2e-5)
        chosen = log_q.gather(-1, torch.tensor(column.tokens)[:, None])[:, 0]
        assert torch.allclose(-chosen, torch.tensor(column.surprisal), atol=2e-5)
        assert column.agrees == (log_p.argmax(-1) == log_q.argmax(-1)).tolist()
        assert_likeliest(column.top, log_q)
        if column.method != "original":
            assert_likeliest(column.top_original, log_p)
        original = columns[0].tokens
        first = next((i for i, (a, b) in enumerate(zip(original, column.tokens, strict=False)) if a != b), None)
        assert column.diverges_at == first


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_removed_writes_identical_columns_with_kl_exactly_zero(name, temperature):
    models = {"original": TINY(name), "same": pruned_view(TINY(name), NOTHING)}
    original, same = write(models, temperature=temperature, seed=7).columns
    assert same.tokens == original.tokens
    assert same.text == original.text
    assert set(same.kl) == set(original.kl) == {0.0}
    assert len(same.kl) == len(same.tokens)
    assert same.diverges_at is None
    assert same.agreement == 1.0
    assert (same.surprisal, same.top, same.top_original) == (original.surprisal, original.top, original.top)


def test_sampling_follows_the_distribution_and_the_seed():
    models = {"original": TINY("llama")}
    draws = [write(models, "a", temperature=1.0, seed=seed, max_new_tokens=1).columns[0].tokens[0] for seed in
             range(400)]  # fmt: skip
    log_p = logits_of(TINY("llama"), torch.tensor([encode_prompt(tokenizer(), "a").ids]))[0, -1].log_softmax(-1)
    top = log_p.topk(20).indices.tolist()
    expected, seen = float(log_p[top].exp().sum()), sum(draw in top for draw in draws) / 400
    assert abs(seen - expected) < 4 * (expected * (1 - expected) / 400) ** 0.5
    again, other = (write(models, temperature=1.0, seed=seed).columns[0].tokens for seed in (0, 1))
    assert again == write(models, temperature=1.0, seed=0).columns[0].tokens
    assert again != other


def test_columns_advance_one_token_at_a_time_and_are_the_ones_returned():
    steps, lengths, seen = generate(variants("llama"), tokenizer(), PROMPT, max_new_tokens=6), [], None
    while True:
        try:
            seen = next(steps)
            lengths.append([len(column.tokens) for column in seen])
        except StopIteration as stop:
            found = stop.value
            break
    assert lengths == [[n] * 4 for n in range(1, 7)]
    assert found.columns is seen
    assert all(column.finished and column.error is None for column in found.columns)
    assert found.notices == []


def test_kl_trails_by_at_most_a_chunk():
    model = TINY("llama")
    models = {"original": model, "none": pruned_view(model, CUT)}
    behind = []
    drain(generate(models, tokenizer(), PROMPT, max_new_tokens=40),
          lambda columns: behind.append(len(columns[1].tokens) - len(columns[1].kl)))  # fmt: skip
    assert max(behind) == KL_CHUNK - 1
    assert behind[-1] == 0


@pytest.mark.parametrize("at", [1, 5])
def test_a_failing_column_says_why_and_the_others_finish(at):
    models = variants("llama")
    expected = {column.method: column for column in write(models).columns}
    models["same"] = failing(models["original"], at)
    found = write(models)
    broken = found.columns[1]
    assert len(broken.tokens) == at - 1
    assert broken.error == f"This model failed after {at - 1} new tokens (RuntimeError: out of luck)."
    assert broken.to_json()["error"] == broken.error
    for column in found.columns:
        assert column.finished
        if column is not broken:
            assert (column.tokens, column.kl) == (expected[column.method].tokens, expected[column.method].kl)


@pytest.mark.parametrize("at", [1, 5])
def test_where_the_original_fails_the_variants_still_write(at):
    models = variants("llama")
    expected = {column.method: column for column in write(models).columns}
    found = write(models | {"original": failing(models["original"], at)})
    assert "out of luck" in found.columns[0].error
    for column in found.columns[1:]:
        assert column.tokens == expected[column.method].tokens
        assert column.error is None
        assert column.kl[: at - 1] == expected[column.method].kl[: at - 1]
    if at == 1:
        assert len(found.notices) == 3
        assert "could not be compared" in found.notices[0]


def test_scores_that_are_not_numbers_end_the_column_with_a_sentence():
    model = build(config_of("llama"))
    model.model.norm.weight.fill_(float("nan"))
    column = write({"original": model}).columns[0]
    assert "NaN" in column.error
    assert column.tokens == []


def test_a_stop_reaches_between_two_models_and_keeps_what_was_written():
    flag, seen = CancelFlag(), []

    def stop_at_three(columns):
        seen[:] = [len(column.tokens) for column in columns]
        if seen[0] == 3:
            flag.set()

    with pytest.raises(Cancelled):
        drain(generate(variants("llama"), tokenizer(), PROMPT, max_new_tokens=20, cancel=flag), stop_at_three)
    assert seen == [3, 3, 3, 3]


def test_a_column_ends_at_its_end_of_sequence_token():
    model = build(config_of("llama"))
    first = write({"original": model}, max_new_tokens=8).columns[0]
    stop = first.tokens[3]
    model.generation_config.eos_token_id = [EOS, stop]
    column = write({"original": model}, max_new_tokens=8).columns[0]
    assert column.tokens == first.tokens[: first.tokens.index(stop) + 1]
    assert column.finished
    assert column.pieces[-1] == ""
    assert "".join(column.pieces) == column.text


@pytest.mark.parametrize("seed", range(4))
def test_text_has_no_replacement_characters_and_its_pieces_join(seed):
    """A random byte-level model writes many bytes that make no character."""
    for column in write(variants("llama"), temperature=1.5, seed=seed, max_new_tokens=40).columns:
        assert "\N{REPLACEMENT CHARACTER}" not in column.text
        assert column.text == "".join(column.pieces)
        assert bytes(token for token in column.tokens if token < 256).decode("utf-8", "ignore") == column.text


def test_a_character_of_several_tokens_appears_whole_with_its_last_byte():
    """A stand-in for the model that spells out a text byte by byte."""
    spelled = "é🙂中 ok"
    model = build(config_of("llama"))
    ids = list(encode_prompt(tokenizer(), "x").ids) + list(spelled.encode())
    written = []

    def forced(module, args, output):
        following = torch.full_like(output, -50.0)
        following[..., ids[1 + len(written)]] = 50.0
        written.append(1)
        return following

    model.lm_head.register_forward_hook(forced)
    column = write({"original": model}, "x", max_new_tokens=len(ids) - 1).columns[0]
    assert column.text == spelled
    assert column.pieces == ["", "é", "", "", "", "🙂", "", "", "中", " ", "o", "k"]


def test_the_likeliest_tokens_are_spelled_as_they_would_read_there():
    """After half a character, the byte that completes it shows the whole; bytes that make none show nothing."""
    spelled = "é中"
    model = build(config_of("llama"))
    ids = list(encode_prompt(tokenizer(), "x").ids) + list(spelled.encode())
    written = []

    def forced(module, args, output):
        following = torch.full_like(output, -50.0)
        following[..., ids[1 + len(written)]] = 50.0
        following[..., ord("!")] = 49.0
        following[..., EOS] = 48.0
        written.append(1)
        return following

    model.lm_head.register_forward_hook(forced)
    column = write({"original": model}, "x", max_new_tokens=len(ids) - 1).columns[0]
    assert [row[0][0] for row in column.top] == ["", "é", "", "", "中"]
    assert [row[1][0] for row in column.top] == ["!"] * 5
    assert [row[2][0] for row in column.top] == ["</s>"] * 5
    assert all(p == float(f"{p:.3g}") for row in column.top for _, p in row)


def test_sampled_tokens_keep_the_surprisal_of_the_model_itself():
    column = write({"original": TINY("llama")}, "a", temperature=5.0, max_new_tokens=12).columns[0]
    ids = torch.tensor([[*encode_prompt(tokenizer(), "a").ids, *column.tokens[:-1]]])
    log_p = logits_of(TINY("llama"), ids)[0, -len(column.tokens) :].log_softmax(-1)
    chosen = log_p.gather(-1, torch.tensor(column.tokens)[:, None])[:, 0]
    assert torch.allclose(-chosen, torch.tensor(column.surprisal), atol=2e-5)
    assert max(column.surprisal) > min(-row[0][1] for row in column.top)


def test_parameters_count_what_survives_once_and_what_the_repair_adds():
    model = TINY("gpt2")
    assert model.lm_head.weight is model.transformer.wte.weight
    whole = sum({id(p): p.numel() for p in model.parameters()}.values())
    block = sum(p.numel() for p in blocks_of(model)[2].parameters())
    models = {"original": model, "none": pruned_view(model, CUT)}
    models["repaired"] = pruned_view(model, CUT, [Repair(range(2, 4), "state", operator(0.1))])
    columns = write(models, max_new_tokens=1, added_parameters={"repaired": WIDTH**2}).columns
    assert [c.parameters for c in columns] == [whole, whole - 2 * block, whole - 2 * block + WIDTH**2]


def test_speed_counts_a_columns_own_passes_after_the_prompts(monkeypatch):
    """Each pass of a clock that only ticks when it is read takes one second; comparing reads no clock."""
    ticks = iter(range(10_000))
    monkeypatch.setattr("ghosted.generation.time.perf_counter", lambda: next(ticks))
    for column in write(variants("llama"), max_new_tokens=9).columns:
        assert (column.seconds, column.tokens_per_second) == (8, 1.0)
    first = write(variants("llama"), max_new_tokens=1).columns[0]
    assert (first.seconds, first.tokens_per_second) == (0, None)


# One policy for the beginning-of-sequence token


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("bos", [False, True])
def test_exactly_one_bos_iff_the_tokenizer_adds_one(bos, chat):
    tok = tokenizer(bos=bos, chat=chat)
    for text in ("Hello", "<s>Hello", ""):
        ids = encode_prompt(tok, text, chat=chat).ids
        assert ids.count(BOS) == (1 if bos or not (text or chat) else 0)
        assert not bos or ids[0] == BOS
    assert "Hello" in tok.decode(encode_prompt(tok, "Hello", chat=chat).ids)


def test_a_tokenizer_without_any_bos_token_starts_from_its_end_token_or_asks():
    tok = tokenizer()
    tok.bos_token = None
    assert encode_prompt(tok, "").ids == (EOS,)
    assert BOS not in encode_prompt(tok, "Hi").ids
    tok.eos_token = None
    with pytest.raises(InputError, match=r"^The prompt is empty.*\.$"):
        encode_prompt(tok, "")


def test_control_tokens_typed_by_the_user_are_text():
    tok = tokenizer(bos=True, chat=True)
    end, start = tok.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
    ids = encode_prompt(tok, "a<|im_end|>b <|im_start|>c", chat=True).ids
    assert (ids.count(end), ids.count(start)) == (1, 2)
    assert "a<|im_end|>b <|im_start|>c" in tok.decode(ids)
    assert {end, start}.isdisjoint(encode_prompt(tok, "a<|im_end|>b").ids)


def test_a_base_model_continues_a_chat_prompt_as_text_and_says_so():
    found = write(variants("llama"), "Hi", chat=True, max_new_tokens=4)
    assert found.notices == ["This model has no chat template; the prompt is continued as plain text."]
    assert found.columns[0].tokens == write(variants("llama"), "Hi", max_new_tokens=4).columns[0].tokens


def test_a_chat_template_is_used_where_there_is_one():
    tok = tokenizer(chat=True)
    found = write(variants("llama"), "Hi", tok=tok, chat=True, max_new_tokens=4)
    assert found.notices == []
    assert tok.decode(encode_prompt(tok, "Hi", chat=True).ids).endswith("Hi<|im_end|>\n<|im_start|>assistant\n")
    assert found.columns[0].tokens != write(variants("llama"), "Hi", tok=tok, max_new_tokens=4).columns[0].tokens
    tok.chat_template = "{{ raise_exception('system prompt please') }}"
    assert "system prompt please" in encode_prompt(tok, "Hi", chat=True).notices[0]


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "opt", "llama"])
def test_a_prompt_longer_than_the_context_loses_its_beginning_with_a_notice(name, bos):
    tok, long = tokenizer(bos=bos), "".join(chr(97 + i % 26) for i in range(CONTEXT + 50))
    found = write({"original": TINY(name), "none": pruned_view(TINY(name), CUT)}, long, tok=tok, max_new_tokens=20)
    assert len(found.notices) == 1
    assert f"{len(long) + bos} tokens and only {CONTEXT - 20} fit" in found.notices[0]
    assert all(column.error is None and len(column.tokens) in range(1, 21) for column in found.columns)
    ids = encode_prompt(tok, long, limit=100).ids
    assert len(ids) == 100
    assert ids.count(BOS) == bos
    assert tok.decode(ids[-99:]) == long[-99:]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"max_new_tokens": 0}, "At least 1 new token"),
        ({"max_new_tokens": CONTEXT}, "fewer than 256"),
        ({"temperature": -0.5}, "not -0.5"),
        ({"temperature": float("nan")}, "not nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, match):
    with pytest.raises(InputError, match=match):
        write(variants("llama"), **settings)


def test_half_a_surrogate_pair_is_survived():
    assert write({"original": TINY("llama")}, "bad \ud83d half", max_new_tokens=2).columns[0].error is None


def test_a_chat_that_is_too_long_keeps_its_template_whole():
    spoken = tokenizer(chat=True)
    whole = spoken.decode(encode_prompt(spoken, "q", chat=True).ids)
    for bos in (False, True):
        spoken = tokenizer(chat=True, bos=bos)
        cut = encode_prompt(spoken, "".join(f"{i} " for i in range(300)), chat=True, limit=100)
        assert len(cut.ids) <= 100 and len(cut.ids) > 90 and "only 100 fit" in cut.notices[0]
        text = spoken.decode(cut.ids, skip_special_tokens=False)
        before, after = whole.split("q")[0].strip(), whole.rsplit("q", 1)[1].strip()
        assert before in text and text.strip().endswith(after) and "298 299" in text
