"""When the labels are doubted."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from predbn.evaluation import Results
from predbn.recommendation.doubts import doubts_about, doubts_about_reference


def measured(accuracy, *, images, classes=10, metric="accuracy", corruption="clean"):
    rows = [
        {
            "model": "m",
            "strategy": name,
            "corruption": corruption,
            "severity": int(corruption != "clean"),
            "metric": metric,
            "value": value,
        }
        for name, value in (("train", accuracy), ("batch", accuracy / 2))
    ]
    return Results(pd.DataFrame(rows), pd.DataFrame(), card={"data": {"images": images, "classes": classes}})


@pytest.mark.parametrize(
    ("accuracy", "images", "classes", "is_doubted"),
    [
        (0.0, 100, 10, True),
        (0.11, 1000, 10, True),
        (0.13, 1000, 10, False),
        (0.2, 20, 10, True),  # 95 % interval 8 to 42
        (0.55, 60, 2, True),
        (0.7, 1000, 1000, False),
        (1.0, 3, 10, False),
    ],
)
def test_accuracy_at_chance(accuracy, images, classes, is_doubted):
    assert bool(doubts_about(measured(accuracy, images=images, classes=classes))) == is_doubted


def test_accuracy_at_chance_where_clean_data_was_not_measured():
    (sentence,) = doubts_about(measured(0.05, images=300, corruption="fog"))
    assert "accuracy with any strategy under these corruptions is 5.0 %" in sentence
    assert doubts_about(measured(0.5, images=300, corruption="fog")) == []


def test_clicks_are_not_doubted():
    assert doubts_about(measured(0.0, images=100, metric="auc")) == []


def shift(labels, predicted, classes=10):
    return SimpleNamespace(
        classes=tuple(map(str, range(classes))),
        labels_and_predictions=lambda split: (np.array(labels), np.array(predicted)),
    )


def test_few_classes_are_predicted():
    labels = [number % 10 for number in range(1000)]
    some_right = [label if label < 3 else 0 for label in labels]
    (sentence,) = doubts_about_reference(shift(labels, some_right))
    assert sentence.startswith("Only 3 of the 10 classes of the reference are ever predicted. ")
    assert doubts_about_reference(shift(labels, labels)) == []
    (sentence,) = doubts_about_reference(shift(labels, [*labels[1:], 0]))
    assert "accuracy on the reference is 0.1 %" in sentence or "accuracy on the reference is 0.0 %" in sentence
