"""Rows and pairs, compared with a slow loop over the frame."""

import pytest

from predbn.common import NotMeasured
from predbn.paper.series import Series, paired

TRAIN = Series("train BN", "methods", "train")
ENSEMBLE = Series("ensemble", "methods", "batch", "ensemble")
FROZEN = Series("frozen", "strategies", "frozen")


def slowly(runs, plan, models, severity, **key):
    """{corruption: mean}, computed in a loop."""
    found: dict[str, list[float]] = {}
    for row in runs[plan].frame.to_dict("records"):
        if row["model"] in models and row["severity"] == severity and all(row[k] == v for k, v in key.items()):
            found.setdefault(row["corruption"], []).append(row["value"])
    return {corruption: sum(values) / len(values) for corruption, values in found.items()}


def test_pairs_are_means_over_the_networks_that_both_have(as_the_paper):
    table = paired(as_the_paper, (TRAIN, FROZEN), "brier", (5,))
    models = [f"zoo:resnet20-cifar10/batch/{seed}" for seed in range(3)]
    wanted = slowly(as_the_paper, "methods", models, 5, metric="brier", strategy="train", method="vanilla")
    assert table["train BN"].to_dict() == pytest.approx(wanted)
    wanted = slowly(as_the_paper, "strategies", models, 5, metric="brier", strategy="frozen(batches=1)")
    assert table["frozen"].to_dict() == pytest.approx(wanted)


def test_an_ensemble_is_paired_with_all_networks(as_the_paper):
    table = paired(as_the_paper, (TRAIN, ENSEMBLE), "accuracy", (1,))
    models = [f"zoo:resnet20-cifar10/batch/{seed}" for seed in range(10)]
    wanted = slowly(as_the_paper, "methods", models, 1, metric="accuracy", strategy="train", method="vanilla")
    assert table["train BN"].to_dict() == pytest.approx(wanted)
    assert len(table) == 19


def test_rows_are_corruptions_networks_or_seeds(as_the_paper):
    assert len(paired(as_the_paper, (TRAIN,), "accuracy", (0,), over="model")) == 10
    mixed = Series("mixed", "mixtures", "batch", mixture="mixed-19")
    assert len(paired(as_the_paper, (mixed,), "accuracy", over="seed")) == 10


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (Series("x", "methods", "ema"), "do not have x"),
        (Series("x", "methods", "train", network="zoo:resnet20-cifar10/none"), "zoo has no resnet20-cifar10/none/0"),
        (Series("x", "eps", "batch[eps=0.1]"), "do not have the severities"),
    ],
)
def test_missing_series_say_why(series, message, as_the_paper):
    with pytest.raises(NotMeasured, match=message):
        paired(as_the_paper, (series,), "accuracy")
