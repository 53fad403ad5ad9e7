"""Models from a local folder (or, if allowed, a hub): safetensors only, no code from the model.

`inspect` and `template_tokens` read public files without loading weights; `load` returns a model
that runs. The folder's hash is in the ledger; a model whose bytes changed is refused.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.core.device_memory import with_contexts
from accountant.core.template import in_words, pieces
from workers import interruption, networks, placement, vocabularies, weights
from workers.model_shelf import Shelf, free_memory, whole_memory
from workers.text_tokens import text_tokens
from workers.weights import ModelError, read_json

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

    from workers.engine import Endings, Structure

__all__ = ["LocalModel", "ModelError", "Prompt", "inspect", "load", "resolve", "tokenizer"]

HUB_NAME = re.compile(r"^[\w.-]{1,96}/[\w.-]{1,96}$")
#: All that changes what a model writes: weights and their index, configuration, generation
#: settings, and the tokenizer's words, merges, added tokens and chat templates.
READ_FILES = (
    "*.json",
    "*.safetensors",
    "*.jinja",
    "additional_chat_templates/*.jinja",
    "*.model",
    "*.txt",
    "*.tiktoken",
    "*.spm",
    "*.bpe",
)


#: A model's logits of this text are finite, or it is refused.
PUBLIC_TEXT = (
    "The train was late again, so we walked along the river and talked about 1,204 small things. "
    "¿Por qué no? Weil es regnet: 雨が降る.\n"
)

#: What processors call their instructions for products in bfloat16 (Linux' /proc/cpuinfo).
BFLOAT16_PROCESSORS = frozenset({"amx_bf16", "avx512_bf16"})
#: Bytes of a file that are hashed at once.
DIGEST_BYTES = 2**24
#: Weights from which on those make up for rounding to bfloat16 and back.
LARGE = 50_000_000


@dataclass(frozen=True)
class LocalModel:
    """A loaded causal model, its tokenizer and the facts that were checked.

    `structure` has its parts, as the decoding engine found them. `memory_bytes` is the memory for
    contexts that are decoded together. `folder` is where it was loaded from, for metrics that train
    a fresh copy.
    """

    network: Any
    structure: "Structure"
    tokenizer: Any
    device: "torch.device"
    end_tokens: frozenset[int]
    context_tokens: int
    vocabulary: int
    memory_bytes: int
    folder: Path = Path()


def resolve(path: str, roots: list[str], hub: bool) -> Path:
    """Return a model's folder. Raises ModelError for none, or one that is under no root."""
    folder = Path(path).resolve()
    if any(folder.is_relative_to(Path(root).resolve()) for root in roots):
        if not folder.is_dir():
            raise ModelError("path: there is no such folder")
        return folder
    if hub and HUB_NAME.match(path):
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(path, allow_patterns=list(READ_FILES)))
    raise ModelError("path: it is not under a model root that this service may read")


def inspect(folder: Path) -> dict[str, Any]:
    """Return public facts of a model, by its files. Raises ModelError naming the problem."""
    from workers.engine.sizing import cached_numbers

    config = check_config(folder)
    architectures = config.get("architectures") or []
    if not any(str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        raise ModelError(
            f"path: {architectures or 'no architecture'} is not a causal language model"
        )
    context = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(context, int) or context < 2:
        raise ModelError("path: config.json states no context length (max_position_embeddings)")
    layers = config.get("num_hidden_layers") or config.get("n_layer")
    width = config.get("hidden_size") or config.get("n_embd")
    if not isinstance(layers, int) or not isinstance(width, int):
        raise ModelError(
            "path: config.json states no layers or no width (num_hidden_layers, hidden_size)"
        )
    held = weights.tensors(folder)
    network = networks.empty(folder)
    networks.check_types(network, held)
    copies = networks.copies(network, held)
    vocabularies.check(tokenizer(folder), folder, network.config.get_text_config().vocab_size)
    weights.check_finite(held)
    return {
        "sha256": digest(folder),
        "architecture": architectures[0],
        "context_tokens": min(context, network.config.get_text_config().max_position_embeddings),
        "vocabulary": int(config["vocab_size"]),
        "parameters": weights.parameters(held, copies),
        "layers": layers,
        "hidden_size": width,
        "cached_numbers": cached_numbers(network.config),
        "dtype": _saved_type(config),
        "end_tokens": end_tokens(folder),
        **origin(folder),
    }


def check_config(folder: Path) -> dict[str, Any]:
    """Return config.json. Raises ModelError for code, quantised or other weights."""
    config = read_json(folder / "config.json")
    check_not_quantised(config)
    if "auto_map" in config:
        raise ModelError("path: the model brings its own code (auto_map), which is never run")
    if config.get("transformers_weights"):
        raise ModelError(
            "path: config.json names a file of weights (transformers_weights), which is not read: "
            "remove it"
        )
    return config


def origin(folder: Path) -> dict[str, str]:
    """Return a model's licence and source if its folder's origin.json states them."""
    path = folder / "origin.json"
    stated = read_json(path) if path.exists() else {}
    return {name: str(stated[name])[:200] for name in ("licence", "source") if stated.get(name)}


def check_not_quantised(config: dict[str, Any]) -> None:
    """Refuse quantised weights: kernels may round a context by the rest of its pass."""
    if config.get("quantization_config"):
        why = "a record's logits may then depend on the other records of its pass"
        raise ModelError(f"path: the model is quantised (quantization_config): {why}")


def end_tokens(folder: Path) -> list[int]:
    """Return all tokens that end a text: the tokenizer's and the generation settings'."""
    path = folder / "generation_config.json"
    stated = read_json(path if path.exists() else folder / "config.json").get("eos_token_id")
    end_tokens = [
        tokenizer(folder).eos_token_id,
        *(stated if isinstance(stated, list) else [stated]),
    ]
    return sorted({int(token) for token in end_tokens if token is not None})


def _saved_type(config: dict[str, Any]) -> str:
    """Return the saved weights' type by config.json (torch_dtype in older files)."""
    return str(config.get("dtype") or config.get("torch_dtype") or "float32")


def digest(folder: Path, files: tuple[str, ...] = READ_FILES) -> str:
    """Return SHA-256, in hex, over the names and bytes of every file that loading may read."""
    total = hashlib.sha256()
    for path in sorted({file for pattern in files for file in folder.glob(pattern)}):
        name = path.relative_to(folder).as_posix()
        total.update(name.encode() + b"\0" + path.stat().st_size.to_bytes(8, "big"))
        sha256 = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(DIGEST_BYTES):
                sha256.update(block)
                interruption.check()
        total.update(sha256.digest())
    return total.hexdigest()


def require_registered(folder: Path, sha256: str, files: tuple[str, ...] = READ_FILES) -> None:
    """Raise ModelError unless the files have the hash that was registered.

    Asked for before a model is loaded, and again after: libraries open the files by name.
    """
    if digest(folder, files) != sha256:
        raise ModelError("the model's files are not those that were registered")


def tensors(path: Path) -> "dict[str, npt.NDArray[Any]]":
    """Return all arrays of a safetensors file. Raises ModelError if it is not one."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError):
        raise ModelError(f"path: {path.name} is missing or not a safetensors file") from None


def tokenizer(folder: Path) -> Any:
    """Return a folder's tokenizer, read again if its files changed. Raises ModelError."""
    files = sorted(path for pattern in READ_FILES for path in folder.glob(pattern))
    states = ((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _tokenizer(folder, tuple(states))


@lru_cache(maxsize=4)
def _tokenizer(folder: Path, _: tuple[tuple[str, int, int], ...]) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # any library error here means: no tokenizer that can be used
        raise ModelError(f"path: its tokenizer can't be loaded ({type(error).__name__})") from None
    # Else the first text that is longer than the model's context is told to the log, with its
    # length.
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer


def template_tokens(folder: Path, template: str, labels: Iterable[str]) -> int:
    """Return the number of tokens of a template without its record, for the longest label."""
    names: list[str | None] = [*labels] or [None]
    prompts = [Prompt(tokenizer(folder), template, label) for label in names]
    return max(prompt.fixed_tokens for prompt in prompts)


class Prompt:
    """A template for one label, split at its records and tokenised piece by piece.

    The pieces are tokenised separately so that a record can be cut at a public number of tokens.
    Blanks before a record go with it: tokenizers join a blank to the word that follows. {user} and
    {assistant} stand for what the model's chat template writes before and after a user's message.
    Records are text: the names of special tokens in them are letters, so that none can end its
    turn.
    """

    def __init__(self, tokenizer: Any, template: str, label: str | None) -> None:
        """Raises ModelError if the template has turns and the model no chat template."""
        values = {"label": in_words(label or "")}
        chat = template.startswith("{user}")
        if chat:
            values["user"], values["assistant"] = turn(tokenizer)
        texts, self.slots = [""], list[str]()
        for text, slot in pieces(template):
            texts[-1] += text + values.get(slot or "", "")
            if slot in ("record", "partner"):
                self.slots.append(slot)
                texts.append("")
        self.tokenizer = tokenizer
        self.leads = [text[len(text.rstrip(" ")) :] for text in texts[:-1]]
        self.fixed = [self._encode(text.rstrip(" ")) for text in texts[:-1]] + [
            self._encode(texts[-1])
        ]
        if not chat:
            self.fixed[0] = text_start(tokenizer) + self.fixed[0]

    @property
    def before(self) -> list[int]:
        """The tokens with which every prompt of the label begins."""
        return self.fixed[0]

    @property
    def fixed_tokens(self) -> int:
        return sum(map(len, self.fixed))

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def tokens(self, record: str, record_tokens: int, partner: str = "") -> list[int]:
        """Return the prompt with its records in place, each cut after `record_tokens` tokens."""
        token_ids = list(self.fixed[0])
        for slot, lead, after in zip(self.slots, self.leads, self.fixed[1:], strict=True):
            text = record if slot == "record" else partner
            # Characters far beyond any use of the tokens go first: time must not follow a record's
            # length.
            token_ids += (
                text_tokens(self.tokenizer, lead + text[: 32 * record_tokens])[:record_tokens]
                + after
            )
        return token_ids


def turn(tokenizer: Any) -> tuple[str, str]:
    """Return the chat template's text before a user's message, and after it up to the model's
    answer.

    transformers renders it in a sandbox of jinja. Raises ModelError if there is none that will do.
    """
    if not tokenizer.chat_template:
        raise ModelError("it has no chat template, so nothing stands for {user} and {assistant}")
    mark = "0-message-0"
    turn = [{"role": "user", "content": mark}]
    written = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    before, user_turn, after = written.partition(mark)
    if not user_turn or mark in after:
        raise ModelError("its chat template does not show a message once")
    return before, after


def request_tokens(tokenizer: Any, content: str) -> list[int]:
    """Return a request: a user's turn where the model has a chat template, else the plain text to
    go on from.

    `content` is text, whatever it quotes: no special token of its own.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        return text_start(tokenizer) + text_tokens(tokenizer, content)
    before, after = (tokenizer.encode(part, add_special_tokens=False) for part in turn(tokenizer))
    return [*before, *text_tokens(tokenizer, content), *after]


def endings(model: LocalModel, stop: str | None, least: int) -> "Endings":
    """Return the tokens that end a text or could begin its stop text, as `least` of a text bars.

    Those are the model's end tokens, and all in whose text the first character of `stop` stands.
    """
    import torch

    from workers.engine import Endings

    ending = set(model.end_tokens)
    if stop and least:
        words = model.tokenizer.batch_decode([[token] for token in range(model.vocabulary)])
        ending |= {token for token, word in enumerate(words) if stop[0] in word}
    ids = sorted(token for token in ending if token < model.vocabulary)
    return Endings(torch.tensor(ids, dtype=torch.long, device=model.device), least)


def text_start(tokenizer: Any) -> list[int]:
    """Return the token ids that start a text if no chat template adds its own."""
    return [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]


def set_threads() -> None:
    """Use half of the cores.

    With more threads than free cores, small models are many times slower, because OpenMP's threads
    spin while they wait.
    """
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))


def weight_count(folder: Path) -> int:
    """Return how many numbers a model has; a tensor that is saved twice as one counts once."""
    held = weights.tensors(folder)
    return weights.parameters(held, networks.tied(folder, held))


def faster_in_bfloat16(folder: Path, device: str) -> bool:
    """Return True on CUDA, and for a LARGE model on a processor that multiplies in bfloat16."""
    if device == "cuda":
        return True
    processor = Path("/proc/cpuinfo")
    able = processor.exists() and not BFLOAT16_PROCESSORS.isdisjoint(processor.read_text().split())
    return able and weight_count(folder) >= LARGE


_shelf: Shelf[LocalModel] = Shelf()


def load(
    folder: Path, sha256: str, dtype: str = "auto", memory_gib: float | None = None
) -> LocalModel:
    """Return the model, ready to run, on CUDA if available. Raises ModelError if its bytes changed.

    What one GPU does not hold is split over all that the worker sees, which it then has alone.

    `dtype` is float32, bfloat16 or auto: bfloat16 if its weights were saved so and the device gains
    by it (CUDA; LARGE models on a processor that multiplies in it), else float32. `memory_gib` is
    the memory for contexts; by default most of a device's, 4 GiB of a host's. It stays loaded for
    later calls; others stay where there is room for them (model_shelf).
    """
    device, coarse = _placed(folder, dtype)
    size, needed = _bytes(folder, device, coarse, memory_gib)
    devices = placement.devices(needed, device.type)
    return _shelf.get(
        (folder, sha256, dtype, memory_gib),
        needed if len(devices) == 1 else sum(map(whole_memory, devices)),
        lambda: sum(map(free_memory, devices)),
        lambda: _fitting(
            size,
            devices,
            lambda: _loaded(folder, sha256, device, coarse, memory_gib, dtype == "auto"),
        ),
    )


def try_out(folder: Path, sha256: str, dtype: str = "auto", memory_gib: float | None = None) -> str:
    """Load a model as `load` does, try it on a public text, and let it go; returns its type and
    device.

    Raises ModelError if it can't be loaded, or a logit is not finite.
    """
    device, coarse = _placed(folder, dtype)
    network = _loaded(folder, sha256, device, coarse, memory_gib, dtype == "auto").network
    return f"{str(network.dtype).removeprefix('torch.')} on {device.type}"


def _placed(folder: Path, dtype: str) -> tuple["torch.device", bool]:
    """Return the device of a model, and whether it runs there in bfloat16."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    auto = dtype == "auto" and _saved_type(read_json(folder / "config.json")) == "bfloat16"
    return device, dtype == "bfloat16" or (auto and faster_in_bfloat16(folder, device.type))


def has_room(parameters: int, split: bool = False) -> bool:
    """Return whether a model surely fits here for a trial: in float32, and a fourth more.

    `split`: all GPUs of the worker may hold it together.
    """
    import torch

    kind, needed = "cuda" if torch.cuda.is_available() else "cpu", 5 * parameters
    devices = placement.devices(needed, kind) if split else [kind]
    return needed < sum(map(free_memory, devices))


def _fitting(size: int, devices: list[str], load: Callable[[], LocalModel]) -> LocalModel:
    """Return what `load` gives. Raises ModelError unless `size` bytes of weights fit."""
    from workers.engine import is_out_of_memory

    whole = sum(map(whole_memory, devices))
    need, room = f"{size / 2**30:.1f} GiB of weights", f"{whole / 2**30:.1f} GiB in all"
    why = f"it does not fit into the worker's memory: {need}, {room}"
    if size > whole:
        raise ModelError(why)
    try:
        return load()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    raise ModelError(why)


def _bytes(
    folder: Path, device: "torch.device", coarse: bool, memory_gib: float | None
) -> tuple[int, int]:
    """Return bytes of weights, and with contexts: as set, 4 GiB (host), or half a GPU's."""
    size = weight_count(folder) * (2 if coarse else 4)
    if memory_gib is not None:
        return size, size + int(memory_gib * 2**30)
    if device.type == "cpu":
        return size, size + 4 * 2**30
    return size, int(with_contexts(size, whole_memory("cuda")))


def _checked(network: Any, tokenizer: Any) -> "Structure":
    """Return the network's parts. Raises StructureError or Unsteady if it can't run."""
    from workers.engine import check_finite, check_loaded, prepare, rehearse

    check_finite(network, text_start(tokenizer) + text_tokens(tokenizer, PUBLIC_TEXT))
    structure = prepare(network)
    rehearse(structure)
    check_loaded(structure)
    return structure


def _loaded(
    folder: Path,
    sha256: str,
    device: "torch.device",
    coarse: bool,
    memory_gib: float | None,
    or_float32: bool = False,
) -> LocalModel:
    """Load and try the model; `or_float32`: in float32 if it fails a check in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM

    from workers.engine import StructureError, Unsteady
    from workers.engine.sizing import default_memory

    require_registered(folder, sha256)
    set_threads()
    check_config(folder)
    dtype = torch.bfloat16 if coarse else torch.float32
    devices = placement.devices(_bytes(folder, device, coarse, memory_gib)[1], device.type)
    if len(devices) == 1:
        network = networks.open_network(AutoModelForCausalLM, folder, dtype).to(device)
    else:
        parts = placement.layers(folder, dtype, [free_memory(place) for place in devices])
        network = networks.open_network(AutoModelForCausalLM, folder, dtype, parts)
    vocabularies.check(tokenizer(folder), folder, network.config.get_text_config().vocab_size)
    network.requires_grad_(False).eval()
    again = False
    try:
        structure = _checked(network, tokenizer(folder))
    except (Unsteady, StructureError) as error:
        again = coarse and or_float32
        if not again:
            raise ModelError(f"path: {error}") from None
    if again:
        del network  # room for the other
        return _loaded(folder, sha256, device, False, memory_gib)
    interruption.looks(structure.base)
    layers = [next(block.parameters()).device for block in structure.blocks]
    model = LocalModel(
        network=network,
        structure=structure,
        tokenizer=tokenizer(folder),
        device=structure.device,
        end_tokens=frozenset(end_tokens(folder)),
        context_tokens=int(getattr(network.config, "max_position_embeddings", 0)),
        vocabulary=structure.vocabulary,
        memory_bytes=default_memory(layers) if memory_gib is None else int(memory_gib * 2**30),
        folder=folder,
    )
    require_registered(folder, sha256)
    return model
