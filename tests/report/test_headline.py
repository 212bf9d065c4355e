"""Sentences against numbers that one can do in the head."""

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
    for index, strategy in enumerate(("train", "batch")):
        values[strategy, "clean", 0, metric] = clean[index]
        values[strategy, "fog", 5, metric] = fog[index]
        values[strategy, "snow", 5, metric] = snow[index]
    return results(values, **keys)


def test_better_under_shift_and_worse_on_clean_data():
    frame = pd.concat(
        [
            two((0.40, 0.70), (0.60, 0.58), (0.93, 0.92), "accuracy"),
            two((0.30, 0.10), (0.20, 0.10), (0.03, 0.04), "ece"),
            two((0.2, 0.1), (0.2, 0.1), (0.1, 0.1), "nll"),
        ]
    )
    assert headline(frame) == [
        f"At severity 5, accuracy is 50.0{NBSP}% with train and 64.0{NBSP}% with batch, on average over 2 corruptions.",
        "There, ECE (lower is better) is 0.250 with train and 0.100 with batch; "
        "NLL (lower is better) is 0.200 with train and 0.100 with batch.",
        f"On clean data, accuracy is 93.0{NBSP}% with train and 92.0{NBSP}% with batch; "
        "ECE (lower is better) is 0.030 with train and 0.040 with batch; "
        "NLL (lower is better) is 0.100 with train and 0.100 with batch.",
        "With batch, accuracy is better than with train in 1 of 2 splits; the largest gain is on fog at severity 5 "
        "(+30.0 points), the largest loss on snow at severity 5 (−2.0 points).",
    ]


def test_worse_is_said_as_plainly_as_better():
    sentences = headline(two((0.7, 0.4), (0.6, 0.5), (0.9, 0.9), "accuracy"))
    assert sentences[-1].endswith("in 0 of 2 splits; the largest loss is on fog at severity 5 (−30.0 points).")
    sentences = headline(two((0.3, 0.1), (0.2, 0.1), (0, 0), "ece"))
    assert "in 2 of 2 splits; the largest gain is on fog at severity 5 (+0.200)" in sentences[-1]
    assert "∞" in headline(two((float("inf"), 2), (1, float("inf")), (1, 1), "nll"))[0]


def test_other_settings_get_a_sentence_each():
    large = two((0.4, 0.7), (0.4, 0.7), (0.9, 0.9), "accuracy")
    small = two((0.4, 0.3), (0.4, 0.3), (0.9, 0.7), "accuracy", batch_size=4)
    sentences = headline(pd.concat([small, large]))
    assert sentences[0].startswith("At severity 5 (batch size 500), accuracy is")
    assert sentences[-1].startswith(f"At severity 5 (batch size 4), accuracy is 40.0{NBSP}% with train and 30.0{NBSP}%")


@pytest.mark.parametrize("strategy", ["train", "batch"])
def test_one_strategy_alone_is_reported_without_comparison(strategy):
    frame = two((0.4, 0.7), (0.6, 0.7), (0.9, 0.9), "accuracy")
    sentences = headline(frame[frame["strategy"] == strategy])
    mean = {"train": "50.0", "batch": "70.0"}[strategy]
    assert sentences[0] == f"{strategy.capitalize()} at severity 5: accuracy {mean}{NBSP}%."
    assert sentences[-1].startswith("Nothing is compared")


def test_only_clean_data():
    frame = two((0.4, 0.7), (0.6, 0.7), (0.9, 0.8), "accuracy")
    clean = f"On clean data, accuracy is 90.0{NBSP}% with train and 80.0{NBSP}% with batch."
    assert headline(frame[frame["corruption"] == "clean"]) == [clean]


def test_several_strategies_are_set_side_by_side_for_the_first_metric():
    frame = two((0.40, 0.70), (0.60, 0.58), (0.93, 0.90), "accuracy")
    auto = two((0.40, 0.74), (0.60, 0.62), (0.93, 0.93), "accuracy").query("strategy == 'batch'")
    more = [auto.assign(strategy="auto(calibrated=True, passes=1)"), two((1, 1), (1, 1), (1, 1), "ece")]
    assert headline(pd.concat([frame, *more])) == [
        f"At severity 5, accuracy is 50.0{NBSP}% with train, 64.0{NBSP}% with batch and 68.0{NBSP}% with auto, "
        "on average over 2 corruptions.",
        f"On clean data, accuracy is 93.0{NBSP}% with train, 90.0{NBSP}% with batch and 93.0{NBSP}% with auto.",
        "With batch, accuracy is better than with train in 1 of 2 splits; the largest gain is on fog at severity 5 "
        "(+30.0 points), the largest loss on snow at severity 5 (−2.0 points).",
        "With auto, accuracy is better than with train in 2 of 2 splits; the largest gain is on fog at severity 5 "
        "(+34.0 points), the smallest on snow at severity 5 (+2.0 points).",
    ]


def test_of_many_series_the_best_is_named(frame):
    assert headline(frame)[-1].startswith(
        "Of all 6 combinations of method and strategy, ensemble · batch has the best accuracy at severity 5: 79.1"
    )
    few = two((0.40, 0.70), (0.60, 0.60), (0.93, 0.90), "accuracy")
    batch = few[few["strategy"] == "batch"]
    others = [batch.assign(strategy=f"prior(N={n})", value=batch["value"] + n / 100) for n in (1, 2, 3, 4)]
    sentences = headline(pd.concat([few, *others]))
    assert sentences[0].startswith(f"At severity 5, accuracy is 50.0{NBSP}% with train and 65.0{NBSP}% with batch, on")
    assert "prior(N=4) has the best accuracy at severity 5" in sentences[-1]
