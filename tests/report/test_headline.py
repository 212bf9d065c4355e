"""Sentences against numbers that one can do in the head."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from predbn.report import headline

NBSP = "\N{NO-BREAK SPACE}"


def results(values: dict[tuple[str, str, int, str], float], **keys: Any) -> pd.DataFrame:
    """A frame from {(strategy, corruption, severity, metric): value}."""
    same = {"model": "m/0", "method": "vanilla", "batch_size": 500, "order": "shuffled", "seed": 0, **keys}
    columns = ("strategy", "corruption", "severity", "metric")
    return pd.DataFrame([{**same, **dict(zip(columns, key, strict=True)), "value": v} for key, v in values.items()])


def two(fog: tuple[float, float], snow: tuple[float, float], clean: tuple[float, float], metric: str, **keys: Any):
    values = {}
    for place, strategy in enumerate(("train", "batch")):
        values[strategy, "clean", 0, metric] = clean[place]
        values[strategy, "fog", 5, metric] = fog[place]
        values[strategy, "snow", 5, metric] = snow[place]
    return results(values, **keys)


def test_better_under_shift_and_worse_on_clean_data():
    frame = pd.concat(
        [
            two((0.40, 0.70), (0.60, 0.58), (0.93, 0.92), "accuracy"),
            two((0.30, 0.10), (0.20, 0.10), (0.03, 0.04), "ece"),
        ]
    )
    assert headline(frame) == [
        f"Prediction-time BN raises accuracy at severity 5 from 50.0{NBSP}% to 64.0{NBSP}%, "
        "on average over 2 corruptions.",
        "There, ECE improves from 0.250 to 0.100.",
        "It has the better accuracy in 1 of 2 splits; the largest gain is on fog at severity 5 (+30.0 points), "
        "the largest loss on snow at severity 5 (−2.0 points).",
        f"On clean data, accuracy worsens from 93.0{NBSP}% to 92.0{NBSP}% and ECE from 0.030 to 0.040.",
    ]


def test_worse_is_said_as_plainly_as_better():
    found = headline(two((0.7, 0.4), (0.6, 0.5), (0.9, 0.9), "accuracy"))
    assert found[0].startswith(f"Prediction-time BN lowers accuracy at severity 5 from 65.0{NBSP}% to 45.0{NBSP}%")
    assert found[1].endswith("in 0 of 2 splits; the largest loss is on fog at severity 5 (−30.0 points).")
    assert found[2] == f"On clean data, accuracy stays at 90.0{NBSP}%."


def test_metrics_of_which_less_is_better():
    assert (
        "lowers ECE at severity 5 from 0.250 to 0.100 (better)"
        in headline(two((0.3, 0.1), (0.2, 0.1), (0, 0), "ece"))[0]
    )
    assert "raises NLL at severity 5 from 1.000 to 2.000 (worse)" in headline(two((1, 2), (1, 2), (1, 1), "nll"))[0]


def test_three_metrics_are_listed_with_commas():
    parts = [two((0.2, 0.1), (0.2, 0.1), (0.1, 0.1), metric) for metric in ("accuracy", "brier", "ece", "nll")]
    improved = "Brier score improves from 0.200 to 0.100, ECE from 0.200 to 0.100 and NLL from 0.200 to 0.100."
    assert headline(pd.concat(parts))[1] == f"There, {improved}"


def test_small_batches_get_their_own_sentence():
    large = two((0.4, 0.7), (0.4, 0.7), (0.9, 0.9), "accuracy")
    small = two((0.4, 0.3), (0.4, 0.3), (0.9, 0.7), "accuracy", batch_size=4)
    found = headline(pd.concat([small, large]))
    assert found[0].startswith("With batches of 500, prediction-time BN raises")
    assert found[-1].startswith("With batches of 4, it lowers accuracy at severity 5")


def test_the_best_of_all_series_is_named(frame):
    assert headline(frame)[-1].startswith(
        "Of all 6 combinations of method and strategy, ensemble · batch has the best accuracy at severity 5: 79.1"
    )


@pytest.mark.parametrize("strategy", ["train", "batch"])
def test_one_strategy_alone_is_reported_without_comparison(strategy):
    frame = two((0.4, 0.7), (0.6, 0.7), (0.9, 0.9), "accuracy")
    found = headline(frame[frame["strategy"] == strategy])
    assert found[0].startswith(f"{strategy.capitalize()} at severity 5: accuracy ")
    assert found[-1].startswith("Nothing is compared")


def test_only_clean_data():
    frame = two((0.4, 0.7), (0.6, 0.7), (0.9, 0.8), "accuracy")
    assert headline(frame[frame["corruption"] == "clean"]) == [
        f"On clean data, accuracy worsens from 90.0{NBSP}% to 80.0{NBSP}%."
    ]


def test_other_strategies_have_their_names():
    frame = two((0.4, 0.7), (0.6, 0.7), (0.9, 0.9), "accuracy").replace({"strategy": {"batch": "ema"}})
    assert headline(frame)[0].startswith("The strategy ema raises accuracy")


def test_infinite_losses_do_not_stop_it():
    assert "∞" in headline(two((float("inf"), 2), (1, float("inf")), (1, 1), "nll"))[0]


def test_several_strategies_are_set_side_by_side():
    frame = two((0.40, 0.70), (0.60, 0.58), (0.93, 0.90), "accuracy")
    auto = two((0.40, 0.74), (0.60, 0.62), (0.93, 0.93), "accuracy").query("strategy == 'batch'")
    found = headline(pd.concat([frame, auto.assign(strategy="auto(calibrated=True, passes=4)")]))
    assert found == [
        f"Accuracy at severity 5 is 50.0{NBSP}% with train, 64.0{NBSP}% with batch and 68.0{NBSP}% with auto, "
        "on average over 2 corruptions.",
        f"On clean data, accuracy is 93.0{NBSP}% with train, 90.0{NBSP}% with batch and 93.0{NBSP}% with auto.",
        "With batch it is better than with train in 1 of 2 splits; the largest gain is on fog at severity 5 "
        "(+30.0 points), the largest loss on snow at severity 5 (−2.0 points).",
        "With auto it is better than with train in 2 of 2 splits; the largest gain is on fog at severity 5 "
        "(+34.0 points), the smallest on snow at severity 5 (+2.0 points).",
    ]


def test_of_very_many_strategies_one_is_compared_and_the_best_is_named():
    frame = two((0.40, 0.70), (0.60, 0.60), (0.93, 0.90), "accuracy")
    batch = frame[frame["strategy"] == "batch"]
    others = [batch.assign(strategy=f"prior(N={n})", value=batch["value"] + n / 100) for n in (1, 2, 3, 4)]
    found = headline(pd.concat([frame, *others]))
    assert found[0].startswith(f"Prediction-time BN raises accuracy at severity 5 from 50.0{NBSP}% to 65.0{NBSP}%")
    assert "prior(N=4) has the best accuracy at severity 5" in found[-1]
