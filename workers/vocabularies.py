"""Tokenizer and network compared: each token has a row, each output a token, and no control token
is a word.

A tokenizer that is not the network's would end a private job by a single word of a record, or drop
words of records in silence. Both are found here, from public files alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.text_tokens import MARK, control_tokens
from workers.weights import ModelError, listed, read_json

#: Letters that hardly any vocabulary has as they stand: what is encoded as "unknown".
RARE = "ꙮ ᚠ 🧿 \u0e4f \U0001f9e0 \x07 日本 هذا"
_FAILS = (
    "path: the tokenizer fails at letters that it does not know ({}), so that a record could end "
    "its job: "
    "give it an unknown token"
)
SPECIAL = ("bos", "eos", "pad", "unk", "sep", "cls", "mask")
STATED = tuple(
    f"{name}_token_id" for name in (*SPECIAL, "decoder_start", "forced_bos", "forced_eos")
)


def check(tokenizer: Any, folder: Path, rows: int, outputs: bool = True) -> None:
    """Check the tokenizer of a network with `rows` embeddings and, if `outputs`, as many outputs.

    Raises ModelError with the tokens at fault, which are public.
    """
    _check_unique(folder)
    words = _words(tokenizer)
    _check_rows(words, rows)
    if outputs:
        _check_outputs(words, rows)
    unknown = _unknown(tokenizer, rows)
    for name in ("config.json", "generation_config.json"):
        if (folder / name).is_file():
            _check_stated(tokenizer, name, read_json(folder / name), rows)
    _check_controls(tokenizer, unknown)


def check_static(tokenizer: Any, folder: Path, rows: int) -> None:
    """Check the tokenizer of static vectors, one of the library `tokenizers`. Raises ModelError."""
    _check_rows({token: word for word, token in tokenizer.get_vocab().items()}, rows)
    _check_unique(folder)
    try:
        tokenizer.encode(RARE, add_special_tokens=False)
    except Exception as error:
        raise ModelError(_FAILS.format(type(error).__name__)) from None


def _words(tokenizer: Any) -> dict[int, str]:
    """Return the tokens by their ids. Raises ModelError if two have one id."""
    words: dict[int, str] = {}
    added = [(str(word), token) for token, word in tokenizer.added_tokens_decoder.items()]
    for word, token in [*tokenizer.get_vocab().items(), *added]:
        other = words.setdefault(token, word)
        if other != word:
            raise ModelError(f"path: the tokens {other!r} and {word!r} have the same id, {token}")
    return words


def _check_rows(words: Mapping[int, str], rows: int) -> None:
    beyond = sorted(token for token in words if not 0 <= token < rows)
    if beyond:
        raise ModelError(
            f"path: the tokenizer has tokens that the model's {rows:,} embeddings lack: "
            f"{listed(f'{words[token]!r} ({token})' for token in beyond)}: remove them, or resize "
            "the embeddings (resize_token_embeddings) and train these tokens"
        )


def _check_outputs(words: Mapping[int, str], rows: int) -> None:
    nameless = [token for token in range(rows) if token not in words]
    if nameless:
        raise ModelError(
            f"path: the tokenizer has {rows - len(nameless):,} tokens and the model {rows:,} "
            f"outputs: those without a token, {nameless[0]} first, can't be decoded when drawn: "
            "cut them with resize_token_embeddings(len(tokenizer)), or save the tokenizer that "
            "belongs to the model"
        )


def _check_unique(folder: Path) -> None:
    """Refuse tokens that share an id, or a token with two, in tokenizer.json."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return
    saved = read_json(path)
    vocabulary = (saved.get("model") or {}).get("vocab") or {}
    if isinstance(vocabulary, dict):
        pairs = list(vocabulary.items())
    else:  # a Unigram vocabulary lists [word, score]
        pairs = [(token[0], number) for number, token in enumerate(vocabulary)]
    pairs += [
        (token_entry.get("content"), token_entry.get("id"))
        for token_entry in saved.get("added_tokens") or ()
    ]
    by_id: dict[Any, Any] = {}
    by_word: dict[Any, Any] = {}
    for word, token in pairs:
        other = by_id.setdefault(token, word)
        if other != word:
            raise ModelError(f"path: the tokens {other!r} and {word!r} have the same id, {token}")
        place = by_word.setdefault(word, token)
        if place != token:
            raise ModelError(f"path: the token {word!r} has two ids, {place} and {token}")


def _check_stated(tokenizer: Any, name: str, stated: Mapping[str, Any], rows: int) -> None:
    """Check the ids of special tokens in a configuration: in range, and no token that texts use."""
    for field in STATED:
        value = stated.get(field)
        for token in value if isinstance(value, list) else [value]:
            if token is None:
                continue
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < rows:
                raise ModelError(
                    f"path: {name} states {field} {token!r}: use a token from 0 to {rows - 1}"
                )
            word = tokenizer.decode([token])
            has_letters = any(letter.isalnum() for letter in word) and not MARK.fullmatch(
                word.strip()
            )
            if has_letters and token in _written(tokenizer, word):
                raise ModelError(
                    f"path: {name} states {field} {token}, which is {word!r}, a word of texts: "
                    "they would end there, or lose it"
                )


def _unknown(tokenizer: Any, rows: int) -> set[int]:
    """Return the tokens of rare letters. Raises ModelError if it fails, or a token has no row."""
    try:
        unknown = set(_ids(tokenizer, RARE))
        added = set(tokenizer.encode("a", add_special_tokens=True))
    except Exception as error:  # tokenizers raises plain exceptions
        raise ModelError(_FAILS.format(type(error).__name__)) from None
    beyond = sorted(token for token in unknown | added if not 0 <= token < rows)
    if beyond:
        raise ModelError(
            f"path: the tokenizer writes the token {beyond[0]}, and the model has {rows:,}"
        )
    return unknown


def _check_controls(tokenizer: Any, unknown: set[int]) -> None:
    """Check that no text is encoded with a control token, which would be left out."""
    control = control_tokens(tokenizer)
    clash = sorted(control & unknown)
    if clash:
        word = tokenizer.convert_ids_to_tokens(clash[0])
        raise ModelError(
            f"path: {word!r} stands for unknown letters and for the start or end of texts: use two "
            "tokens"
        )
    for token in sorted(control):
        word = tokenizer.decode([token])
        if not MARK.fullmatch(word.strip()) and token in _written(tokenizer, word):
            raise ModelError(
                f"path: the special token {word!r} ({token}) is in ordinary texts, and would be "
                "left out of each: give it a mark of its own, such as <pad>"
            )


def _written(tokenizer: Any, word: str) -> set[int]:
    """Return the tokens of ordinary texts in which a word stands."""
    bare = word.strip() or word
    return {
        token for text in (word, bare, f"a {bare} b", f"a{bare}") for token in _ids(tokenizer, text)
    }


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
