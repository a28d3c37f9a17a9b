"""Turn a ``.gguf`` into a folder of safetensors: ``python -m ghosted.models.convert FILE FOLDER DTYPE``.

A process of its own, so that a cancelled conversion really ends and its memory comes back. transformers does the
work; reading the header, which it would do three times, and the table of tensor names, which it would build once
per module, are kept (both only depend on their arguments), which halves the time.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from pathlib import Path


def convert(source: Path, target: Path, dtype: str = "bfloat16") -> None:
    """Write model and tokenizer of ``source`` into ``target``, its weights dequantised to ``dtype``."""
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)
    where, name = str(source.parent), source.name
    # Without dequantize=True transformers keeps the weights packed, and such a model cannot be saved.
    model = AutoModelForCausalLM.from_pretrained(
        where, gguf_file=name, dtype=getattr(torch, dtype), quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    config = json.loads((target / "config.json").read_text("utf-8"))
    if config.pop("quantization_config", None) is not None:
        (target / "config.json").write_text(json.dumps(config, indent=2), "utf-8")


def _end_with(parent: int) -> None:
    """End this process soon after its parent is gone: a killed run must not go on in the background."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(3)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
