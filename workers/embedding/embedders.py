"""Text embeddings from a local folder: unit vectors in float32, streamed, in public shapes.

Four formats, told apart by their files:

- a sentence-transformers folder (`modules.json`) of a transformer, a pooling and perhaps a
  normalisation;
- a transformers encoder or causal model (`config.json`), mean-pooled over the tokens of the text;
- static vectors, one a token, as Model2Vec and sentence-transformers' StaticEmbedding write them;
- word vectors (`NAME.words.txt` beside `NAME.safetensors`), see
  workers/embedding/phrase_vectors.py.

As with language models: safetensors only, nothing of the model's own code is run, and a folder
whose bytes are not those that were registered is refused.

Embeddings of private texts live in memory alone. Each text is cut at a public number of tokens, and
every forward pass has the same rows and width, whatever the texts are. A text that can't be
embedded (empty, nothing known in it, NaN) gives a row of zeros, which neighbours.py counts nowhere;
it takes as long as any other and raises nothing.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from workers import interruption, models, networks, vocabularies, weights
from workers.embedding import phrase_vectors
from workers.embedding.neighbours import Floats, unit
from workers.models import READ_FILES, ModelError
from workers.text_tokens import encoded

#: Subfolders hold the settings and weights of a sentence-transformers model's parts.
FILES = (*READ_FILES, *(f"*/{pattern}" for pattern in READ_FILES))

#: Texts in one forward pass, and in one pass over static vectors.
ROWS = 32
STATIC_ROWS = 1024

#: Model2Vec's own limit where a folder states none.
STATIC_TOKENS = 512

POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}


class Embedder(Protocol):
    """An embedding model: it maps texts to unit vectors."""

    dimensions: int
    context_tokens: int

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:
        """Return unit vectors of the texts, in order, in pieces of (rows, dimensions) float32.

        Each text is cut after `tokens` tokens, or after the model's `context_tokens` if that is
        less. A text that can't be embedded has a row of zeros.
        """


@dataclass(frozen=True)
class Layout:
    """The kind of model that a folder holds, and how to read it."""

    form: Literal["transformer", "static", "words"]
    folder: Path
    dimensions: int
    context_tokens: int
    pooling: str = "mean"
    lower_case: bool = False
    prompt: str = ""


def inspect(folder: Path) -> dict[str, Any]:
    """Return public facts of an embedding model, by its files. Raises ModelError."""
    layout = _layout(folder)
    held = (
        weights.tensors(layout.folder) if layout.form != "words" else phrase_vectors.header(folder)
    )
    weights.check_finite(held)
    if layout.form == "transformer":
        networks.check_types(_network(layout.folder, "auto", "meta"), held)
    return {
        "sha256": models.digest(folder, FILES),
        "architecture": layout.form
        if layout.form != "transformer"
        else f"transformer, {layout.pooling}",
        "dimensions": layout.dimensions,
        "parameters": weights.parameters(held),
        "context_tokens": layout.context_tokens,
        **models.origin(folder),
    }


@lru_cache(maxsize=2)
def load(folder: Path, sha256: str) -> Embedder:
    """Return the model ready to embed, on CUDA if there. Raises ModelError for other bytes."""
    return opened(folder, sha256)


def opened(folder: Path, sha256: str) -> Embedder:
    """Open a model as `load` does, for one use. Raises ModelError if it can't embed a text."""
    models.require_registered(folder, sha256, FILES)
    embedder = _of(_layout(folder))
    models.require_registered(folder, sha256, FILES)
    return embedder


def _of(layout: Layout) -> Embedder:
    if layout.form == "words":
        return phrase_vectors.load(layout.folder)
    return StaticVectors(layout) if layout.form == "static" else Transformer(layout)


def embed_all(model: Embedder, texts: Iterable[str], tokens: int | None = None) -> Floats:
    """Return all embeddings in one array, (n, dimensions), which must fit in memory."""
    pieces = list(model.embed(texts, tokens))
    return np.concatenate(pieces) if pieces else np.empty((0, model.dimensions), np.float32)


# --- what is in a folder ------------------------------------------------------------------------


def _layout(folder: Path) -> Layout:
    if (folder / "modules.json").is_file():
        return _sentence_transformer(folder)
    if not (folder / "config.json").is_file() and phrase_vectors.names(folder):
        return Layout(
            "words", folder, phrase_vectors.dimensions(folder), phrase_vectors.CONTEXT_WORDS
        )
    config = _object(folder / "config.json")
    if config.get("model_type") == "model2vec":
        return _static(folder, config)
    return _transformer(folder)


def _sentence_transformer(folder: Path) -> Layout:
    modules = _json(folder / "modules.json")
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelError("path: modules.json is no list of modules")
    parts = [
        (str(module.get("type")).rpartition(".")[2], str(module.get("path") or "."))
        for module in modules
    ]
    kinds = [kind for kind, _ in parts]
    paths = [(folder / path).resolve() for _, path in parts]
    if not all(path.is_relative_to(folder.resolve()) for path in paths):
        raise ModelError("path: modules.json points out of the folder")
    if kinds in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):
        config = folder / "config.json"
        return _static(paths[0], _object(config) if config.is_file() else {})
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ModelError(
            f"path: modules {', '.join(kinds)}; what can be read is Transformer and Pooling, or "
            "StaticEmbedding, with or without Normalize"
        )
    return _pooled(folder, paths[0], _object(paths[1] / "config.json"))


def _pooled(folder: Path, transformer: Path, pooling: dict[str, Any]) -> Layout:
    """Return a transformer's layout with pooling, truncation, casing and prompt by its folder."""
    named = pooling.get("pooling_mode") or [
        mode for mode in pooling if "_mode_" in mode and pooling[mode]
    ]
    modes = [named] if isinstance(named, str) else [POOLINGS.get(mode, mode) for mode in named]
    if len(modes) != 1 or modes[0] not in POOLINGS.values():
        raise ModelError(
            f"path: pooling {', '.join(modes)}; what can be read is one of mean, cls, lasttoken"
        )
    config = transformer / "sentence_bert_config.json"
    settings = _object(config) if config.is_file() else {}
    general = folder / "config_sentence_transformers.json"
    prompts = _object(general) if general.is_file() else {}
    prompt = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name")) or ""
    if prompt and pooling.get("include_prompt") is False:
        raise ModelError("path: a pooling that leaves the prompt out can't be read")
    plain = _transformer(transformer)
    return Layout(
        form="transformer",
        folder=transformer,
        dimensions=plain.dimensions,
        context_tokens=min(
            plain.context_tokens, settings.get("max_seq_length") or plain.context_tokens
        ),
        pooling=modes[0],
        lower_case=bool(settings.get("do_lower_case")),
        prompt=prompt,
    )


def _transformer(folder: Path) -> Layout:
    config = models.check_config(folder)
    if config.get("is_encoder_decoder"):
        raise ModelError("path: a model of encoder and decoder gives no single embedding")
    width = config.get("hidden_size") or config.get("n_embd") or config.get("dim")
    context = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(width, int) or not isinstance(context, int) or context < 2:
        raise ModelError("path: config.json states no hidden_size or no max_position_embeddings")
    # RoBERTa's positions begin at 2: 512 of its 514
    limit = models.tokenizer(folder).model_max_length
    return Layout("transformer", folder, width, min(context, limit))


def _network(folder: Path, dtype: Any, device: str | None = None) -> Any:
    from transformers import AutoModel

    return networks.open_network(AutoModel, folder, dtype, device, encoder=True)


def _static(folder: Path, config: dict[str, Any]) -> Layout:
    table = _static_table(folder)
    vocabularies.check_static(_static_tokenizer(folder), folder, len(table))
    return Layout("static", folder, table.shape[1], config.get("max_length") or STATIC_TOKENS)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise ModelError(f"path: {path.name} is missing or no JSON") from None


def _object(path: Path) -> dict[str, Any]:
    value = _json(path)
    if not isinstance(value, dict):
        raise ModelError(f"path: {path.name} is no JSON object")
    return value


# --- static vectors -----------------------------------------------------------------------------


def _static_table(folder: Path) -> Floats:
    """Return the token vectors, (tokens, dimensions), mapped and scaled."""
    weights.tensors(folder)  # none of them twice
    tensors = models.tensors(folder / weights.SINGLE)
    unused = tensors.keys() - {"embeddings", "embedding.weight", "mapping", "weights"}
    if unused or {"embeddings", "embedding.weight"} <= tensors.keys():
        raise ModelError(
            f"path: model.safetensors has {weights.listed(unused or tensors)}, not all of them used"
        )
    vectors = tensors.get("embeddings", tensors.get("embedding.weight"))
    if vectors is None or vectors.ndim != 2:
        raise ModelError("path: model.safetensors has no matrix 'embeddings' or 'embedding.weight'")
    table = vectors.astype(np.float32)
    if "mapping" in tensors:
        mapping = tensors["mapping"]
        if len(mapping) and not 0 <= mapping.min() <= mapping.max() < len(table):
            raise ModelError("path: model.safetensors maps a token to a vector that is not there")
        table = table[mapping]
    if "weights" in tensors:
        if len(tensors["weights"]) != len(table):
            raise ModelError("path: model.safetensors has not as many weights as tokens")
        table = (table * tensors["weights"][:, None]).astype(np.float32)
    loaded_table: Floats = table
    return loaded_table


def _static_tokenizer(folder: Path) -> Any:
    """Return static vectors' tokenizer, which cuts and pads nothing. Raises ModelError."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain exceptions
        why = " ".join(str(error).split())[:200]
        raise ModelError(f"path: {path.name} is missing or no tokenizer: {why}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # their names in a text are text
    return tokenizer


class StaticVectors:
    """The mean of the vectors of a text's tokens."""

    def __init__(self, layout: Layout) -> None:
        self.table = _static_table(layout.folder)
        self.dimensions, self.context_tokens = layout.dimensions, layout.context_tokens
        self.tokenizer = _static_tokenizer(layout.folder)
        state = json.loads(self.tokenizer.to_str())
        named = state["model"].get("unk_token")  # a Unigram model names its number instead
        unknown = self.tokenizer.token_to_id(named) if named else state["model"].get("unk_id")
        self.left_out = {unknown}

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:
        """As `Embedder.embed`. Tokens that the model does not know are ignored."""
        limit = min(tokens or self.context_tokens, self.context_tokens)
        for piece in _pieces(texts, STATIC_ROWS):
            yield unit(
                [
                    self._mean(ids, limit)
                    for ids in self._ids([shown(text, limit) for text in piece])
                ]
            )

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """Return token ids of each text; none for a text that can't be encoded."""
        batch = encoded(lambda: self.tokenizer.encode_batch(texts, add_special_tokens=False))
        if batch or len(texts) == 1:
            return [list(text.ids) for text in batch] or [[]]
        # one such text fails the whole batch
        return [ids for text in texts for ids in self._ids([text])]

    def _mean(self, ids: list[int], limit: int) -> Floats:
        usable = [token for token in ids if token not in self.left_out and token < len(self.table)][
            :limit
        ]
        if not usable:
            return np.zeros(self.dimensions, np.float32)
        mean: Floats = self.table[usable].mean(axis=0)
        return mean


# --- transformers -------------------------------------------------------------------------------


class Transformer:
    """An encoder or causal model, its last hidden states pooled over the tokens of each text."""

    def __init__(self, layout: Layout) -> None:
        import torch

        models.set_threads()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        network = _network(layout.folder, torch.float32)
        self.network = network.requires_grad_(False).eval().to(self.device)
        interruption.looks(self.network)
        self.tokenizer = models.tokenizer(layout.folder)
        self.layout = layout
        self.dimensions, self.context_tokens = layout.dimensions, layout.context_tokens
        rows = network.get_input_embeddings().weight.shape[0]
        vocabularies.check(self.tokenizer, layout.folder, rows, outputs=False)
        self._check_whole_context()

    def _check_whole_context(self) -> None:
        """Run a text as long as the context. Raises ModelError if a position lacks."""
        import torch

        ids = self._encode(models.PUBLIC_TEXT * self.context_tokens, self.context_tokens)
        try:
            with torch.inference_mode():
                states = self.network(
                    input_ids=torch.tensor([ids], device=self.device)
                ).last_hidden_state
        except (IndexError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"path: a text as long as its context, {len(ids)} tokens, fails "
                f"({type(error).__name__}): "
                "state a smaller model_max_length in tokenizer_config.json"
            ) from None
        if not states.isfinite().all():
            raise ModelError("path: its vectors of a public text are not finite")

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:
        """As `Embedder.embed`. Every pass has ROWS rows of as many tokens as a text may have."""
        width = min(tokens or self.context_tokens, self.context_tokens)
        for piece in _pieces(texts, ROWS):
            yield self._rows([self._encode(text, width) for text in piece], width)

    def _encode(self, text: str, width: int) -> list[int]:
        """Return at most `width` token ids, special ones included; none for empty texts."""
        cut = shown(text, width)
        if not cut.strip():
            return []
        cut = self.layout.prompt + (cut.lower() if self.layout.lower_case else cut)
        cut_to = {"truncation": True, "max_length": width}
        return encoded(
            lambda: self.tokenizer(cut, **cut_to, split_special_tokens=True)["input_ids"]
        )

    def _rows(self, rows: list[list[int]], width: int) -> Floats:
        import torch

        # Padding on the right: an encoder's positions and a causal model's past are those of the
        # text alone.
        ids = torch.full((ROWS, width), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros((ROWS, width), dtype=torch.long)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
            mask[row, : len(tokens)] = 1
        filled = mask.sum(dim=1) > 0
        mask[~filled, 0] = 1  # a dummy attends to something, or its softmax would be NaN
        with torch.inference_mode():
            hidden = self.network(
                input_ids=ids.to(self.device), attention_mask=mask.to(self.device)
            )
            pooled = self._pool(hidden.last_hidden_state.float(), mask.to(self.device))
        unit_rows = unit(pooled.cpu().numpy())
        unit_rows[~filled.numpy()] = 0
        return unit_rows[: len(rows)]

    def _pool(self, states: Any, mask: Any) -> Any:
        """(rows, tokens, dimensions) -> (rows, dimensions)."""
        if self.layout.pooling == "cls":
            return states[:, 0]
        if self.layout.pooling == "lasttoken":
            last = mask.sum(dim=1) - 1
            return states[range(len(states)), last]
        weights = mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)


def shown(text: str, tokens: int) -> str:
    """Return the part of a text that can affect its embedding, as valid Unicode.

    Characters far beyond the last token used are cut: time must not depend on a record's length.
    """
    return text[: 32 * tokens].encode("utf-8", "replace").decode()


def _pieces(texts: Iterable[str], rows: int) -> Iterator[list[str]]:
    stream = iter(texts)
    while piece := list(islice(stream, rows)):
        interruption.check()
        yield piece
