"""What is one run, exactly? A frozen :class:`Experiment`.

It is the command line's flags, the page's controls, the cache key and the record beside every number. All fields
are plain data; nothing here touches a model or a file.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from ghosted.errors import InputError, expect
from ghosted.removed import RemovedBlocks

DEFAULT_METHODS = ("none", "linearpatch-diag", "linearpatch", "replaceme", "ghosted", "ghosted-weighted")
DTYPES = ("auto", "float32", "bfloat16")
FITS = ("independent", "sequential")


@dataclass(frozen=True)
class Experiment:
    """One run's settings.

    Attributes:
        model: catalogue name, Hub id ``owner/name``, local folder or local ``.gguf``.
        revision: Hub revision, ``None`` for the default branch.
        remove: removed blocks in the grammar of :mod:`ghosted.removed`; used when ``criterion`` is ``manual``.
        criterion: how blocks are chosen; any but ``manual`` chooses ``count`` blocks.
        count: number of blocks that the criterion removes.
        methods: how the gap is repaired, by name.
        text: calibration text: a name or a path.
        tokens: calibration tokens.
        window: tokens per window, in calibration and scoring.
        calibration_window: tokens per calibration window where it differs from ``window``.
        held_out: path or name of a held-out text; ``None`` takes the tokens after the calibration slice.
        evaluate: texts scored by perplexity; empty means the calibration text's next unused tokens.
        windows: windows scored per evaluation text.
        ridge: λ relative to ``mean(diag G)``, or ``auto``: chosen on held-out tokens.
        rank: rank of the methods that have one, ``None`` for their default.
        fit: how several gaps are fitted: ``sequential`` (a later gap's X_pre comes from the model that is already
            pruned and repaired before it) or ``independent`` (each from the unpruned model's states).
        distill: steps of distillation after the fit, 0 for none.
        dtype: ``auto`` (measured on this machine), ``float32`` or ``bfloat16``.
        batch: windows per forward pass, ``None`` lets the machine decide.
        seed: seed of sampling and of generated text.
        prompt: what the side-by-side columns continue; empty means no generation.
        chat: wrap the prompt in the model's chat template.
        temperature: 0 is greedy.
        max_new_tokens: tokens written per column.
    """

    model: str = "smollm2-135m"
    revision: str | None = None
    remove: str = ""
    criterion: str = "manual"
    count: int = 0
    methods: tuple[str, ...] = DEFAULT_METHODS
    text: str = "python-docs"
    tokens: int = 16_384
    window: int = 512
    calibration_window: int | None = None
    held_out: str | None = None
    evaluate: tuple[str, ...] = ()
    windows: int = 16
    ridge: float | str = 1e-6
    rank: int | None = None
    fit: str = "sequential"
    distill: int = 0
    dtype: str = "auto"
    batch: int | None = None
    seed: int = 0
    prompt: str = ""
    chat: bool = False
    temperature: float = 0.0
    max_new_tokens: int = 64

    def __post_init__(self) -> None:
        """Check what can be checked without a model.

        Raises:
            InputError: a number out of range, or removed blocks outside the grammar.
        """
        for name, example in (("model", "smollm2-135m"), ("remove", "14-18"), ("criterion", "cosine"),
                              ("text", "python-docs"), ("prompt", "The river")):  # fmt: skip
            expect(isinstance(value := getattr(self, name), str), name, f"a text such as {example!r}", value)
        for name, example in (("methods", "ghosted"), ("evaluate", "wikitext2")):
            value = getattr(self, name)
            fits = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
            expect(fits, name, f"a list of names such as ({example!r},)", value)
        for name, kinds in (("ridge", float | str), ("temperature", float)):
            value = getattr(self, name)
            expect(type(value) is int or isinstance(value, kinds), name, "a number", value)
        object.__setattr__(self, "remove", str(RemovedBlocks.parse(self.remove)))
        object.__setattr__(self, "methods", tuple(dict.fromkeys(self.methods)))
        object.__setattr__(self, "evaluate", tuple(dict.fromkeys(self.evaluate)))
        for name, least, most in (
            ("tokens", 2, 10**9), ("window", 2, 10**6), ("windows", 1, 10**6), ("max_new_tokens", 1, 4096),
        ):
            _whole(name, getattr(self, name), least, most)
        for name, least in (("calibration_window", 2), ("batch", 1), ("rank", 1)):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), least, 10**6)
        _whole("seed", self.seed, 0, 2**63 - 1)
        _whole("count", self.count, 0, 10**4)
        _whole("distill", self.distill, 0, 10**5)
        if isinstance(self.ridge, str) and self.ridge != "auto":
            raise InputError(f"ridge must be auto or a number from 0 to 1e+06, not {self.ridge[:40]!r}.")
        if self.fit not in FITS:
            raise InputError(f"There is no fit {self.fit!r}; choose one of {', '.join(FITS)}.")
        for name, most in (("ridge", 1e6), ("temperature", 100.0)):
            value = getattr(self, name)
            if isinstance(value, str):
                continue
            if not math.isfinite(value) or not 0 <= value <= most:
                raise InputError(f"{name} must be a number from 0 to {most:g}, not {value}.")
        if self.dtype not in DTYPES:
            raise InputError(f"There is no dtype {self.dtype!r}; choose one of {', '.join(DTYPES)}.")
        if self.criterion != "manual" and self.count < 1:
            raise InputError(f"The criterion {self.criterion} needs a count of blocks to remove, at least 1.")

    @property
    def tokens_per_window(self) -> int:
        """Tokens per *calibration* window."""
        return self.calibration_window or self.window

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        label = name.replace("_", " ")
        raise InputError(f"{label} must be a whole number from {least:,} to {most:,}, not {value}.")
