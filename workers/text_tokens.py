"""Texts as token numbers that say what was written, and never more: a text can't end itself or a
turn.

A tokenizer reads its special tokens wherever their names stand, in a record too: `</s>` would end
the record's text for the model, `<|im_end|>` the turn that shows it. Here such names are letters
like any other.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

from workers import interruption

T = TypeVar("T")

MARK = re.compile(
    r"[<\[].+[>\]]"
)  # <start_of_turn>, [INST], and not the blanks that some models add as tokens

#: What tokenizers raise at a text that they can't encode: plain exceptions, which quote the text.
FAILURES = (
    Exception,
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    UnicodeEncodeError,
)


def text_tokens(tokenizer: Any, text: str) -> list[int]:
    """Return token numbers of a text, without any that begins, ends or divides texts or turns.

    A text that the tokenizer can't take has none: no record's words may end its job.
    """
    if not text:
        return []
    interruption.check()
    encoding = encoded(
        lambda: tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    )
    barred = control_tokens(tokenizer)
    return [token for token in encoding if token not in barred]


def encoded(encode: Callable[[], Iterable[T]]) -> list[T]:
    """Return what a tokenizer's `encode` gives, or nothing where it fails at the text."""
    try:
        return list(encode())
    except BaseException as error:  # pyo3 names no class for a panic, which is no Exception
        # An interruption, such as a time limit, is a class of its own and goes on.
        if type(error) not in FAILURES and type(error).__name__ != "PanicException":
            raise
    return []


@lru_cache(maxsize=8)
def control_tokens(tokenizer: Any) -> frozenset[int]:
    """Return tokens that stand for more than their letters: special ones, and marks that the chat
    template writes.

    That for unknown letters is not among them, unless it serves as another too.
    """
    template = str(tokenizer.chat_template or "")
    added = tokenizer.added_tokens_decoder
    control = {
        token
        for token, text in added.items()
        if text.special or (MARK.fullmatch(text.content) and text.content in template)
    }
    named = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} - {None}
    return frozenset(
        ((control | set(tokenizer.all_special_ids)) - {tokenizer.unk_token_id}) | named
    )
