import pytest
import torch
from tiny import BLOCKS, FAMILIES, TINY, VARIANTS, prompt_ids

from ghosted.errors import NotDefined
from ghosted.models.families import blocks_of, find_family, last_map
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.states import BlockRunner, decoder, hidden_forward, recording, run_block

FINAL_NORMS = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "decoder.final_layer_norm")


def whole(model):
    return pruned_view(model, RemovedBlocks())


def recorded(view, ids, feed_forward_of=()):
    with recording(view, feed_forward_of) as recorder:
        hidden_forward(view, ids)
    return recorder


def final_norm(model):
    found = [m for name, m in decoder(model).named_modules() if name in FINAL_NORMS]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", FAMILIES + VARIANTS)
def test_states_are_block_inputs_and_the_last_is_not_normalised(name):
    model, ids = TINY(name), prompt_ids(12, rows=2)
    view = whole(model)
    states = recorded(view, ids).states
    with torch.inference_mode():
        output = decoder(model)(input_ids=ids, output_hidden_states=True, use_cache=False)
        theirs = output.hidden_states
        assert len(states) == len(theirs) == BLOCKS + 1
        assert all(torch.equal(states[i], theirs[i]) for i in range(BLOCKS))
        if name == "opt-post":  # has no final norm
            assert torch.equal(states[-1], output.last_hidden_state)
        else:
            assert torch.equal(final_norm(model)(states[-1]), output.last_hidden_state)
            assert (states[-1] - theirs[-1]).abs().max() > 0.1


def test_states_of_a_stack_run_by_hand():
    model, ids = TINY("llama"), prompt_ids(9)
    inner = model.model
    with torch.inference_mode():
        states = [inner.embed_tokens(ids)]
        positions = torch.arange(9)[None]
        angles = inner.rotary_emb(states[0], position_ids=positions)
        for block in inner.layers:
            states.append(block(states[-1], position_embeddings=angles, attention_mask=None, position_ids=positions))
    for mine, by_hand in zip(recorded(whole(model), ids).states, states, strict=True):
        assert torch.equal(mine, by_hand)


@pytest.mark.parametrize("name", FAMILIES + VARIANTS)
def test_one_block_rerun_on_a_stored_state_gives_the_same_bits(name):
    """40 tokens: longer than every sliding window here; ALiBi and rotary positions included."""
    model, ids = TINY(name), prompt_ids(40, rows=2)
    known = find_family(model).feed_forward is not None
    full = recorded(whole(model), ids, range(BLOCKS) if known else ())
    for block in range(BLOCKS):
        output, branch, hidden = run_block(model, block, full.states[block].clone())
        assert torch.equal(output, full.states[block + 1])
        assert torch.equal(branch, full.feed_forward[block]) if known else branch is None
        end = last_map(blocks_of(model)[block], find_family(model))
        assert (hidden is None) == (end is None)
        if end is not None:  # what the branch's last map makes of it is what the branch adds
            assert torch.allclose(end(hidden), branch, atol=1e-5)


def test_a_block_runner_serves_windows_of_any_length_and_holds_no_state():
    model = TINY("gemma2")
    runner = BlockRunner(model, 3)
    for length in (40, 7):
        states = recorded(whole(model), prompt_ids(length)).states
        assert torch.equal(runner(states[3])[0], states[4])
    assert runner._resumed._stored is None


def test_falcons_branch_is_recorded_before_the_block_adds_to_it():
    model, ids = TINY("falcon"), prompt_ids(6)
    full = recorded(whole(model), ids, (1,))
    block = blocks_of(model)[1]
    with torch.inference_mode():
        assert torch.equal(full.feed_forward[1], block.mlp(block.input_layernorm(full.states[1])))


def test_only_the_last_pass_is_kept():
    view = whole(TINY("llama"))
    with recording(view, (0,)) as recorder:
        hidden_forward(view, prompt_ids(5, rows=3))
        hidden_forward(view, prompt_ids(7))
    assert [tuple(state.shape[:2]) for state in recorder.states] == [(1, 7)] * (BLOCKS + 1)
    assert recorder.feed_forward[0].shape[:2] == (1, 7)
    recorder.clear()
    assert (recorder.states, recorder.feed_forward) == ([], {})


def test_hooks_go_when_the_pass_fails_and_the_original_never_gets_one():
    model = TINY("llama")
    before = sum(hook_count(module) for module in model.modules())  # transformers may have put its own there
    view = whole(model)
    with pytest.raises(RuntimeError, match="stop here"), recording(view, (0, 1)):
        assert sum(hook_count(module) for module in view.modules()) == BLOCKS + 1 + 2 * 2
        assert sum(hook_count(module) for module in model.modules()) == before
        raise RuntimeError("stop here")
    assert sum(hook_count(module) for module in view.modules()) == 0
    with pytest.raises(ValueError, match="never on the original"), recording(model):
        pass


def test_an_unknown_branch_is_refused_before_any_hook_is_set():
    view = whole(TINY("opt-post"))
    with pytest.raises(NotDefined, match="normalises"), recording(view, (1,)):
        pass
    assert sum(hook_count(module) for module in view.modules()) == 0


def hook_count(module):
    return len(module._forward_hooks) + len(module._forward_pre_hooks)
