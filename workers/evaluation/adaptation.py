"""Deep CORAL: a classifier that learns from synthetic texts and adapts to unlabelled real ones.

The receiver's side of paper 002 (section 2, "post-processing"; C.1.2): whoever gets the synthetic
texts has texts of their own, without labels, and wants a classifier for these. Its loss is the
cross entropy on the synthetic texts plus the distance of covariances of what the network makes of
both (Sun and Saenko 2016):

    |C_A - C_B|_F^2 / (4 d^2)        covariances (d, d) of a batch of either side, in the last
                                     hidden layer

Nothing private is read: both sides are public or the receiver's own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers import interruption
from workers.evaluation.figures import Figure, mean_interval

#: Widths of the two hidden layers, and how the network learns.
HIDDEN = (256, 64)
BATCH, EPOCHS, RATE = 128, 20, 1e-3
WEIGHT = 10.0


def coral_distance(ours: Any, theirs: Any) -> Any:
    """|C_A - C_B|_F^2 / (4 d^2) of two torch tensors (n, d), each with two rows or more."""
    width = ours.shape[1]
    return ((_covariance(ours) - _covariance(theirs)) ** 2).sum() / (4 * width**2)


def _covariance(rows: Any) -> Any:
    centred = rows - rows.mean(dim=0)
    return centred.T @ centred / (len(rows) - 1)


def adapted_accuracy(
    train: tuple[NDArray[np.float32], Sequence[str]],
    unlabelled: NDArray[np.float32],
    test: tuple[NDArray[np.float32], Sequence[str]],
    *,
    features: str,
    weight: float = WEIGHT,
    seed: int = 0,
) -> Figure:
    """Return accuracy on `test` of a network that learned from `train` and adapted to `unlabelled`.

    Embeddings (n, d) with their labels; `features` names the embedding model. The details have the
    accuracy of the same network without adaptation (`weight` 0), begun alike. Raises ValueError for
    fewer than two labels or two unlabelled texts.
    """
    labels = sorted(set(train[1]))
    if len(labels) < 2:
        raise ValueError("the training texts have fewer than two labels")
    if len(unlabelled) < 2:
        raise ValueError("fewer than two unlabelled texts")
    classes = np.array([labels.index(label) for label in train[1]])
    truth = np.asarray(test[1])
    scores = {}
    for smoothing in (weight, 0.0):
        predicted = _learned(train[0], classes, unlabelled, test[0], smoothing, seed)
        scores[smoothing] = np.asarray(labels)[predicted] == truth
    settings: dict[str, Any] = {
        "classifier": f"network of {HIDDEN[0]} and {HIDDEN[1]} units on {features}",
        "CORAL weight": weight,
        "epochs": EPOCHS,
        "texts": [len(train[0]), len(unlabelled), len(test[0])],
        "seed": seed,
    }
    return Figure(
        "TSTR accuracy, Deep CORAL",
        float(np.mean(scores[weight])),
        settings,
        "the figure of real texts",
        {"without adaptation": float(np.mean(scores[0.0]))},
        interval=mean_interval(scores[weight]),
    )


def _learned(
    rows: NDArray[np.float32],
    classes: NDArray[np.int64],
    unlabelled: NDArray[np.float32],
    tried: NDArray[np.float32],
    weight: float,
    seed: int,
) -> NDArray[np.int64]:
    """Return the classes that a network trained on `rows` gives to the rows of `tried`."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width, count = rows.shape[1], int(classes.max()) + 1
        body = torch.nn.Sequential(
            torch.nn.Linear(width, HIDDEN[0]),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN[0], HIDDEN[1]),
            torch.nn.ReLU(),
        )
        head = torch.nn.Linear(HIDDEN[1], count)
        # Components of unit vectors are small: scaled, so that a step of any width moves as much.
        ours, theirs, test = (
            torch.from_numpy(part * width**0.5) for part in (rows, unlabelled, tried)
        )
        target = torch.from_numpy(classes)
        learning = torch.optim.Adam([*body.parameters(), *head.parameters()], RATE)
        for _ in range(EPOCHS):
            order = torch.randperm(len(ours))
            interruption.check()
            for batch in order.split(BATCH):
                hidden = body(ours[batch])
                loss = torch.nn.functional.cross_entropy(head(hidden), target[batch])
                other = torch.randint(len(theirs), (BATCH,))
                if weight and len(batch) > 1:
                    loss = loss + weight * coral_distance(hidden, body(theirs[other]))
                learning.zero_grad()
                loss.backward()
                learning.step()
        with torch.no_grad():
            predicted: NDArray[np.int64] = head(body(test)).argmax(dim=1).numpy()
    return predicted
