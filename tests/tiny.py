"""Random small models of every supported family, and a byte-level tokenizer: built in memory, nothing is fetched."""

from functools import cache

import torch

FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi", "phi3", "mixtral", "gpt2", "gpt_neox",
    "gptj", "opt", "falcon", "bloom", "olmo2",
)  # fmt: skip
VARIANTS = ("falcon-new", "falcon-alibi", "falcon-serial", "gpt_neox-serial", "mistral-sliding", "qwen2-sliding",
            "gpt2-scaled", "opt-post")  # fmt: skip
BLOCKS, WIDTH, VOCABULARY, CONTEXT = 6, 32, 260, 256
BOS, EOS = 256, 257

_LLAMA = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": BLOCKS, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}  # fmt: skip
_WIDE = {"hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": BLOCKS, "num_attention_heads": 4,
         "max_position_embeddings": CONTEXT}  # fmt: skip
_GPT = {"n_embd": WIDTH, "n_layer": BLOCKS, "n_head": 4, "n_positions": CONTEXT}
_ALTERNATING = ["sliding_attention", "full_attention"] * (BLOCKS // 2)
_FALCON = {"hidden_size": WIDTH, "num_hidden_layers": BLOCKS, "num_attention_heads": 4, "bias": False,
           "max_position_embeddings": CONTEXT}  # fmt: skip
_SETTINGS = {
    "llama": _LLAMA,
    "mistral": _LLAMA | {"sliding_window": None},
    "mistral-sliding": _LLAMA | {"sliding_window": 8},
    "qwen2": _LLAMA,
    "qwen2-sliding": _LLAMA | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
    "qwen3": _LLAMA | {"head_dim": 8},
    "gemma2": _LLAMA | {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8, "layer_types": _ALTERNATING},
    "gemma3_text": _LLAMA
    | {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8, "layer_types": _ALTERNATING[::-1]},
    "phi": _WIDE | {"partial_rotary_factor": 0.5},
    "phi3": _LLAMA | {"sliding_window": None, "pad_token_id": None},
    "mixtral": _LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": _GPT,
    "gpt2-scaled": _GPT | {"scale_attn_by_inverse_layer_idx": True},
    "gpt_neox": _WIDE | {"use_parallel_residual": True},
    "gpt_neox-serial": _WIDE | {"use_parallel_residual": False},
    "gptj": _GPT | {"rotary_dim": 4},
    "opt": {"hidden_size": WIDTH, "ffn_dim": 64, "num_hidden_layers": BLOCKS, "num_attention_heads": 4,
            "max_position_embeddings": CONTEXT, "word_embed_proj_dim": WIDTH, "do_layer_norm_before": True,
            "pad_token_id": None},
    "falcon": _FALCON | {"multi_query": True, "parallel_attn": True, "new_decoder_architecture": False},
    "falcon-new": _FALCON | {"parallel_attn": True, "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon-alibi": _FALCON | {"multi_query": False, "parallel_attn": True, "alibi": True},
    "falcon-serial": _FALCON | {"multi_query": False, "parallel_attn": False},
    "bloom": {"hidden_size": WIDTH, "n_layer": BLOCKS, "n_head": 4},
    "olmo2": _LLAMA | {"pad_token_id": None},
}  # fmt: skip
_SETTINGS["opt-post"] = _SETTINGS["opt"] | {"do_layer_norm_before": False}


def config_of(name: str, **changes):
    from transformers import AutoConfig

    settings = {"vocab_size": VOCABULARY, "bos_token_id": BOS, "eos_token_id": EOS} | _SETTINGS[name] | changes
    return AutoConfig.for_model(name.partition("-")[0], **settings)


def build(config, seed: int = 0):
    """A random model whose blocks matter: the usual initialisation leaves nearly nothing in the residual stream."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    noise = torch.Generator().manual_seed(seed + 1)
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=noise)
        if parameter.dim() > 1:
            parameter.copy_(drawn * (0.7 if "embed" in name or "wte" in name else 1.3) / parameter.shape[-1] ** 0.5)
        else:
            parameter.add_(drawn * 0.1)
    return model


@cache
def TINY(name: str):
    """The shared tiny model of a family or variant; tests that change weights take ``build(config_of(name))``."""
    return build(config_of(name))


@cache
def PLANTED():
    """A random Llama of 24 blocks, width 64, whose blocks 14 and 15 are exact identities."""
    model = build(config_of("llama", num_hidden_layers=24, hidden_size=64, intermediate_size=128))
    for block in model.model.layers[14:16]:
        block.self_attn.o_proj.weight.zero_()
        block.mlp.down_proj.weight.zero_()
    return model


_CHAT = (
    "{{ bos_token if add_bos else '' }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(*, bos: bool = False, chat: bool = False):
    """Byte-level, one token per byte, so that any text round-trips; ids fit the tiny models' vocabulary.

    ``bos``: adds a beginning-of-sequence token by default. ``chat``: has a chat template, which writes a BOS of its own
    exactly where the tokenizer adds one, as published templates do.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    vocabulary = {char: byte for byte, char in bytes_to_unicode().items()}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    if bos:
        core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    made = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    if chat:
        made.chat_template = _CHAT.replace("add_bos", "true" if bos else "false")
    return made


def prompt_ids(length: int, rows: int = 1, seed: int = 3) -> torch.Tensor:
    """Random ids ``(rows, length)`` without special tokens."""
    return torch.randint(0, 256, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits_of(model, ids: torch.Tensor, **more) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=ids, use_cache=False, **more).logits
