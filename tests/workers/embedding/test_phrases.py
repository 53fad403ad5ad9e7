"""Word vectors: the file format, phrases as means, and the trainer against dense arithmetic."""

import csv
import gzip
from collections import Counter

import numpy as np
import pytest

from tests.support import SHARED, needs_shared
from workers.embedding import phrase_vectors
from workers.embedding.embedders import embed_all, inspect, load
from workers.embedding.neighbours import nearest, unit
from workers.models import ModelError

WORDS = ["cat", "dog", "well-known", "Paris"]


@pytest.fixture
def folder(tmp_path):
    phrase_vectors.save(
        tmp_path, WORDS, np.eye(4, 6, dtype=np.float32) * np.arange(1, 5, dtype=np.float32)[:, None]
    )
    return tmp_path


def test_a_phrase_is_the_mean_of_its_words(folder):
    model = load(folder, inspect(folder)["sha256"])
    made = embed_all(
        model, ["cat", "Dog, cat and emu!", "a well-known cat", "Paris", "paris", "", "emu"]
    )
    rows = np.zeros((7, 6))
    rows[0, 0], rows[1, [0, 1]], rows[2, [0, 2]], rows[3, 3] = 1, [1, 2], [1, 3], 4
    assert np.allclose(made, unit(rows))
    assert np.allclose(embed_all(model, ["cat dog"], tokens=1), unit(rows[:1]))


def test_files_that_do_not_belong_together_are_refused(folder):
    with (folder / "phrases.words.txt").open("a") as file:
        file.write("emu\n")
    with pytest.raises(ModelError, match="a row for each word"):
        inspect(folder)
    phrase_vectors.save(folder, WORDS, np.eye(4, dtype=np.float32))
    (folder / "other.words.txt").write_text("emu\n")
    (folder / "other.safetensors").write_bytes((folder / "phrases.safetensors").read_bytes())
    with pytest.raises(ModelError, match="2 pairs"):
        inspect(folder)


def texts() -> list[str]:
    """Sentences in which a word's neighbours say which of two kinds it is."""
    made = np.random.default_rng(0)
    animals, towns = ["cat", "dog", "emu"], ["Rome", "Oslo", "Lima"]
    return [
        f"{made.choice(animals)} eats {made.choice(['meat', 'grass'])} daily"
        if number % 2
        else f"{made.choice(towns)} has {made.choice(['streets', 'parks'])} everywhere"
        for number in range(600)
    ]


def by_hand(documents: list[list[str]], words: list[str], dimensions: int) -> np.ndarray:
    """Positive pointwise mutual information and its singular vectors, densely and word by word."""
    together = np.zeros((len(words), len(words)))
    for document in documents:
        for place, word in enumerate(document):
            for step in range(1, phrase_vectors.WINDOW + 1):
                if place + step < len(document) and {word, document[place + step]} <= set(words):
                    pair = words.index(word), words.index(document[place + step])
                    together[pair] += (phrase_vectors.WINDOW + 1 - step) / phrase_vectors.WINDOW
    together += together.T
    of_words = together.sum(axis=1)
    smoothed = of_words**0.75 / (of_words**0.75).sum()
    with np.errstate(divide="ignore"):
        information = np.maximum(np.log(together / np.outer(of_words, smoothed)), 0)
    left, values, _ = np.linalg.svd(information)
    return left[:, :dimensions] * np.sqrt(values[:dimensions])


def test_the_trainer_agrees_with_dense_arithmetic(monkeypatch):
    monkeypatch.setattr(phrase_vectors, "BLOCK", 100)  # several blocks
    words, vectors = phrase_vectors.train(texts(), dimensions=4)
    documents = [text.lower().split() for text in texts()]
    counts = Counter(word for document in documents for word in document)
    assert words == [
        word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    expected = by_hand(documents, words, 4)
    # Singular vectors of equal values may turn into one another: what they span has to agree.
    assert np.allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-4)
    assert np.array_equal(vectors, phrase_vectors.train(texts(), dimensions=4)[1])


def test_words_of_a_kind_lie_together():
    words, vectors = phrase_vectors.train(texts(), dimensions=4)
    place = [words.index(word) for word in ("cat", "dog", "rome")]
    near = unit(vectors)[place] @ unit(vectors)[place].T
    assert near[0, 1] > 0.9 > 0.5 > near[0, 2]


def test_too_little_text_is_an_error():
    with pytest.raises(ValueError, match="0 words occur 5 times"):
        phrase_vectors.train(["one two three"], dimensions=2)


@needs_shared
def test_published_word_vectors():
    folder = SHARED / "data/vocab"
    model = load(folder, inspect(folder)["sha256"])
    words = (folder / "word2vec_1000.words.txt").read_text().splitlines()
    near = nearest(embed_all(model, ["father", "Monday and Friday"]), unit(model.vectors), 6)
    assert "mother" in [words[place] for place in near[0]]


@needs_shared
@pytest.mark.slow
def test_vectors_of_public_text_know_what_is_alike(tmp_path, monkeypatch):
    """The command, on DBpedia: a folder that loads as an embedding model."""
    corpus = SHARED / "data/dbpedia14/train14k.csv.gz"
    monkeypatch.setattr(
        "sys.argv", ["phrases", str(corpus), "--output", str(tmp_path), "--words", "8000"]
    )
    phrase_vectors.main()
    model = load(tmp_path, inspect(tmp_path)["sha256"])
    words = (tmp_path / "phrases.words.txt").read_text().splitlines()
    expected = {"album": "studio", "football club": "league", "actress": "actor"}
    near = nearest(embed_all(model, expected), unit(model.vectors), 12)
    for phrase, found in zip(expected, near, strict=True):
        assert expected[phrase] in [words[place] for place in found]
    with gzip.open(corpus, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:2000]
    vectors = embed_all(model, (row["text"] for row in rows))
    labels = np.array([int(row["label"]) for row in rows])
    centres = unit([vectors[labels == label].mean(axis=0) for label in range(14)])
    assert (nearest(vectors, centres)[:, 0] == labels).mean() > 0.85
