"""Metrics against the libraries of their authors on the same features, and as they must behave."""

import numpy as np
import pytest

from workers.data.public_text import constant
from workers.evaluation import fidelity, mauve, transfer
from workers.evaluation.judge import quality, read_score
from workers.generation.writer import Written

RANDOM = np.random.default_rng(7)


def cloud(count: int, shift: float = 0.0, width: int = 8) -> np.ndarray:
    return (RANDOM.normal(size=(count, width)) + shift).astype(np.float32)


# --- MAUVE --------------------------------------------------------------------------------------


def test_mauve_of_the_same_histograms_is_that_of_its_authors():
    reference = pytest.importorskip("mauve", reason="mauve-text is an optional extra")
    from mauve.compute_mauve import cluster_feats, get_divergence_curve_for_multinomials

    for shift in (0.0, 0.3, 1.0):
        ours, theirs = cloud(400), cloud(500, shift)
        p, q, *_ = cluster_feats(ours, theirs, 40, norm="l2", whiten=False, seed=1)
        weights = np.linspace(1e-6, 1 - 1e-6, 25)
        curve = get_divergence_curve_for_multinomials(p, q, weights, 5)
        assert np.abs(mauve.frontier(p, q) - curve).max() < 1e-12
        whole = reference.compute_mauve(p_features=ours, q_features=theirs, num_buckets=40, seed=1)
        assert mauve.area(mauve.frontier(whole.p_hist, whole.q_hist)) == pytest.approx(
            whole.mauve, abs=1e-6
        )


def test_mauve_with_its_own_buckets_agrees_within_their_randomness():
    """K-means starts differ, so whole runs differ; measured: below 0.02 at these sizes."""
    reference = pytest.importorskip("mauve", reason="mauve-text is an optional extra")
    for shift in (0.0, 0.4, 2.0):
        ours, theirs = cloud(1_000), cloud(1_000, shift)
        whole = reference.compute_mauve(p_features=ours, q_features=theirs)
        assert mauve.mauve(ours, theirs).value == pytest.approx(whole.mauve, abs=0.03)


def test_mauve_is_one_for_the_same_and_falls_with_distance():
    values = [mauve.mauve(cloud(600), cloud(600, shift)).value for shift in (0.0, 0.3, 0.6, 3.0)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.9
    assert values[-1] < 0.05
    same = cloud(300)
    assert mauve.mauve(same, same.copy()).value == pytest.approx(1.0, abs=1e-4)


def test_mauve_states_its_settings():
    figure = mauve.mauve(cloud(200), cloud(100), features="a model", seed=3)
    assert figure.settings["buckets"] == 10
    assert figure.settings["texts"] == [200, 100]
    assert (figure.settings["features"], figure.settings["scaling"]) == ("a model", 5.0)


@pytest.mark.parametrize(("n", "m", "d"), [(1, 10, 8), (10, 1, 8), (10, 10, 7)])
def test_mauve_refuses_what_it_can_not_compare(n, m, d):
    with pytest.raises(ValueError, match="MAUVE"):
        mauve.mauve(cloud(n), cloud(m, width=d))


# --- the others ---------------------------------------------------------------------------------


def test_frechet_distance_is_that_of_a_matrix_square_root():
    from scipy.linalg import sqrtm

    ours, theirs = cloud(300), cloud(200, 0.5) * 1.7
    first, second = np.cov(ours, rowvar=False), np.cov(theirs, rowvar=False)
    gap = ours.mean(0, dtype=float) - theirs.mean(0, dtype=float)
    wanted = gap @ gap + np.trace(first + second - 2 * sqrtm(first @ second).real)
    assert fidelity.frechet(ours, theirs).value == pytest.approx(wanted, rel=1e-6)
    assert fidelity.frechet(ours, ours).value == pytest.approx(0.0, abs=1e-6)


def test_lengths_are_compared_in_words():
    figure = fidelity.lengths(["a b", "a b c d"], ["a", "a b c"])
    assert figure.value == 1.0
    assert figure.details == {"median words, synthetic": 3.0, "median words, reference": 2.0}


def test_openings_count_equally_many_of_each():
    synthetic = ["The film was dull"] * 8
    reference = [f"Film number {n} was dull" for n in range(4)]
    figure = fidelity.openings(synthetic, reference)
    assert figure.value == 0.25
    assert figure.settings["texts of each"] == 4


def labelled(count: int) -> transfer.Labelled:
    words = {"sport": ["match", "goal", "team"], "world": ["treaty", "border", "vote"]}
    labels = [("sport", "world")[n % 2] for n in range(count)]
    texts = [" ".join(RANDOM.choice(words[label], size=5)) for label in labels]
    return transfer.Labelled(texts, labels)


def test_transfer_learns_labels_and_not_shuffled_ones():
    train, test = labelled(200), labelled(100)
    assert transfer.transfer(train, test).value == 1.0
    shuffled = transfer.Labelled(train.texts, list(RANDOM.permutation(train.labels)))
    assert 0.2 < transfer.transfer(shuffled, test).value < 0.8
    with pytest.raises(ValueError, match="fewer than two labels"):
        transfer.transfer(transfer.Labelled(["a"], ["one"]), test)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"score": 7}', 7.0),
        ('Sure: {"note": "x"} {"score": 8.5} more', 8.5),
        ("seven", None),
        ('{"score": 70}', None),
        ('{"score": true}', None),
        ('{"score": NaN}', None),
        ("{" * 5000, None),
    ],
)
def test_a_judges_answer_is_a_score_or_nothing(answer, score):
    assert read_score(answer) == score


def test_quality_counts_what_was_not_answered():
    answers = iter(['{"score": 4}', "no", '{"score": 8}'])

    class StandIn:
        name = "a stand-in"

        def write(self, prompts, manner):
            for row in range(len(prompts)):
                yield Written(next(answers), True, row)

    figure = quality([constant("a"), constant("b {braces}"), constant("c")], StandIn())
    assert figure.value == 6.0
    assert figure.details["unanswered"] == 1.0


# --- adaptation ---------------------------------------------------------------------------------


def test_the_coral_distance_is_that_of_the_covariances():
    import torch

    from workers.evaluation.adaptation import coral_distance

    ours, theirs = cloud(50, width=6), 2 * cloud(70, 1.0, width=6)
    expected = np.square(np.cov(ours.T) - np.cov(theirs.T)).sum() / (4 * 6**2)
    found = coral_distance(torch.from_numpy(ours), torch.from_numpy(theirs))
    assert float(found) == pytest.approx(expected, rel=1e-4)
    shifted = coral_distance(torch.from_numpy(ours), torch.from_numpy(ours + 5))
    assert float(shifted) == pytest.approx(0, abs=1e-6)  # means do not count


def test_adaptation_helps_where_texts_have_another_covariance():
    """Two classes along one axis; along another, of no use, the receiver's texts vary much more."""
    import torch

    from workers.evaluation.adaptation import adapted_accuracy

    torch.set_num_threads(1)
    random = np.random.default_rng(3)

    def side(count: int, spread: float) -> tuple[np.ndarray, list[str]]:
        classes = np.arange(count) % 2
        rows = random.normal(size=(count, 8)) * 0.3
        rows[:, 0] += 2 * classes - 1
        rows[:, 1] = spread * random.normal(size=count) + (classes if spread < 1 else 0)
        return (rows / 3).astype(np.float32), ["ab"[each] for each in classes]

    train, other, test = side(400, 0.3), side(400, 9.0), side(400, 9.0)
    figure = adapted_accuracy(train, other[0], test, features="made up", seed=1)
    assert figure.value > figure.details["without adaptation"] + 0.02
    assert figure.settings["texts"] == [400, 400, 400]
    with pytest.raises(ValueError, match="two labels"):
        adapted_accuracy((train[0], ["a"] * 400), other[0], test, features="made up")
    with pytest.raises(ValueError, match="two unlabelled"):
        adapted_accuracy(train, other[0][:1], test, features="made up")
