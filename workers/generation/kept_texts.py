"""Public texts that a job writes by chance, kept with its draws: an attempt that goes on has the
same.

A release may be about such texts (counts of the candidates nearest to records), and then they must
be those that it was about. Each step has a kept seed of its own, so that one that was cut is
written again as it was.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from workers.data.public_text import PublicText, vouch
from workers.generation.writer import Writer, Written
from workers.noise.kept_draws import KeptDraws


class Moving(Protocol):
    """The progress of a job (workers.interface.Progress)."""

    done: int

    def advance(self, amount: int = 1) -> None:
        """So many steps more are done."""


def kept_texts(
    kept: KeptDraws,
    name: str,
    seed: int | None,
    writer: Writer,
    progress: Moving,
    make: Callable[[Writer], Iterable[Written]],
) -> list[Written]:
    """Return what `make` writes with this Writer, or wrote in an earlier attempt. `seed`: a user's,
    if any.

    `make` moves the progress; where the texts are taken it moves by as much. Where nothing is kept,
    the Writer goes on with its own random numbers.
    """
    begun = progress.done
    seeded_writer = writer.seeded(kept.seed(name, seed)) if kept.keeps else writer

    def made() -> tuple[int, list[tuple[PublicText, bool, int]]]:
        texts = [_public(text) for text in make(seeded_writer)]
        return progress.done - begun, texts

    moved, rows = kept.step(name, made)
    if progress.done == begun and moved:
        progress.advance(moved)
    # Nothing but public texts is kept under this name: `_public` saw each of them.
    return [Written(vouch(text), complete, row) for text, complete, row in rows]


def _public(written: Written) -> tuple[PublicText, bool, int]:
    if not isinstance(written.text, PublicText):
        raise TypeError("only public texts are kept as such")
    return written.text, written.complete, written.row
