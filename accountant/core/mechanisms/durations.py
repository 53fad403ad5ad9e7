"""How long a job takes on a machine whose speed was measured: from public numbers, told beforehand.

    seconds = passes a + contexts' tokens (b + c columns) + prompts' tokens (d + e columns) + draws f
            + texts' tokens g + training

What a job asks of its model (`Work`) follows from its parameters and the dataset's public figures; what that
takes (`Speed`) from made-up prompts that a worker read and continued when it loaded the model. No run of a
private job feeds an estimate: how long one took depends on its data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

#: The job's own model, among the fields that name what does the work (`Mechanism.work`).
MODEL = "model"

#: A pass decodes about so many contexts at the most, and a whole number of tiles (engine.sizing).
PASS_ROWS, TILE = 96, 16

#: How far an estimate is off, up or down, within its range: machines are shared, and texts end early.
RANGE = 1.5


@dataclass(frozen=True)
class Work:
    """What a run asks of its model.

    `contexts`: decoded side by side, in steps of `steps` tokens in all, with `columns` tokens before each on
    average. `prompts`: tokens that are read, padding included, `read_columns` side by side. `draws`: tokens
    drawn from private sums. `written`: tokens of public texts. `trained`: tokens, padding included, through
    which a loss and its gradients are taken, in `trained_passes`; `adapted`: soft tokens and one more, of an
    adapter's steps. `most`: texts that end early need less.
    """

    contexts: int = 0
    steps: int = 0
    columns: int = 0
    prompts: int = 0
    read_columns: int = 0
    draws: int = 0
    written: int = 0
    trained: int = 0
    trained_passes: int = 0
    adapted: int = 0
    most: bool = False


def with_embedding(own: Work, texts: int, cut: int, embedding: str | None) -> dict[str, Work]:
    """`own`, and embedding `texts`, each cut after `cut` tokens: by the model named, else by the own."""
    tokens = texts * cut
    if embedding is None:
        return {MODEL: replace(own, prompts=own.prompts + tokens)}
    other = {"embedding": Work(prompts=tokens, read_columns=cut, most=True)} if texts else {}
    return {MODEL: own, **other}


@dataclass(frozen=True)
class Speed:
    """Seconds that a model takes on a machine, as a worker measured them.

    `pass_`: a decoding pass; `row` and `column`: of it, each context and each of its columns. `prompt` and
    `prompt_column`: a token that is read. `draw`: aggregating a context's logits and, once a batch, a draw:
    `draw_row` and `draw`. `written`: a token of a public text. `trained_pass`, `trained` and `adapted`: of
    training an adapter, as in `Work`; None where it was measured before these were. An embedding model only
    reads.
    """

    device: str
    pass_: float
    row: float
    column: float
    prompt: float
    prompt_column: float
    draw_row: float
    draw: float
    written: float
    trained_pass: float | None = None
    trained: float | None = None
    adapted: float | None = None

    @classmethod
    def read(cls, facts: Any) -> "Speed":
        """As `facts` state it."""
        return cls(**facts)

    def tells(self, work: Work) -> bool:
        """True if all that the work needs was measured."""
        return not work.trained or self.trained is not None


@dataclass(frozen=True)
class Duration:
    """An estimate in seconds, and the range that it is in; `most`: texts may end it earlier."""

    seconds: float
    device: str
    most: bool

    @property
    def low(self) -> float:
        """The lower end."""
        return self.seconds / RANGE / (2 if self.most else 1)

    @property
    def high(self) -> float:
        """The upper end."""
        return self.seconds * RANGE

    def sentence(self) -> str:
        """In words: "about 4 minutes on CPU (3 to 6 minutes), without waiting in the queue"."""
        begin = "at most about" if self.most else "about"
        between = f"{in_words(self.low)} to {in_words(self.high)}"
        return (
            f"{begin} {in_words(self.seconds)} ({between}) on {self.device}, once it runs and the model is "
            "loaded: waiting in the queue comes on top"
        )


def in_words(seconds: float) -> str:
    """A duration with one or two digits: "8 seconds", "4 minutes", "2.5 hours"."""
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= 1.5 * size or size == 1:
            count = seconds / size
            shown = f"{max(1, round(count)):,}" if count >= 10 or size == 1 else f"{count:.2g}"
            return f"{shown} {name}" + ("" if shown == "1" else "s")
    raise AssertionError


def estimate(work: Work, speed: Speed) -> Duration:
    """How long so much work takes at this speed."""
    side_by_side = -(-work.contexts // PASS_ROWS)  # passes of a step over all contexts, about even
    each = -(-work.contexts // (side_by_side * TILE)) * TILE if work.contexts else 1
    padded = side_by_side * each / work.contexts if work.contexts else 1  # rows computed for a context
    rows = work.steps * padded
    passes = rows / each
    seconds = (
        passes * speed.pass_
        + rows * (speed.row + speed.column * work.columns)
        + work.prompts * padded * (speed.prompt + speed.prompt_column * work.read_columns)
        + (work.steps * speed.draw_row + work.draws * speed.draw if work.draws else 0)
        + work.written * speed.written
        + work.trained_passes * (speed.trained_pass or 0)
        + work.trained * (speed.trained or 0)
        + work.adapted * (speed.adapted or 0)
    )
    return Duration(seconds, speed.device, work.most)


def together(parts: Sequence[Duration]) -> Duration:
    """How long a job takes of which each part does some, one after another."""
    devices = " and ".join(dict.fromkeys(each.device for each in parts))
    return Duration(sum(each.seconds for each in parts), devices, any(each.most for each in parts))
