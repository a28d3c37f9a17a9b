"""Which token ids does a prompt become? One policy for plain prompts and chats.

Exactly one beginning-of-sequence token stands in front iff the tokenizer adds one by default, also where a chat
template writes its own. What the user typed is text: an ``<|im_end|>`` in it is spelled out, never obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ghosted.errors import InputError
from ghosted.models import bos_id
from ghosted.models.loaded import tokenised

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Prompt:
    """An encoded prompt: its token ids, at least one, and sentences about what was changed on the way."""

    ids: tuple[int, ...]
    notices: tuple[str, ...] = ()


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat: bool = False, limit: int | None = None
) -> Prompt:
    """Encode ``prompt``, as a user's message where ``chat`` is asked for and the tokenizer has a template.

    Args:
        tokenizer: the model's.
        prompt: any text; empty starts from the beginning-of-sequence token, else from the end-of-sequence token.
        chat: wrap it in the chat template; without one it is continued as plain text, with a notice.
        limit: most ids that fit; a longer prompt loses its beginning (not its BOS), with a notice.

    Raises:
        InputError: the prompt is empty and the tokenizer has no token to start from.
    """
    # Half a surrogate pair, as browsers can send, is no character and no tokenizer takes it.
    prompt = prompt.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    notices: list[str] = []
    bos = bos_id(tokenizer)
    ids = _chat_ids(tokenizer, prompt, notices) if chat else None
    templated = ids is not None
    ids = _with_bos(ids if templated else _plain(tokenizer, prompt), bos)
    if not ids:
        starts = [i for i in (tokenizer.bos_token_id, tokenizer.eos_token_id) if i is not None]
        if not starts:
            raise InputError("The prompt is empty and this tokenizer has no token to start from; type something.")
        ids = starts[:1]
    if limit is not None and len(ids) > limit:
        notices.append(f"The prompt has {len(ids)} tokens and only {limit} fit the model's context; its beginning was "
                       "left out.")  # fmt: skip
        if templated:
            ids = _shorter_chat(tokenizer, prompt, bos, ids, limit)
        head = ids[:1] if bos is not None and limit > 1 else []
        ids = head + ids[max(len(ids) - limit, 0) + len(head) :]
    return Prompt(tuple(ids), tuple(notices))


def _with_bos(ids: list[int], bos: int | None) -> list[int]:
    if bos is None:
        return ids
    while ids[:1] == [bos]:
        ids = ids[1:]
    return [bos, *ids]


def _shorter_chat(
    tokenizer: PreTrainedTokenizerBase, prompt: str, bos: int | None, ids: list[int], limit: int
) -> list[int]:
    """Shorten what the user typed until the whole chat fits, so that the template around it stays whole."""
    typed = _plain(tokenizer, prompt)
    keep = len(typed)
    while len(ids) > limit and keep > len(ids) - limit:
        keep -= len(ids) - limit
        ids = _with_bos(_chat_ids(tokenizer, tokenizer.decode(typed[-keep:]).lstrip("\ufffd"), []), bos)
    return ids


def _plain(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenised(tokenizer, text, split_special_tokens=True).input_ids)


def _chat_ids(tokenizer: PreTrainedTokenizerBase, prompt: str, notices: list[str]) -> list[int] | None:
    if not tokenizer.chat_template:
        notices.append("This model has no chat template; the prompt is continued as plain text.")
        return None
    message = [{"role": "user", "content": prompt}]
    try:
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program of the model's author and may raise anything
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        notices.append(f"This model's chat template failed ({reason}); the prompt is continued as plain text.")
        return None

    def obeyed(part: str) -> list[int]:
        return list(tokenised(tokenizer, part, split_special_tokens=False).input_ids)

    typed = prompt.strip()
    before, _, after = text.rpartition(typed) if typed else (text, "", "")
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    # Cut only where it matters: pieces encoded one by one may differ from the whole around the cut.
    if typed and (before or after) and any(token in typed for token in special):
        return obeyed(before) + _plain(tokenizer, typed) + obeyed(after)
    return obeyed(text)
