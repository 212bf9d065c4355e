"""The rule that recommends a strategy: on arrays whose answer is known."""

import numpy as np
import pytest

from predbn.common import EvaluationError
from predbn.recommendation import Candidate, recommend

COUNT = 400


def candidate(
    strategy: str, right: int, brier: float = 0.5, *, on_reference: int | None = None, size: int | None = None
):
    """A strategy that is right on the first `right` pictures of 400, with noise in its Brier scores."""
    noise = np.random.default_rng(right).normal(scale=0.01, size=COUNT)
    scores = {"accuracy": (np.arange(COUNT) < right).astype(float), "brier": -brier + noise}
    known = {} if on_reference is None else {"accuracy": (np.arange(COUNT) < on_reference).astype(float)}
    return Candidate(strategy, scores, size, known)


BASE = candidate("train", 200, on_reference=380)
SIMPLE, COMPLEX = candidate("batch", 280), candidate("auto(calibrated=True, passes=4)", 283)
HARMFUL, HARMLESS = candidate("batch", 283, on_reference=300), candidate("auto", 280, on_reference=379)


@pytest.mark.parametrize(
    ("others", "chosen", "metric", "why", "runner_up"),
    [
        ([candidate("batch", 280)], "batch", "accuracy", "best", None),
        ([candidate("batch", 202)], "train", None, "nothing is better", "batch"),
        ([candidate("batch", 100), candidate("prior", 150)], "train", None, "all are worse", "prior"),
        ([COMPLEX, SIMPLE], "batch", "accuracy", "simpler", COMPLEX.strategy),
        ([SIMPLE, COMPLEX], "batch", "accuracy", "simpler", COMPLEX.strategy),
        ([candidate("batch", 280), candidate("auto", 320)], "auto", "accuracy", "best", None),
        ([HARMFUL, HARMLESS], "auto", "accuracy", "harmless", "batch"),
        ([HARMFUL], "batch", "accuracy", "best", None),
        # Equal accuracy and better probabilities; better probabilities do not make up for a clearly lower accuracy.
        ([candidate("batch", 200, 0.4)], "batch", "brier", "best", None),
        ([candidate("batch", 150, 0.3)], "train", None, "all are worse", "batch"),
    ],
)
def test_what_is_recommended_and_why(others, chosen, metric, why, runner_up):
    found = recommend(BASE, others)
    assert (found.strategy, found.metric, found.why) == (chosen, metric, why)
    assert runner_up == (found.runner_up and found.runner_up.candidate.strategy)


def test_gains_have_intervals():
    gain = recommend(BASE, [candidate("batch", 280, 0.4)]).chosen.gains
    assert gain["accuracy"].estimate == pytest.approx(0.2)
    assert 0 < gain["accuracy"].low < 0.2 < gain["accuracy"].high
    assert gain["brier"].estimate == pytest.approx(0.1, abs=0.01)
    assert recommend(BASE, [candidate("batch", 202)]).runner_up.gains["accuracy"].low <= 0


def test_of_tied_batch_sizes_the_smaller_is_recommended():
    found = recommend(BASE, [candidate("batch", 283, size=100), candidate("batch", 280, size=16)])
    assert (found.strategy, found.batch_size) == ("batch", 16)


def test_one_of_many_needs_more_than_one_alone():
    base, better = candidate("train", 200), candidate("batch", 207)
    assert recommend(base, [better]).strategy == "batch"
    lucky = [candidate(f"prior(N={n})", 200) for n in range(1, 60)]
    assert recommend(base, [better, *lucky]).strategy == "train"


def test_under_chance_alone_something_is_recommended_rarely():
    random, wrong = np.random.default_rng(0), 0
    for _ in range(200):
        scores = [{"accuracy": random.integers(0, 2, 100).astype(float)} for _ in range(8)]
        names = ["train", "batch", "prior(N=16)", "ema", "auto", "auto_stream", "frozen", "population"]
        base, *others = [Candidate(name, each) for name, each in zip(names, scores, strict=True)]
        wrong += recommend(base, others).strategy != "train"
    assert wrong / 200 <= 0.05


def test_pictures_of_one_batch_count_together():
    base, other = np.zeros(COUNT), (np.arange(COUNT) < 40).astype(float)  # all of the gain is in one batch
    sides = [Candidate(name, {"accuracy": values}) for name, values in (("train", base), ("batch", other))]
    assert recommend(sides[0], sides[1:]).strategy == "batch"
    assert recommend(sides[0], sides[1:], groups=np.arange(COUNT) // 40).strategy == "train"


def test_one_group_supports_nothing():
    found = recommend(candidate("train", 100), [candidate("batch", 300)], groups=np.zeros(COUNT, dtype=np.int64))
    assert found.strategy == "train"


def test_there_must_be_something_to_compare():
    with pytest.raises(EvaluationError, match="train and another strategy"):
        recommend(candidate("train", 100), [])
