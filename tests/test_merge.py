"""CASES 8: a repair of the feed-forward branch merged into the weights equals the run-time operator, or is refused."""

import pytest
import torch
from tiny import FAMILIES, TINY, VARIANTS, WIDTH, build, config_of, logits_of, prompt_ids

from ghosted.errors import InputError, NotDefined
from ghosted.merge import merged_tensors, merged_view
from ghosted.models.families import blocks_of, find_family
from ghosted.pruned import Repair, pruned_view
from ghosted.removed import RemovedBlocks

POST_NORM = ("gemma2", "gemma3_text", "olmo2")


def repair(gap, feature="feed_forward", seed=1):
    M = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed)) * 0.2
    return Repair(gap, feature, M)


@pytest.mark.parametrize("name", FAMILIES + VARIANTS)
def test_merged_equals_the_run_time_operator_or_is_refused_with_its_reason(name):
    model, ids = TINY(name), prompt_ids(20, rows=2)
    removed = RemovedBlocks.parse("1,3-4")
    repairs = [repair(gap, seed=i) for i, gap in enumerate(removed.gaps)]
    if name in POST_NORM or name == "opt-post":
        with pytest.raises(NotDefined, match="normalises"):
            merged_view(model, removed, repairs)
        return
    before = logits_of(model, ids)
    merged = merged_view(model, removed, repairs)
    hung, plain = (logits_of(pruned_view(model, removed, r), ids) for r in (repairs, []))
    found = logits_of(merged, ids)
    assert (found - hung).abs().max() < 1e-4
    assert (found - plain).abs().max() > 0.1
    assert torch.equal(logits_of(model, ids), before)


def test_only_the_merged_weights_are_the_views_own():
    model, removed = TINY("phi"), RemovedBlocks.parse("2-3")
    merged = merged_view(model, removed, [repair(range(2, 4))])
    shared = {id(p) for p in model.parameters()}
    own = [name for name, p in merged.named_parameters() if id(p) not in shared]
    assert own == ["model.layers.1.mlp.fc2.weight", "model.layers.1.mlp.fc2.bias"]
    assert not any(p.requires_grad for p in merged.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in merged.modules())


@pytest.mark.parametrize(("name", "expected"), [
    ("llama", {"mlp.down_proj.weight"}), ("gpt2", {"mlp.c_proj.weight", "mlp.c_proj.bias"}),
    ("opt", {"fc2.weight", "fc2.bias"}), ("mixtral", {"mlp.experts.down_proj"}),
])  # fmt: skip
def test_merged_tensors_have_the_shape_and_dtype_of_what_they_replace(name, expected):
    model = TINY(name)
    found = merged_tensors(model, repair(range(2, 4)))
    assert set(found) == expected
    for path, tensor in found.items():
        old = blocks_of(model)[1].get_parameter(path)
        assert (tensor.shape, tensor.dtype) == (old.shape, old.dtype)
        assert not torch.equal(tensor, old)
    nothing = merged_tensors(model, Repair(range(2, 4), "feed_forward", torch.zeros(WIDTH, WIDTH)))
    assert all(torch.equal(t, blocks_of(model)[1].get_parameter(path)) for path, t in nothing.items())


def test_a_mixture_with_blocks_that_have_no_experts_merges_into_those_too():
    more = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [1]}
    config = config_of("llama").to_dict() | more
    model, ids = build(config_of_other("qwen3_moe", config)), prompt_ids(16)
    for remove in ("2-3", "3-4"):  # the block before the first is dense, before the second a mixture
        removed = RemovedBlocks.parse(remove)
        repairs = [repair(removed.gaps[0])]
        hung, merged = (logits_of(made(model, removed, repairs), ids) for made in (pruned_view, merged_view))
        assert (hung - merged).abs().max() < 1e-4
    assert set(merged_tensors(model, repair(range(2, 4)))) == {"mlp.down_proj.weight"}


def test_other_repairs_hang_beside_merged_ones_and_cannot_be_merged():
    model, removed, ids = TINY("llama"), RemovedBlocks.parse("1,3-4"), prompt_ids(16)
    both = [repair(range(1, 2), "state"), repair(range(3, 5))]
    assert (logits_of(merged_view(model, removed, both), ids) - logits_of(pruned_view(model, removed, both), ids)
            ).abs().max() < 1e-4  # fmt: skip
    with pytest.raises(NotDefined, match="state between two blocks"):
        merged_tensors(model, both[0])
    with pytest.raises(NotDefined, match="block 0"):
        merged_tensors(model, repair(range(0, 2)))
    with pytest.raises(InputError):
        merged_view(model, removed, [repair(range(2, 3))])
    assert find_family(model).merge_into == "mlp.down_proj"


def config_of_other(model_type, settings):
    from transformers import AutoConfig

    own = ("model_type", "architectures", "transformers_version", "dtype", "layer_types", "head_dim")
    return AutoConfig.for_model(model_type, head_dim=8, **{k: v for k, v in settings.items() if k not in own})
