"""Do a context's removal and change leave every last digit of the others' logits? Tried on public
text.

A record that goes moves the contexts behind it to other rows, and a dummy takes the last one. In
passes of one shape kernels compute each row alike, so no bit of another context should move. Where
one does (a GPU's kernel, a coarse type, experts whose passes have as many rows as tokens choose
them), the record acts on batches that it is not in, and a price that counts on nobody knowing its
batch does not cover that.
"""

import torch

from accountant.core.errors import ExchequerError
from workers.engine.decoder import Batch, Decoder
from workers.engine.sizing import Shape, Sizes
from workers.engine.structure import Structure

_SEED = 20261122


class Unsteady(ExchequerError):
    """A context's removal or change moves last digits of other contexts' logits."""

    code = "unsteady"


#: The pass that is tried when a model is loaded: a tile of rows, short enough for large models.
_LOADED_SHAPE, _LOADED_SIZES = (
    Shape(prefix=2, rest=6, text=1),
    Sizes(rows=16, reading=16, batches=1),
)


def check_steady(model: Structure, shape: Shape, sizes: Sizes) -> None:
    """Run a whole pass of public contexts, without its first and with another in its place; compare
    all bits.

    `shape` and `sizes` are those of a job. Raises Unsteady where a bit moved, and PassTooLarge
    where such a pass does not fit into memory: both before anything private is read.
    """
    if not _is_steady(model, shape, sizes):
        raise Unsteady(
            f"with this model {_where(model)} a record that goes moves last digits of other "
            "records' logits, "
            "which the price of secret batches does not cover: ask without amplification, or run "
            "it on a "
            "worker with EXCHEQUER_MODEL_DTYPE=float32 or without a GPU"
        )


def check_loaded(model: Structure) -> None:
    """The same in a short pass, before a loaded model is used for anything. Raises Unsteady."""
    if not _is_steady(model, _LOADED_SHAPE, _LOADED_SIZES):
        raise Unsteady(
            f"{_where(model)} a record that goes or changes moves last digits of other records' "
            "logits, "
            "which no price covers: the model runs in another type (EXCHEQUER_MODEL_DTYPE), on "
            "another "
            "device, or not at all"
        )


def _where(model: Structure) -> str:
    return f"on {model.device.type} in {str(model.network.dtype).removeprefix('torch.')}"


@torch.inference_mode()
def _is_steady(model: Structure, shape: Shape, sizes: Sizes) -> bool:
    random = torch.Generator().manual_seed(_SEED)

    def tokens(count: int) -> list[int]:
        found: list[int] = torch.randint(model.vocabulary, (count,), generator=random).tolist()
        return found

    prefix = tokens(shape.prefix)
    # Of all lengths, and the first of full length.
    contexts = [
        tokens(max(1, shape.rest - number * shape.rest // sizes.rows))
        for number in range(sizes.rows)
    ]
    others = _logits(model, Batch(contexts, prefix), shape, sizes)[:, 1:]
    without = _logits(model, Batch(contexts[1:], prefix), shape, sizes)
    changed = _logits(model, Batch([tokens(1), *contexts[1:]], prefix), shape, sizes)[:, 1:]
    return torch.equal(others, without) and torch.equal(others, changed)


def _logits(model: Structure, batch: Batch, shape: Shape, sizes: Sizes) -> torch.Tensor:
    """Return values after reading, and after one token: (2, contexts, vocabulary)."""
    decoder = Decoder(model, [batch], shape, sizes, fixed=True)
    read = torch.cat([values for _, values in decoder.read()])
    return torch.stack([read, torch.cat([values for _, values in decoder.step({0: 1})])])
