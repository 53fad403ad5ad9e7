"""Weights on disk: which files of a folder are loaded, what is in them, and that every number is
finite.

transformers loads `model.safetensors`, or the shards that `model.safetensors.index.json` names. A
folder in which another file of weights could be meant is refused. Files that are never read, such
as `consolidated.safetensors` or `pytorch_model.bin`, count nowhere.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.core.errors import ExchequerError
from workers import interruption

if TYPE_CHECKING:
    import torch

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")

#: Numbers that are looked at in one step, and those of a file that are mapped at once.
STEP, MAPPED = 2**22, 2**26


class ModelError(ExchequerError):
    """A path that is not a model this service can run. The text is public: models are."""

    code = "model"


@dataclass(frozen=True)
class Tensor:
    """A tensor of a safetensors file, from its header."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("F", "BF"))


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises ModelError if there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise ModelError(f"path: {path.name} is missing or no JSON") from None
    if not isinstance(value, dict):
        raise ModelError(f"path: {path.name} is no JSON object")
    return value


def tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors that are loaded from a folder, by name.

    Raises ModelError if a file is missing, cut or ambiguous, or a tensor is there twice.
    """
    shards = {path.name for path in folder.glob("*.safetensors") if SHARD.fullmatch(path.name)}
    single, index = (folder / SINGLE).is_file(), (folder / INDEX).is_file()
    if single and index and not shards and set(_places(folder).values()) == {SINGLE}:
        return _of_shards(folder, shards)
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            "path: the folder holds an adapter (adapter_config.json): merge it into its model and "
            "save that"
        )
    if single and (index or shards):
        other = INDEX if index else min(shards)
        raise ModelError(
            f"path: the weights are there twice, {SINGLE} and {other}: keep one of the two"
        )
    if index:
        return _of_shards(folder, shards)
    if not single:
        raise ModelError(
            f"path: no {SINGLE} and no {INDEX} is in the folder; other weights are not loaded"
        )
    return header(folder / SINGLE)


def _of_shards(folder: Path, shards: set[str]) -> dict[str, Tensor]:
    """Return the tensors of the shards in the index, each exactly where it says."""
    places = _places(folder)
    named = set(places.values())
    missing = sorted(name for name in named if not (folder / name).is_file())
    if missing:
        raise ModelError(
            f"path: {listed(missing)} is named by {INDEX} and missing: download it again"
        )
    if shards - named:
        raise ModelError(
            f"path: {INDEX} does not name {listed(shards - named)}: remove it or mend the index"
        )
    tensors: dict[str, Tensor] = {}
    for file in sorted(named):
        held = header(folder / file)
        twice = held.keys() & tensors.keys()
        if twice:
            raise ModelError(f"path: {listed(twice)} is in two shards, {file} one of them")
        lacking = {name for name, place in places.items() if place == file} - held.keys()
        if lacking:
            raise ModelError(f"path: {file} lacks {listed(lacking)}, which {INDEX} names there")
        if held.keys() - places.keys():
            raise ModelError(
                f"path: {file} has {listed(held.keys() - places.keys())}, unknown to {INDEX}"
            )
        tensors |= held
    return tensors


def _places(folder: Path) -> dict[str, str]:
    """Return the file of each tensor, as the index states it."""
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelError(f"path: {INDEX} has no weight_map")
    # A file of another kind would be loaded and not be in the model's hash (models.READ_FILES).
    for name in places.values():
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or Path(name).suffix != ".safetensors"
        ):
            raise ModelError(
                f"path: {INDEX} names something else than safetensors files of this folder"
            )
    return places


def listed(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file. Raises ModelError if it is cut or not one."""
    from safetensors import safe_open

    try:
        with safe_open(path, "pt") as file:
            pieces = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            return {
                name: Tensor(path, tuple(piece.get_shape()), str(piece.get_dtype()))
                for name, piece in pieces.items()
            }
    except Exception as error:  # the library's own error, or the file system's
        raise ModelError(
            f"path: {path.name} is cut or no safetensors file ({error}): download it again"
        ) from None


def parameters(held: Mapping[str, Tensor], copies: Iterable[str] = ()) -> int:
    """Return how many numbers are loaded; `copies` are tensors that repeat another."""
    left_out = set(copies)
    return sum(prod(tensor.shape) for name, tensor in held.items() if name not in left_out)


def check_finite(held: Mapping[str, Tensor]) -> None:
    """Read all numbers. Raises ModelError for NaN, infinity, or beyond bfloat16."""
    from safetensors import safe_open

    for path in sorted({tensor.file for tensor in held.values()}):
        for names in _runs({name: tensor for name, tensor in held.items() if tensor.file == path}):
            with safe_open(path, "pt") as file:
                for name in names:
                    if not _is_finite(file.get_tensor(name)):
                        raise ModelError(
                            f"path: {name} in {path.name} holds NaN, infinity or a number beyond "
                            "bfloat16"
                        )


def _runs(held: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """Divide the names in runs of MAPPED; each maps its file again, in bounded memory."""
    run: list[str] = []
    numbers = 0
    for name, tensor in held.items():
        run.append(name)
        numbers += prod(tensor.shape)
        if numbers > MAPPED:
            yield run
            run, numbers = [], 0
    if run:
        yield run


def _is_finite(values: "torch.Tensor") -> bool:
    import torch

    if values.is_complex():
        return False
    if not values.is_floating_point() or not values.numel():
        return True
    most = torch.finfo(torch.bfloat16).max
    for piece in values.reshape(-1).split(STEP):
        interruption.check()
        least, largest = torch.aminmax(piece.float() if piece.dtype.itemsize == 1 else piece)
        # False for NaN, which aminmax hands on
        if not -most <= float(least) <= float(largest) <= most:
            return False
    return True


def are_equal(first: Tensor, first_name: str, second: Tensor, second_name: str) -> bool:
    """Return whether two tensors hold the same numbers."""
    import torch
    from safetensors import safe_open

    if first.shape != second.shape:
        return False
    with safe_open(first.file, "pt") as file, safe_open(second.file, "pt") as other:
        left, right = file.get_tensor(first_name), other.get_tensor(second_name)
        pairs = zip(left.reshape(-1).split(STEP), right.reshape(-1).split(STEP), strict=True)
        return all(torch.equal(one.float(), two.float()) for one, two in pairs)
