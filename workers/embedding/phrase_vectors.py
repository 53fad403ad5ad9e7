"""Word vectors for phrases: a file format, the mean over a phrase's words, and a trainer for public
text.

A folder holds `NAME.words.txt`, one word a line, and `NAME.safetensors` with a matrix `vectors`
whose rows follow the lines. The trainer factorises the words' positive pointwise mutual information
(Levy and Goldberg 2014; context smoothing 0.75 and square-root weighting as Levy, Goldberg and
Dagan 2015 recommend):

    python -m workers.embedding.phrase_vectors FILE --output FOLDER [--text-template "{text}"]
        [--dimensions 100]

FILE is public text, as CSV, JSON Lines or Parquet. The folder can then be registered as a model of
kind `embedding`.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix, diags_array
from scipy.sparse.linalg import svds

from workers import models, weights
from workers.data.corpora import Corpus
from workers.data.words import cased_words
from workers.embedding.neighbours import Floats, unit
from workers.models import ModelError

ROWS = 1024

#: Words of a text that count at most.
CONTEXT_WORDS = 512

LEAST_COUNT = 5
WINDOW = 5
SMOOTHING = 0.75
BLOCK = 2**20  # words whose neighbours are counted at a time


class WordVectors:
    """Embeds a text as the mean of its words' vectors; words without a vector are ignored."""

    def __init__(self, words: list[str], vectors: Floats) -> None:
        """`vectors`: (words, dimensions), row i for word i."""
        self.places = {word: place for place, word in reversed(list(enumerate(words)))}
        self.vectors = vectors
        self.dimensions, self.context_tokens = vectors.shape[1], CONTEXT_WORDS

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:
        """As `embedders.Embedder.embed`; `tokens` counts words."""
        limit = min(tokens or CONTEXT_WORDS, CONTEXT_WORDS)
        rows: list[Floats] = []
        for text in texts:
            rows.append(self._mean(cased_words(text[: 32 * limit])[:limit]))
            if len(rows) == ROWS:
                yield unit(rows)
                rows = []
        if rows:
            yield unit(rows)

    def _mean(self, words: list[str]) -> Floats:
        places = [self.places.get(word, self.places.get(word.lower())) for word in words]
        present = [place for place in places if place is not None]
        mean: Floats = (
            self.vectors[present].mean(axis=0) if present else np.zeros(self.dimensions, np.float32)
        )
        return mean


# --- files --------------------------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    """Return the names for which the folder has both files."""
    stored_names = sorted(
        path.name.removesuffix(".words.txt") for path in folder.glob("*.words.txt")
    )
    return [name for name in stored_names if (folder / f"{name}.safetensors").is_file()]


def header(folder: Path) -> dict[str, weights.Tensor]:
    """Return the tensors of the folder's only pair of files."""
    return weights.header(folder / f"{names(folder)[0]}.safetensors")


def dimensions(folder: Path) -> int:
    """Return the length of the vectors. Raises ModelError if files don't belong together."""
    return load(folder).dimensions


def load(folder: Path) -> WordVectors:
    """Return the vectors in a folder. Raises ModelError if its files don't belong together."""
    available = names(folder)
    if len(available) != 1:
        raise ModelError(
            f"path: {len(available)} pairs of NAME.words.txt and NAME.safetensors; one is read"
        )
    words = (folder / f"{available[0]}.words.txt").read_text("utf-8").splitlines()
    vectors = models.tensors(folder / f"{available[0]}.safetensors").get("vectors")
    if vectors is None or vectors.ndim != 2 or len(vectors) != len(words):
        raise ModelError(
            f"path: {available[0]}.safetensors has no matrix 'vectors' with a row for each word"
        )
    if len(set(words)) != len(words):
        raise ModelError(f"path: {available[0]}.words.txt has a word twice")
    return WordVectors(words, vectors.astype(np.float32))


def save(folder: Path, words: list[str], vectors: Floats) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "phrases.words.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
    save_file({"vectors": np.ascontiguousarray(vectors)}, folder / "phrases.safetensors")


# --- training -----------------------------------------------------------------------------------


def train(
    texts: Iterable[str], dimensions: int = 100, most_words: int = 20_000
) -> tuple[list[str], Floats]:
    """(words, vectors) from public texts, read once; the same texts give the same vectors.

    Words are lower-cased; the most frequent ones with at least LEAST_COUNT occurrences are kept.
    Raises ValueError if fewer than `dimensions` + 1 are left.
    """
    numbers: dict[str, int] = {}
    documents = [
        np.array(
            [numbers.setdefault(word, len(numbers)) for word in cased_words(text.lower())], np.int32
        )
        for text in texts
    ]
    counts = Counter[int]()
    for document in documents:
        counts.update(document.tolist())
    names_of = list(numbers)
    ranked = sorted(
        (-count, names_of[number]) for number, count in counts.items() if count >= LEAST_COUNT
    )
    words = [name for _, name in ranked[:most_words]]
    if len(words) <= dimensions:
        raise ValueError(
            f"{len(words):,} words occur {LEAST_COUNT} times or more; {dimensions} need more"
        )
    places = np.full(len(numbers), -1, np.int32)
    places[[numbers[word] for word in words]] = np.arange(len(words))
    together = _together([places[document] for document in documents], len(words))
    return words, _factorise(_information(together), dimensions)


def _together(documents: list[npt.NDArray[np.int32]], size: int) -> csr_matrix:
    """Return co-occurrence counts of words within WINDOW, the nearer the heavier."""
    total = csr_matrix((size, size), dtype=np.float64)
    gap = np.full(WINDOW, -1, np.int32)  # no window reaches over the end of a document
    held: list[npt.NDArray[np.int32]] = []
    waiting = 0
    for number, document in enumerate(documents):
        held += [document, gap]
        waiting += len(document)
        if waiting < BLOCK and number + 1 < len(documents):
            continue
        stream, held, waiting = np.concatenate(held), [], 0
        for step in range(1, WINDOW + 1):
            left, right = stream[:-step], stream[step:]
            both = (left >= 0) & (right >= 0)
            weights = np.full(int(both.sum()), (WINDOW + 1 - step) / WINDOW)
            total = total + csr_matrix((weights, (left[both], right[both])), (size, size))
    return total + total.T


def _information(together: csr_matrix) -> csr_matrix:
    """Return positive pointwise mutual information of words and contexts."""
    of_words = np.asarray(together.sum(axis=1)).ravel()
    smoothed = of_words**SMOOTHING
    rows, columns = together.nonzero()
    expected = of_words[rows] * (smoothed / smoothed.sum())[columns]
    gain = np.log(np.asarray(together[rows, columns]).ravel() / expected)
    informative = gain > 0
    return csr_matrix(
        (gain[informative], (rows[informative], columns[informative])), together.shape
    )


def _factorise(information: csr_matrix, dimensions: int) -> Floats:
    """Return the leading left singular vectors times their values' roots, signs fixed."""
    start = np.ones(information.shape[0])
    left, values, _ = svds(information, k=dimensions, v0=start)
    order = np.argsort(-values)
    left, values = left[:, order], values[order]
    signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(dimensions)])
    factors: Floats = np.asarray((left * signs) @ diags_array(np.sqrt(values)), np.float32)
    return factors


def main() -> None:
    """Train on a file and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("file", help="public text")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--text-template", default="{text}")
    parser.add_argument("--dimensions", type=int, default=100)
    parser.add_argument("--words", type=int, default=20_000)
    arguments = parser.parse_args()
    corpus = Corpus("", arguments.file, arguments.text_template)
    words, vectors = train(
        (text for text, _ in corpus.texts()), arguments.dimensions, arguments.words
    )
    save(arguments.output, words, vectors)
    print(f"{len(words):,} words of {vectors.shape[1]} dimensions")


if __name__ == "__main__":
    main()
