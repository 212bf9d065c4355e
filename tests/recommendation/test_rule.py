"""The rule that recommends a strategy: on arrays whose answer is known."""

from __future__ import annotations

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


def test_what_is_clearly_more_accurate_is_recommended_with_its_interval():
    found = recommend(candidate("train", 200), [candidate("batch", 280)])
    assert (found.strategy, found.metric, found.why) == ("batch", "accuracy", "best")
    gain = found.chosen.gains["accuracy"]
    assert gain.estimate == pytest.approx(0.2)
    assert 0 < gain.low < 0.2 < gain.high


def test_what_is_not_clearly_better_is_not_recommended():
    found = recommend(candidate("train", 200), [candidate("batch", 202)])
    assert (found.strategy, found.why, found.chosen) == ("train", "nothing is better", None)
    assert found.runner_up.candidate.strategy == "batch"
    assert found.runner_up.gains["accuracy"].low <= 0


def test_if_everything_is_worse_it_says_so():
    found = recommend(candidate("train", 200), [candidate("batch", 100), candidate("prior(N=16)", 150)])
    assert (found.strategy, found.why, found.runner_up.candidate.strategy) == ("train", "all are worse", "prior(N=16)")


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


@pytest.mark.parametrize("order", [1, -1])
def test_a_tie_goes_to_the_simpler_strategy(order):
    others = [candidate("auto(calibrated=True, passes=4)", 283), candidate("batch", 280)][::order]
    found = recommend(candidate("train", 200), others)
    assert (found.strategy, found.why) == ("batch", "simpler")
    assert found.runner_up.candidate.strategy.startswith("auto(")


def test_what_is_clearly_better_beats_what_is_simple():
    found = recommend(candidate("train", 200), [candidate("batch", 280), candidate("auto", 320)])
    assert (found.strategy, found.why, found.runner_up) == ("auto", "best", None)


def test_of_tied_strategies_one_that_costs_accuracy_on_the_reference_comes_last():
    base = candidate("train", 200, on_reference=380)
    harmful, harmless = candidate("batch", 283, on_reference=300), candidate("auto", 280, on_reference=379)
    found = recommend(base, [harmful, harmless])
    assert (found.strategy, found.why) == ("auto", "harmless")
    assert recommend(base, [harmful]).strategy == "batch"


def test_of_tied_batch_sizes_the_smaller_is_recommended():
    found = recommend(candidate("train", 200), [candidate("batch", 283, size=100), candidate("batch", 280, size=16)])
    assert (found.strategy, found.batch_size) == ("batch", 16)


def test_equal_accuracy_and_better_probabilities_are_recommended_for_the_probabilities():
    found = recommend(candidate("train", 200, 0.5), [candidate("batch", 200, 0.4)])
    assert (found.strategy, found.metric) == ("batch", "brier")
    assert found.chosen.gains["brier"].estimate == pytest.approx(0.1, abs=0.01)


def test_better_probabilities_do_not_make_up_for_a_clearly_lower_accuracy():
    assert recommend(candidate("train", 200, 0.5), [candidate("batch", 150, 0.3)]).strategy == "train"


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
