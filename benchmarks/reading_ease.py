"""Reading ease of every sentence that a page, a form's field or a command says, by Flesch.

    python -m benchmarks.reading_ease

206.835 - 1.015 words a sentence - 84.6 syllables a word (Flesch 1948): 60 to 70 is plain English,
below 30 is read by graduates. Syllables are counted by groups of vowels, without a silent e. What a
page fills in (names, figures) counts as one word of one syllable; what people write is not
measured. The sentences are those of all templates, of the descriptions of all fields that forms and
mechanisms have, and of the help of all commands and options.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from typer.main import get_command

from accountant.core import mechanisms
from web import fields
from web.cli.commands import app

TEMPLATES = Path(__file__).parents[1] / "web" / "templates"
_PARAGRAPH = re.compile(r"<(p|li|figcaption)\b[^>]*>(.*?)</\1>", re.DOTALL)
_CODE = re.compile(r"<(code|pre|svg|button|select)\b.*?</\1>", re.DOTALL)
_CALL = re.compile(r"{{\s*(?:field|choose|box)\w*\(.*?}}", re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
#: Fewer words are a label, not a sentence.
LEAST_WORDS = 5
#: A sentence is plain from this ease on, with at most so many words.
PLAIN_EASE, PLAIN_WORDS = 65, 25


def sentences() -> Iterator[tuple[str, str]]:
    """Yield (template, sentence) of every paragraph, list item and caption of the pages."""
    for path in sorted(TEMPLATES.glob("*.html")):
        text = re.sub(r"{#.*?#}", "", path.read_text(), flags=re.DOTALL)
        for _, inside in _PARAGRAPH.findall(text):
            plain = _CODE.sub(" it ", inside)
            plain = re.sub(r"{%.*?%}", " ", plain, flags=re.DOTALL)
            plain = re.sub(r"{{.*?}}", " it ", plain, flags=re.DOTALL)
            yield from _split(path.name, re.sub(r"<[^>]+>", " ", plain))


def every_sentence() -> Iterator[tuple[str, str]]:
    """Yield (place, sentence) of everything: the pages', their fields', the commands'."""
    yield from sentences()
    for path in sorted(TEMPLATES.glob("*.html")):
        for call in _CALL.findall(path.read_text()):
            for text in _QUOTED.findall(call):
                yield from _split(path.name, text)
    for _, _, models in fields.FORMS:
        for prefix, model in models:
            yield from _described(prefix, model.model_json_schema())
    for name, text in fields.OTHERS.items():
        yield from _split(name, text)
    for name, mechanism in mechanisms.MECHANISMS.items():
        yield from _split(name, mechanism.summary)
        yield from _described(name, mechanism.schema)
    yield from _commands("exchequer", get_command(app))


def _described(name: str, schema: Any) -> Iterator[tuple[str, str]]:
    for part in (schema, *schema.get("$defs", {}).values()):
        for field, about in part.get("properties", {}).items():
            yield from _split(f"{name}.{field}", about.get("description", ""))


def _commands(name: str, command: Any) -> Iterator[tuple[str, str]]:
    yield from _split(name, command.help or "")
    for option in command.params:
        yield from _split(f"{name} {option.name}", getattr(option, "help", None) or "")
    for word, part in getattr(command, "commands", {}).items():
        if not part.hidden:
            yield from _commands(f"{name} {word}", part)


def _split(place: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a text, without what is code."""
    plain = " ".join(re.sub(r"`[^`]*`", "it", text).split())
    for sentence in re.split(r"(?<=[.!?])\s+", plain):
        if len(_WORD.findall(sentence)) >= LEAST_WORDS:
            yield place, sentence


def is_plain(sentence: str) -> bool:
    """Return True if a sentence is easy and short."""
    return ease([sentence]) >= PLAIN_EASE and len(_WORD.findall(sentence)) <= PLAIN_WORDS


def syllables(word: str) -> int:
    """Count groups of vowels; a silent e at the end is none, and every word has one."""
    bare = word.lower().replace("’", "").replace("'", "")
    found = len(re.findall(r"[aeiouy]+", bare))
    silent = bare.endswith("e") and not bare.endswith(("le", "ee", "ie", "ue", "oe")) and found > 1
    return max(1, found - silent)


def ease(texts: list[str]) -> float:
    """Return Flesch's reading ease of sentences together."""
    words = [word for text in texts for word in _WORD.findall(text)]
    spoken = sum(syllables(word) for word in words)
    return 206.835 - 1.015 * len(words) / len(texts) - 84.6 * spoken / len(words)


def main() -> None:
    """Print the figures of all sentences, and those that are not plain."""
    found = list(dict.fromkeys(every_sentence()))
    texts = [text for _, text in found]
    hard = [(name, text) for name, text in found if not is_plain(text)]
    middle = median(ease([each]) for each in texts)
    print(f"{len(texts)} sentences, reading ease {ease(texts):.1f}, median {middle:.1f}")
    print(f"{len(hard)} are not plain: below {PLAIN_EASE} or above {PLAIN_WORDS} words")
    for name, text in sorted(hard, key=lambda each: ease([each[1]])):
        print(f"{ease([text]):6.1f} {len(_WORD.findall(text)):3}  {name}: {text[:160]}")


if __name__ == "__main__":
    main()
