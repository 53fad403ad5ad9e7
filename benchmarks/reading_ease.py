"""How easily the pages' own sentences read: Flesch's reading ease over the paragraphs of all
templates.

    python -m benchmarks.reading_ease

206.835 - 1.015 words a sentence - 84.6 syllables a word (Flesch 1948): 60 to 70 is plain English,
below 30 is read by graduates. Syllables are counted by groups of vowels, without a silent e. What a
page fills in (names, figures) counts as one word of one syllable; what people write is not
measured.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

TEMPLATES = Path(__file__).parents[1] / "web" / "templates"
_PARAGRAPH = re.compile(r"<(p|li|figcaption)\b[^>]*>(.*?)</\1>", re.DOTALL)
_CODE = re.compile(r"<(code|pre|svg|button|select)\b.*?</\1>", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
#: Fewer words are a label, not a sentence.
LEAST_WORDS = 5


def sentences() -> Iterator[tuple[str, str]]:
    """(template, sentence) of every paragraph, list item and caption of the pages."""
    for path in sorted(TEMPLATES.glob("*.html")):
        text = re.sub(r"{#.*?#}", "", path.read_text(), flags=re.DOTALL)
        for _, inside in _PARAGRAPH.findall(text):
            plain = _CODE.sub(" it ", inside)
            plain = re.sub(r"{%.*?%}", " ", plain, flags=re.DOTALL)
            plain = re.sub(r"{{.*?}}", " it ", plain, flags=re.DOTALL)
            plain = re.sub(r"<[^>]+>", " ", plain)
            for each in re.split(r"(?<=[.!?])\s+", " ".join(plain.split())):
                if len(_WORD.findall(each)) >= LEAST_WORDS:
                    yield path.name, each


def syllables(word: str) -> int:
    """Groups of vowels; a silent e at the end is none, and every word has one."""
    bare = word.lower().replace("’", "").replace("'", "")
    found = len(re.findall(r"[aeiouy]+", bare))
    silent = bare.endswith("e") and not bare.endswith(("le", "ee", "ie", "ue", "oe")) and found > 1
    return max(1, found - silent)


def ease(texts: list[str]) -> float:
    """Flesch's reading ease of sentences together."""
    words = [word for text in texts for word in _WORD.findall(text)]
    spoken = sum(syllables(word) for word in words)
    return 206.835 - 1.015 * len(words) / len(texts) - 84.6 * spoken / len(words)


def main() -> None:
    """Print the figure of all pages, and the hardest sentences."""
    found = list(sentences())
    texts = [text for _, text in found]
    middle = median(ease([each]) for each in texts)
    print(f"{len(texts)} sentences, reading ease {ease(texts):.1f}, median {middle:.1f}")
    for name, text in sorted(found, key=lambda each: ease([each[1]]))[:15]:
        print(f"{ease([text]):6.1f}  {name}: {text[:160]}")


if __name__ == "__main__":
    main()
