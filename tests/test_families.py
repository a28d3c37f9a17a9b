import pytest
import torch
from tiny import BLOCKS, FAMILIES, TINY, VARIANTS, WIDTH, build, config_of, prompt_ids

from ghosted.errors import ModelError
from ghosted.models.families import blocks_of, find_family
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.states import hidden_forward, recording

POST_NORM = ("gemma2", "gemma3_text", "olmo2")
KNOWN = [name for name in FAMILIES + VARIANTS if name != "opt-post"]


def on_meta(config):
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("name", FAMILIES + VARIANTS)
def test_blocks_are_found_and_a_model_without_weights_is_enough(name):
    model = TINY(name)
    assert len(blocks_of(model)) == BLOCKS
    assert find_family(on_meta(config_of(name))) == find_family(model)
    assert model.get_submodule(find_family(model).blocks_path) is blocks_of(model)


@pytest.mark.parametrize("name", KNOWN)
def test_the_branch_is_exactly_what_is_added_to_the_residual_stream(name):
    """Silencing the branch of block 2 takes its recorded output away from the block's output, and nothing else."""
    view, ids = pruned_view(TINY(name), RemovedBlocks()), prompt_ids(12, rows=2)
    with recording(view, feed_forward_of=(2,)) as recorder:
        hidden_forward(view, ids)
        added, after = recorder.feed_forward[2], recorder.states[3]
        branch = blocks_of(view)[2].get_submodule(find_family(view).feed_forward)
        silence = branch.register_forward_hook(lambda module, args, output: torch.zeros_like(output))
        hidden_forward(view, ids)
        silence.remove()
        silent = recorder.states[3]
    assert added.shape == (2, 12, WIDTH)
    assert added.abs().max() > 0.1
    assert torch.allclose(after - added, silent, atol=2e-5)


@pytest.mark.parametrize("name", KNOWN)
def test_merge_target_exists_or_is_refused_with_its_reason(name):
    family, block = find_family(TINY(name)), blocks_of(TINY(name))[0]
    if name in POST_NORM:
        assert family.merge_into is None
        assert "normalises" in family.no_merge
        return
    parent, _, last = family.merge_into.rpartition(".")
    target = getattr(block.get_submodule(parent), last)
    weight = target if isinstance(target, torch.Tensor) else target.weight
    out = {"mixtral": -2, "gpt2": -1}.get(name.partition("-")[0], 0)
    assert weight.shape[out] == WIDTH


def test_unknown_branches_say_why():
    post = find_family(TINY("opt-post"))
    assert post.feed_forward is None
    assert "normalises" in post.no_feed_forward
    exact = find_family(build(config_of("bloom", slow_but_exact=True, pretraining_tp=2)))
    assert "slices" in exact.no_feed_forward
    cohere = find_family(on_meta(config_of_other("cohere")))
    assert (cohere.blocks_path, cohere.feed_forward) == ("model.layers", None)
    assert "cohere" in cohere.no_feed_forward
    assert cohere.no_merge


def test_a_model_without_decoder_blocks_is_refused_in_one_sentence():
    with pytest.raises(ModelError, match=r"^[^\n]+bert[^\n]+\.$"):
        find_family(on_meta(config_of_other("bert", is_decoder=True)))


def config_of_other(model_type, **more):
    from transformers import AutoConfig

    return AutoConfig.for_model(model_type, hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=4,
                                intermediate_size=64, vocab_size=50, pad_token_id=0, bos_token_id=1,
                                eos_token_id=2, **more)  # fmt: skip
