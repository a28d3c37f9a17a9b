"""Which models are offered by name, and what is known about them without looking?

Every entry names its source; any other model goes by its Hub id, folder or ``.gguf``. Adding one is adding a line.
"""

from __future__ import annotations

from dataclasses import dataclass

OFFLINE = "smollm2-135m"
"""The default: the one model that comes from a package index and needs no model hub."""


@dataclass(frozen=True)
class Entry:
    """One model of the catalogue.

    Attributes:
        name: what users type.
        label: what people read, wherever numbers of this model are shown.
        source: Hub id ``owner/name``, or ``""`` for the offline default.
        parameters: about how many, for the list.
        blocks: number of blocks.
        licence: the model's licence, by its common name.
        note: one sentence on why it is here.
        gated: whether the Hub asks for an accepted licence first.
    """

    name: str
    label: str
    source: str
    parameters: float
    blocks: int
    licence: str
    note: str
    gated: bool = False

    @property
    def offline(self) -> bool:
        """Whether it works without a model hub."""
        return not self.source

    def to_json(self) -> dict:
        """Return the entry as plain JSON data."""
        return {
            "name": self.name, "label": self.label, "source": self.source or "package index",
            "offline": self.offline, "parameters": int(self.parameters), "blocks": self.blocks,
            "licence": self.licence, "gated": self.gated, "note": self.note,
        }


ENTRIES = (
    Entry(OFFLINE, "SmolLM2-135M-Instruct (4-bit GGUF, dequantised)", "", 134_515_008, 30, "Apache-2.0",
          "The default: small, and fetched from the package index."),
    Entry("smollm2-135m-hub", "SmolLM2-135M (bf16, Hub)", "HuggingFaceTB/SmolLM2-135M", 134.5e6, 30, "Apache-2.0",
          "The base model of the default, as its authors publish it."),
    Entry("smollm2-360m", "SmolLM2-360M (Hub)", "HuggingFaceTB/SmolLM2-360M", 361.8e6, 32, "Apache-2.0",
          "A larger sibling that still runs on two cores."),
    Entry("qwen3-0.6b", "Qwen3-0.6B (Hub)", "Qwen/Qwen3-0.6B", 596e6, 28, "Apache-2.0",
          "Small, with normalised queries and keys."),
    Entry("pythia-160m", "Pythia-160M (Hub)", "EleutherAI/pythia-160m", 162.3e6, 12, "Apache-2.0",
          "Attention and feed-forward in parallel; many published checkpoints."),
    Entry("gpt2-small", "GPT-2 small (Hub)", "openai-community/gpt2", 124.4e6, 12, "MIT",
          "The classic; learned positions."),
    Entry("opt-small", "OPT-125M (Hub)", "facebook/opt-125m", 125.2e6, 12, "OPT licence",
          "Learned positions and a ReLU feed-forward."),
    Entry("llama-3-8b", "Llama-3-8B (Hub)", "meta-llama/Meta-Llama-3-8B", 8.03e9, 32, "Llama 3 licence",
          "A model of the paper.", gated=True),
    Entry("llama-3.1-8b", "Llama-3.1-8B (Hub)", "meta-llama/Llama-3.1-8B", 8.03e9, 32, "Llama 3.1 licence",
          "A model of the paper.", gated=True),
    Entry("deepseek-r1-distill-llama-8b", "DeepSeek-R1-Distill-Llama-8B (Hub)",
          "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 8.03e9, 32, "MIT", "A model of the paper."),
)

BARE_NAMES = {
    "gpt2": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
    "distilgpt2": "distilbert/distilgpt2",
    "opt-125m": "facebook/opt-125m",
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "t5-small": "google-t5/t5-small",
    "roberta-base": "FacebookAI/roberta-base",
}
"""Names from the time when the Hub had ids without an owner, and what they are called now."""


def find(name: str) -> Entry | None:
    """Return the catalogue's entry of that name, if there is one."""
    return next((entry for entry in ENTRIES if entry.name == name.lower()), None)
