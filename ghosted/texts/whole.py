"""How is a whole text scored, as the papers do it? One stream of tokens, long windows, each token scored once.

The text (a dataset's whole split, its rows joined) is tokenised once and cut into windows of the model's context or
2,048 tokens. Windows lie end to end; with a stride below the window they overlap, and then the overlap is context only.
What is left at the end is a shorter window: it is scored, too (the GPTQ-style scripts drop it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ghosted.errors import InputError, TextError
from ghosted.progress import CancelFlag, Steps
from ghosted.texts.windows import Windows, encoded

if TYPE_CHECKING:
    from ghosted.models import LoadedModel
    from ghosted.texts import Text

WINDOW = 2048
"""The papers' window; a model with a shorter context gets its own length."""
ENDLESS_WINDOWS = 256
"""Windows taken of a text that has no end (C4, as the papers' scripts do; text that the model writes)."""


@dataclass(frozen=True, eq=False)
class WholeText:
    """A text cut for scoring.

    Attributes:
        windows: rows in their order, BOS included where there is one.
        scored: of each row, the tokens that are scored: its last ones, counted in the text's own tokens. No token is
            in two of them, and only those are in none that have nothing before them.
        stride: positions from one window to the next.
        size: UTF-8 bytes of the scored tokens.
        same_source: whether it is the calibration text (other tokens of it).
    """

    windows: Windows
    scored: tuple[range, ...]
    stride: int
    size: int
    same_source: bool = False

    @property
    def fresh(self) -> tuple[int, ...]:
        """Of each row, how many of its last positions are scored."""
        return tuple(map(len, self.scored))


def window_and_stride(window: int | None, stride: int | None, context: int | None) -> tuple[int, int]:
    """Return the window and the stride that are meant; by default the papers' protocol.

    Args:
        window: positions per window, ``None`` for 2,048 or the model's context where that is shorter.
        stride: from one window to the next, ``None`` for the window: no overlap.
        context: the model's, ``None`` where it has no limit.

    Raises:
        InputError: the window is longer than the context, or the stride longer than the window.
    """
    window = min(WINDOW, context or WINDOW) if window is None else window
    stride = window if stride is None else stride
    if window < 3 or (context is not None and window > context):
        raise InputError(f"An evaluation window of {window:,} tokens does not fit; choose one from 3 to "
                         f"{context or 10**6:,}.")  # fmt: skip
    if not 2 <= stride <= window:
        raise InputError(f"A stride of {stride:,} does not fit a window of {window:,}; choose 2 to {window:,}.")
    return window, stride


def cut(
    ids: list[int], *, start: int, window: int, stride: int, bos_id: int | None, text: str, digest: str,
    most: int | None = None,
) -> tuple[Windows, tuple[range, ...]]:
    """Cut ``ids[start:]`` into windows that may overlap.

    Args:
        ids: the text's token ids, no special tokens among them.
        start: first id to take.
        window: positions per window; BOS counts as one of them.
        stride: positions from one window to the next.
        bos_id: put first in each window, unless ``None``.
        text: label.
        digest: sha256 of the text's content.
        most: windows at most.

    Returns:
        The windows, and of each the tokens that are scored.
    """
    import torch

    extra = 0 if bos_id is None else 1
    content, overlap = window - extra, window - stride
    rows, scored, at, end = [], [], start, start
    while end < len(ids) and (most is None or len(rows) < most):
        stop = min(at + content, len(ids))
        # The first position of a row has nothing before it: its token is context, unless that is the BOS.
        new = range(max(end, at + 1 - extra), stop)
        if not new:
            break
        rows.append(torch.tensor([bos_id] * extra + ids[at:stop], dtype=torch.int64))
        scored.append(new)
        end, at = stop, stop - overlap
    return Windows(tuple(rows), text, digest, start, end, window, bool(extra)), tuple(scored)


def whole_text(
    name: str, loaded: LoadedModel, *, window: int, stride: int, most: int | None = None, seed: int = 0,
    split: str = "test", used: tuple[Windows, ...] = (), cancel: CancelFlag | None = None,
) -> Steps[WholeText]:
    """Read a text and cut all of it, but what was used before.

    Args:
        name: a named text or a path.
        loaded: gives the tokenizer, and writes the text where it is ``generated``.
        window: positions per window.
        stride: positions from one window to the next.
        most: windows at most; by default all, or :data:`ENDLESS_WINDOWS` of a text without end.
        seed: of generated text.
        split: ``train`` or ``test``, for sources that have both.
        used: slices that were read before (calibration, held-out); where they are from this text, it starts after them.
        cancel: stops the work.

    Raises:
        TextError: the text cannot be read, or nothing of it is left.
    """
    from ghosted import texts

    source = texts.sources().get(name.strip())
    if most is None and getattr(source, "ENDLESS", False):
        most = ENDLESS_WINDOWS
    before = max((windows.stop for windows in used), default=0)
    needed = 10**9 if most is None else before + window + most * stride
    text = yield from texts.read(
        name, model=loaded, seed=seed, tokens_needed=min(needed, 1 << 26), split=split, cancel=cancel
    )
    given = _encoded(text, loaded.tokenizer, needed)
    ids = given["input_ids"]
    from_here = [windows for windows in used if windows.digest == text.digest or _begins_alike(ids, windows)]
    start = max((windows.stop for windows in from_here), default=0)
    windows, scored = cut(ids, start=start, window=window, stride=stride, bos_id=loaded.bos_id, text=text.name,
                         digest=text.digest, most=most)  # fmt: skip
    if not scored:
        left = "none are left after calibration and held-out tokens" if start else "that is too few to score"
        raise TextError(f"The text {text.name} is too short: it has {len(ids):,} tokens, and {left}.")
    return WholeText(windows, scored, stride, _size(given, text, scored, loaded.tokenizer), bool(from_here))


def _encoded(text: Text, tokenizer: Any, needed: int) -> dict[str, Any]:
    if text.ids is None and getattr(tokenizer, "is_fast", False):
        return encoded(text, tokenizer, needed, return_offsets_mapping=True)
    return encoded(text, tokenizer, needed)


def _begins_alike(ids: list[int], windows: Windows) -> bool:
    """Whether ``windows`` were cut from this text, or from a shorter or longer beginning of it."""
    if not len(windows):
        return False
    row = windows.rows[0][int(windows.bos) :].tolist()
    return ids[windows.start : windows.start + len(row)] == row


def _size(given: dict[str, Any], text: Text, scored: tuple[range, ...], tokenizer: Any) -> int:
    """Return the UTF-8 bytes of the scored tokens: each token owns the text from the last one's end to its own."""
    import numpy as np

    offsets = given.get("offset_mapping")
    if offsets is None:
        ids = given["input_ids"]
        return sum(len(tokenizer.decode(ids[run.start : run.stop]).encode()) for run in scored)
    widths = [len(character.encode()) for character in text.content[: offsets[-1][1]]]
    ends = np.concatenate([[0], np.cumsum(widths)])
    return int(sum(ends[offsets[run.stop - 1][1]] - (ends[offsets[run.start - 1][1]] if run.start else 0)
                   for run in scored))  # fmt: skip
