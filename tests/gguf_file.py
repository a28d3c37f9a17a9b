"""Writes small .gguf files: a tiny Llama in llama.cpp's layout, or a header of any architecture."""

import numpy as np


def header_only(path, architecture):
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    writer.add_block_count(2)
    writer.add_embedding_length(8)
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), dtype=np.float32))
    _close(writer)


def llama(path, model, words):
    """Write ``model`` (a LlamaForCausalLM) with a byte-pair tokenizer whose tokens are ``words``."""
    from gguf import GGUFWriter, TokenType

    config = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([TokenType.NORMAL] * len(words))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    writer.add_tensor("token_embd.weight", model.model.embed_tokens.weight.numpy())
    writer.add_tensor("output_norm.weight", model.model.norm.weight.numpy())
    writer.add_tensor("output.weight", model.lm_head.weight.numpy())
    for index, block in enumerate(model.model.layers):
        for ours, theirs in names.items():
            weight = block.get_parameter(f"{ours}.weight").numpy()
            if theirs in heads:  # llama.cpp interleaves the two halves that are rotated
                shape = weight.shape
                weight = weight.reshape(heads[theirs], 2, -1, shape[1]).swapaxes(1, 2).reshape(shape)
            writer.add_tensor(f"blk.{index}.{theirs}.weight", np.ascontiguousarray(weight))
    _close(writer)


def _close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
