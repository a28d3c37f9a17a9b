"""The part that imports the evaluation harness (``lm_eval``, EleutherAI); :mod:`ghosted.scores.tasks` asks for it.

The harness prints and draws bars; here it is silent. Its batches are cut by their logits' size, for on a CPU nothing
fails when there are too many of them: the machine just stops. Log-likelihoods are taken in float32, whatever the
model's dtype: bfloat16 has three digits, and answers of one item are often nearer than that.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import datasets
import lm_eval.api.task as harness_task
import torch
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml
from tqdm import tqdm

from ghosted.scores.perplexity import LOGIT_BYTES

MOST_ROWS = 64
SEED = 1234  # the harness's own, of few-shot samples; there are none in a zero-shot task

__all__ = ["TaskManager", "load_yaml", "run"]

harness_task.tqdm = partial(tqdm, disable=True)
logging.getLogger("lm_eval").setLevel(logging.ERROR)
datasets.disable_progress_bars()
datasets.logging.set_verbosity_error()


class InMemory(HFLM):
    """A model in memory for the harness.

    Args:
        model: the original or a view of it; it is not changed.
        tokenizer: its tokenizer; the harness gives its own copy a padding token.
        tick: called before each batch with the requests done and in all; what it raises ends the run.
    """

    def __init__(self, model: Any, tokenizer: Any, tick: Callable[[int, int], None]) -> None:
        super().__init__(pretrained=model, tokenizer=copy.deepcopy(tokenizer), batch_size="auto",
                         max_batch_size=MOST_ROWS, softmax_dtype="float32")  # fmt: skip
        self._tick, self._done, self._total = tick, 0, 1

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Score requests, without the harness's bars."""
        self._done, self._total = 0, len(requests)
        return super().loglikelihood(requests, disable_tqdm=True)

    def _batch_scheduler(self, pos: int, n_reordered_requests: Sequence[Any]) -> int:
        """Return the rows of the next batch; requests come longest first."""
        _, context, continuation = n_reordered_requests[pos]
        length = min(len(context) + len(continuation), self.max_length)
        logits = length * self.config.vocab_size * next(self.model.parameters()).element_size()
        return max(1, min(MOST_ROWS, LOGIT_BYTES // logits))

    def _model_call(self, inps: torch.Tensor, *args: Any, **settings: Any) -> torch.Tensor:
        self._tick(self._done, self._total)
        self._done = min(self._done + len(inps), self._total)
        return super()._model_call(inps, *args, **settings)


def run(
    model: Any, tokenizer: Any, tasks: dict[str, Any], limit: int | None, tick: Callable[[int, int], None]
) -> dict[str, Any]:
    """Run tasks that a :class:`TaskManager` has loaded, zero-shot unless they say otherwise.

    Returns:
        ``results`` (metrics by task) and ``n-samples``, as the harness gives them.
    """
    for task in tasks["tasks"].values():
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=SEED)
    found = evaluate(lm=InMemory(model, tokenizer, tick), task_dict=tasks, limit=limit, bootstrap_iters=100,
                     log_samples=False)  # fmt: skip
    return {"results": found["results"], "n-samples": found["n-samples"]}
