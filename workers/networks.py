"""Networks opened from a folder of weights: each weight has its place, and each place its weight.

transformers fills a place without weights with random numbers and only warns. Here that is an
error, before anything runs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers import weights
from workers.weights import ModelError, Tensor, listed

_UNOPENED = "path: transformers can't open it: {}: {}"


def open_network(
    auto: Any, folder: Path, dtype: Any, device: Any = None, encoder: bool = False
) -> Any:
    """Open a folder by a class of transformers, such as AutoModelForCausalLM.

    `device`: one, or that of each part. On "meta" only names and shapes are looked at. An `encoder`
    may leave out the weights of heads, and may lack those of a pooler, which is never read. Raises
    ModelError if weights and network differ.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # logs are lines of JSON
    options = {} if device is None else {"device_map": device}
    try:
        network, tensors = auto.from_pretrained(
            folder,
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, all of them
            dtype=dtype,
            **options,
        )
    except MemoryError:
        raise
    except Exception as error:  # the library has no base of what it raises
        raise ModelError(_UNOPENED.format(type(error).__name__, _line(error))) from None
    check_complete(network, tensors, encoder)
    return network


def empty(folder: Path, dtype: Any = "auto") -> Any:
    """Open a causal model's names, shapes and types, without numbers. Raises ModelError."""
    from transformers import AutoModelForCausalLM

    return open_network(AutoModelForCausalLM, folder, dtype, "meta")


def tied(folder: Path, held: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the tensors that are others' second names, and those others."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:
        raise ModelError(_UNOPENED.format(type(error).__name__, _line(error))) from None
    return _pairs(network, held)


def _pairs(network: Any, held: Mapping[str, Tensor]) -> dict[str, str]:
    pairs = (network.all_tied_weights_keys or {}).items()
    return {copy: source for copy, source in pairs if copy in held and source in held}


def check_complete(network: Any, found: Mapping[str, Any], encoder: bool = False) -> None:
    """Raise ModelError if transformers found a weight without a place or fit."""
    missing, unexpected = set(found["missing_keys"]), set(found["unexpected_keys"])
    if encoder:
        inner = {name for name, _ in network.named_children()}
        missing = {name for name in missing if "pooler" not in name.split(".")}
        unexpected = {name for name in unexpected if inner & set(name.split(".")[:2])}
    if unexpected and missing:
        raise ModelError(
            f"path: weights have other names than the model's: {listed(unexpected)} instead of "
            f"{listed(missing)}: save them without a prefix of a trainer or an adapter"
        )
    if missing:
        raise ModelError(f"path: weights are missing: {listed(missing)}")
    if unexpected:
        raise ModelError(f"path: weights are not used by the model: {listed(unexpected)}")
    if found["mismatched_keys"]:
        name, saved, wanted = sorted(found["mismatched_keys"])[0]
        raise ModelError(
            f"path: {name} has the shape {_shape(saved)}, and the model that config.json states "
            f"needs {_shape(wanted)}"
        )
    problems = [
        *found.get("error_msgs", ()),
        *map(str, (found.get("conversion_errors") or {}).values()),
    ]
    if problems:
        raise ModelError(f"path: weights can't be loaded: {_line(problems[0])}")


def _line(text: object) -> str:
    return " ".join(str(text).split())[:300]


def _shape(lengths: Any) -> str:
    return " × ".join(map(str, lengths))


def copies(network: Any, held: Mapping[str, Tensor]) -> set[str]:
    """Return the tensors that repeat another which the network uses in their place.

    Raises ModelError if such a tensor differs from the other: only one of the two can be meant.
    """
    pairs = _pairs(network, held)
    for copy, source in pairs.items():
        if not weights.are_equal(held[copy], copy, held[source], source):
            raise ModelError(
                f"path: {copy} and {source} differ, and config.json states that they are one "
                "(tie_word_embeddings): save it with tie_word_embeddings=False, or without the copy"
            )
    return set(pairs)


def check_types(network: Any, held: Mapping[str, Tensor]) -> None:
    """Raise ModelError for parameters saved as whole numbers: they are quantised."""
    names = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    whole = sorted(name for name in names & held.keys() if not held[name].is_float)
    if whole:
        raise ModelError(
            f"path: {whole[0]} is saved as {held[whole[0]].dtype}, not in floating point"
        )
