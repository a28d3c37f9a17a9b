import gc
import re
import time
import weakref

import pytest
import torch
from tiny import BLOCKS, FAMILIES, PLANTED, TINY, VARIANTS, WIDTH, build, config_of, logits_of, prompt_ids

from ghosted.errors import InputError, NotDefined
from ghosted.models.families import blocks_of, find_family
from ghosted.pruned import Repair, is_view, pruned_view, surviving_states
from ghosted.removed import RemovedBlocks
from ghosted.states import BlockRunner, hidden_forward, recording

NOTHING = RemovedBlocks()
MIDDLE = RemovedBlocks.parse("2-3")
ALL = FAMILIES + VARIANTS
BRANCHED = [name for name in ALL if name != "opt-post"]


def operator(seed=0, scale=0.3, width=WIDTH):
    return torch.randn(width, width, generator=torch.Generator().manual_seed(seed)) * scale / width**0.5


def repair(gap, feature="state", seed=0):
    return Repair(gap, feature, operator(seed))


def recorded(view, ids, feed_forward_of=()):
    with recording(view, feed_forward_of) as recorder:
        hidden_forward(view, ids)
    return recorder


def rebuilt(name, kept, **more):
    """A smaller model made from a configuration with its per-block lists filtered, and the survivors' weights."""
    original, config = TINY(name), config_of(name, **more)
    for key in ("layer_types",):
        if getattr(config, key, None):
            more[key] = [getattr(config, key)[i] for i in kept]
    blocks = "n_layer" if "n_layer" in config.to_dict() else "num_hidden_layers"
    small = build(config_of(name, **(more | {blocks: len(kept)})))
    path, weights = re.escape(find_family(original).blocks_path), {}
    for key, value in original.state_dict().items():
        match = re.fullmatch(rf"({path})\.(\d+)\.(.+)", key)
        if match is None:
            weights[key] = value
        elif int(match[2]) in kept:
            weights[f"{match[1]}.{kept.index(int(match[2]))}.{match[3]}"] = value
    small.load_state_dict(weights, strict=True)
    return small


@pytest.mark.parametrize("name", ALL)
def test_nothing_removed_changes_no_bit(name):
    model, ids = TINY(name), prompt_ids(40, rows=2)
    assert torch.equal(logits_of(pruned_view(model, NOTHING), ids), logits_of(model, ids))


def test_removing_identity_blocks_changes_no_bit():
    model, ids = PLANTED(), prompt_ids(30, rows=2)
    dense = logits_of(model, ids)
    assert torch.equal(logits_of(pruned_view(model, RemovedBlocks.parse("14-15")), ids), dense)
    assert not torch.equal(logits_of(pruned_view(model, RemovedBlocks.parse("13-14")), ids), dense)


# GPT-2's option scales attention by the block's place; a rebuilt model would scale by the new one.
@pytest.mark.parametrize("removed", ["2", "0,3-4"])
@pytest.mark.parametrize("name", [name for name in ALL if name != "gpt2-scaled"])
def test_equals_a_model_rebuilt_without_the_blocks(name, removed):
    """40 tokens: longer than the sliding windows (8); an odd number of removed blocks flips their pattern."""
    ids, removed = prompt_ids(40), RemovedBlocks.parse(removed)
    view, small = pruned_view(TINY(name), removed), rebuilt(name, removed.survivors(BLOCKS))
    assert view.config.num_hidden_layers == small.config.num_hidden_layers == len(blocks_of(view))
    assert getattr(view.config, "layer_types", None) == getattr(small.config, "layer_types", None)
    assert (logits_of(view, ids) - logits_of(small, ids)).abs().max() < 1e-5


def test_a_survivor_keeps_what_it_was_built_with():
    view = pruned_view(TINY("gpt2-scaled"), RemovedBlocks.parse("1"))
    attention = [block.attn for block in blocks_of(view)]
    assert [a.layer_idx for a in attention] == [0, 1, 2, 3, 4]
    assert [a.scaling for a in attention] == [blocks_of(TINY("gpt2-scaled"))[i].attn.scaling for i in (0, 2, 3, 4, 5)]


def test_survivors_are_the_named_ones_and_not_the_last():
    model = build(config_of("llama", num_hidden_layers=12))
    ids, removed = prompt_ids(20), RemovedBlocks.parse("5-7")
    view = pruned_view(model, removed)
    assert removed.survivors(12) == (0, 1, 2, 3, 4, 8, 9, 10, 11)
    assert surviving_states(view) == (0, 1, 2, 3, 4, 8, 9, 10, 11, 12)
    inner = model.model
    with torch.inference_mode():
        x, positions = inner.embed_tokens(ids), torch.arange(20)[None]
        angles = inner.rotary_emb(x, position_ids=positions)
        for i in removed.survivors(12):
            x = inner.layers[i](x, position_embeddings=angles, attention_mask=None, position_ids=positions)
        by_hand = model.lm_head(inner.norm(x))
    assert torch.equal(logits_of(view, ids), by_hand)
    assert (by_hand - logits_of(pruned_view(model, RemovedBlocks.parse("9-11")), ids)).abs().max() > 0.1


@pytest.mark.parametrize("name", [*FAMILIES, "mistral-sliding", "qwen2-sliding", "falcon-alibi"])
def test_twenty_greedy_tokens_agree_with_and_without_cache(name):
    view, prompt = pruned_view(TINY(name), MIDDLE, [repair(range(2, 4))]), prompt_ids(40)
    cached, uncached = (view.generate(prompt, max_new_tokens=20, do_sample=False, use_cache=use, eos_token_id=None)
                        for use in (True, False))  # fmt: skip
    assert cached.shape == (1, 60)
    assert torch.equal(cached, uncached)


@pytest.mark.parametrize("name", ALL)
def test_operator_forced_to_the_identity_equals_plain_pruning(name):
    model, ids, zero = TINY(name), prompt_ids(20, rows=2), torch.zeros(WIDTH, WIDTH)
    plain = logits_of(pruned_view(model, MIDDLE), ids)
    for feature in ("state", "feed_forward") if name in BRANCHED else ("state",):
        identity = pruned_view(model, MIDDLE, [Repair(range(2, 4), feature, zero)])
        assert torch.equal(logits_of(identity, ids), plain)
        changed = pruned_view(model, MIDDLE, [repair(range(2, 4), feature)])
        assert (logits_of(changed, ids) - plain).abs().max() > 1e-3


@pytest.mark.parametrize("name", ALL)
def test_each_row_of_a_batch_equals_its_single_run(name):
    """Also where shorter prompts are padded on the right: what stands before the padding must not notice."""
    repairs = [repair(range(2, 3), "feed_forward" if name in BRANCHED else "state"), repair(range(5, 6), seed=1)]
    view, ids = pruned_view(TINY(name), RemovedBlocks.parse("2,5"), repairs), prompt_ids(20, rows=3)
    together = logits_of(view, ids)
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    padded = logits_of(view, ids, attention_mask=mask)
    for row, length in ((0, 20), (1, 12), (2, 20)):
        single = logits_of(view, ids[row : row + 1, :length])[0]
        assert (together[row, :length] - single).abs().max() < 1e-4
        assert (padded[row, :length] - single).abs().max() < 1e-4


@pytest.mark.parametrize("feature", ["state", "feed_forward"])
@pytest.mark.parametrize("name", BRANCHED)
def test_a_repair_equals_one_computed_by_hand(name, feature):
    """x̂ = X_pre + φ M with φ = X_pre, or A (which is X_pre − A + A T with T = I + M); then the blocks after the gap."""
    model, ids, M = TINY(name), prompt_ids(20, rows=2), operator()
    dense = recorded(pruned_view(model, NOTHING), ids, (1,))
    view = pruned_view(model, MIDDLE, [Repair(range(2, 4), feature, M)])
    found = recorded(view, ids)
    phi = dense.states[2] if feature == "state" else dense.feed_forward[1]
    expected = [*dense.states[:2], dense.states[2] + phi @ M]
    for block in (4, 5):
        expected.append(BlockRunner(model, block)(expected[-1])[0])
    assert len(found.states) == len(surviving_states(view)) == 5
    for state, by_hand in zip(found.states, expected, strict=True):
        assert torch.allclose(state, by_hand, atol=1e-4)
    assert (phi @ M).abs().max() > 0.01


@pytest.mark.parametrize("name", ALL)
def test_gaps_at_both_ends_are_repaired_where_the_gap_was(name):
    """A gap at the start: what the embedding hands on. A gap at the end: what enters the final norm."""
    model, ids = TINY(name), prompt_ids(12, rows=2)
    first, last = operator(1), operator(2)
    repairs = [Repair(range(0, 1), "state", first), Repair(range(4, 6), "state", last)]
    view = pruned_view(model, RemovedBlocks.parse("0,4-5"), repairs)
    states, start = recorded(view, ids).states, recorded(pruned_view(model, NOTHING), ids).states[0]
    assert surviving_states(view) == (1, 2, 3, 6)
    assert torch.allclose(states[0], start + start @ first, atol=1e-5)
    leaves = BlockRunner(model, 3)(states[2])[0]
    assert torch.allclose(states[3], leaves + leaves @ last, atol=1e-4)


def test_the_end_of_the_model_reads_the_repaired_state():
    model, ids = TINY("llama"), prompt_ids(12)
    view = pruned_view(model, RemovedBlocks.parse("5"), [repair(range(5, 6))])
    with torch.inference_mode():
        by_hand = model.lm_head(model.model.norm(recorded(view, ids).states[-1]))
    assert torch.equal(logits_of(view, ids), by_hand)


def test_the_expression_is_the_documented_one_in_bfloat16():
    model = build(config_of("llama")).to(torch.bfloat16)
    M, ids = operator(), prompt_ids(12)
    x = recorded(pruned_view(model, NOTHING), ids).states[2]
    found = recorded(pruned_view(model, MIDDLE, [Repair(range(2, 4), "state", M)]), ids).states[2]
    assert x.dtype == found.dtype == torch.bfloat16
    assert torch.equal(found, x + (x.float() @ M).to(torch.bfloat16))


def tensor_bytes():
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2", "falcon"])
def test_five_variants_cost_their_operators_only(name):
    model, ids = TINY(name), prompt_ids(20)
    config, dense = model.config.to_dict(), logits_of(model, ids)
    numbers = [vars(module).get("layer_idx") for module in model.modules()]
    before = tensor_bytes()
    views = [pruned_view(model, MIDDLE, [repair(range(2, 4), seed=seed)]) for seed in range(5)]
    grown = tensor_bytes() - before
    assert abs(grown - 5 * WIDTH**2 * 4) <= 0.1 * 5 * WIDTH**2 * 4
    mine = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]}
    for view in views:
        assert is_view(view)
        assert {id(tensor) for tensor in [*view.parameters(), *view.buffers()]} <= mine
        assert not {id(module) for module in view.modules()} & {id(module) for module in model.modules()}
        assert (view.get_output_embeddings().weight is view.get_input_embeddings().weight) == (
            model.get_output_embeddings().weight is model.get_input_embeddings().weight
        )
        logits_of(view, ids)
    assert torch.equal(logits_of(model, ids), dense)
    assert model.config.to_dict() == config
    assert [vars(module).get("layer_idx") for module in model.modules()] == numbers
    assert not is_view(model)
    watched = weakref.ref(views[0])
    del views, view
    gc.collect()
    assert watched() is None


def test_hooks_of_the_original_do_not_come_along():
    model, calls = build(config_of("llama")), []
    model.model.layers[0].register_forward_hook(lambda *args: calls.append("hook"))
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *args: calls.append("pre"))
    view = pruned_view(model, MIDDLE)
    logits_of(view, prompt_ids(5))
    assert calls == []
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in view.modules())
    logits_of(model, prompt_ids(5))
    assert calls == ["pre", "hook"]


def test_hidden_states_are_reported_by_views_of_a_model_that_reported_its_own():
    model, ids = build(config_of("llama")), prompt_ids(5)
    assert len(model(ids, output_hidden_states=True).hidden_states) == BLOCKS + 1
    assert len(pruned_view(model, MIDDLE)(ids, output_hidden_states=True).hidden_states) == BLOCKS - 2 + 1


def test_taking_a_view_is_quick():
    model, times = build(config_of("llama", num_hidden_layers=30)), []
    for _ in range(3):
        start = time.perf_counter()
        pruned_view(model, RemovedBlocks.parse("12-16"))
        times.append(time.perf_counter() - start)
    assert min(times) < 0.2


@pytest.mark.parametrize(
    ("removed", "repairs", "error", "match"),
    [
        ("0-5", [], InputError, "All 6 blocks"),
        ("4-9", [], InputError, "Block 9 does not exist"),
        ("2-3", [repair(range(2, 3))], InputError, "no gap 2 to repair"),
        ("", [repair(range(2, 3))], InputError, "nothing is removed"),
        ("2-3", [repair(range(2, 4)), repair(range(2, 4))], InputError, "two repairs"),
        ("2-3", [Repair(range(2, 4), "state", torch.eye(8))], InputError, "32 × 32, not 8 × 8"),
        ("2-3", [Repair(range(2, 4), "attention", operator())], InputError, "not on 'attention'"),
        ("0-1", [repair(range(0, 2), "feed_forward")], NotDefined, "starts at block 0"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(removed, repairs, error, match):
    with pytest.raises(error, match=match) as caught:
        pruned_view(TINY("llama"), RemovedBlocks.parse(removed), repairs)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_unknown_branches_and_views_of_views_are_refused():
    with pytest.raises(NotDefined, match="normalises"):
        pruned_view(TINY("opt-post"), MIDDLE, [repair(range(2, 4), "feed_forward")])
    with pytest.raises(ValueError, match="not from another view"):
        pruned_view(pruned_view(TINY("llama"), NOTHING), MIDDLE)
