"""C2, figures 4a and A1 at severity 0: the clean test set, where the training statistics are the right ones."""

from __future__ import annotations

import pandas as pd

from predbn.report import Panel

from ..claims import Claim, Measurement
from ..crops import BLACK, CONTINUED
from ..drawing import by_metric, looks_of, severity_boxes
from ..experiment import Experiment
from ..measure import gain, share
from ..runs import Runs
from ..series import CLEAN, Series, paired
from .baseline import PREDICTION, TRAIN
from .cifar10_methods import SERIES

__all__ = ["EXPERIMENT", "SLIGHTLY"]

SLIGHTLY = 0.02
SINGLE = tuple(each for each in SERIES if each.method != "ensemble")
ON_CROPS = tuple(
    Series(f"{label}, {what}", plan, strategy)
    for plan, what in ((BLACK, "crops with a black border"), (CONTINUED, "crops with a continued border"))
    for label, strategy in (("train BN", "train"), ("prediction BN", "batch"))
)
"""The same networks on test images cropped as in training."""


def _worse(runs: Runs) -> list[Measurement]:
    return [
        gain(runs, PREDICTION, TRAIN, metric, CLEAN, over="model", side="below", where=" on clean images")
        for metric in ("accuracy", "brier")
    ]


def _slightly(runs: Runs) -> list[Measurement]:
    return [gain(runs, PREDICTION, TRAIN, "accuracy", CLEAN, over="model", bound=-SLIGHTLY, where=" on clean images")]


def _border(runs: Runs) -> list[Measurement]:
    def loss(train: Series, prediction: Series) -> pd.Series:
        table = paired(runs, (train, prediction), "accuracy", CLEAN, over="model")
        return table[train.label] - table[prediction.label]

    whole = loss(TRAIN, PREDICTION)
    what = "accuracy: what prediction BN loses on crops with a {} border, of what it loses on whole images"
    return [
        share(what.format("black"), loss(*ON_CROPS[:2]), whole, over="model", side="below", bound=0.25),
        share(what.format("continued"), loss(*ON_CROPS[2:]), whole, over="model", side="above", bound=0.5),
    ]


def _draw(runs: Runs) -> list[Panel]:
    caption = "Boxes over the networks, each trained from another seed."
    border = "Training leaves a black border round the pictures that it moves; a continued one repeats the edge pixels."
    chosen = (
        ("clean", "The clean test set", caption, SINGLE),
        ("crops", "The clean test set, cropped as in training", f"{caption} {border}", (TRAIN, PREDICTION, *ON_CROPS)),
    )
    return [
        by_metric(
            name,
            title,
            told,
            lambda metric, series=series: severity_boxes(  # type: ignore[misc]
                runs, series, metric, looks_of(series, pairs=True), severities=CLEAN, over="model"
            ),
            ("accuracy", "brier", "ece"),
        )
        for name, title, told, series in chosen
    ]


EXPERIMENT = Experiment(
    id="C2",
    figure="figures 4a and A1, severity 0",
    title="the clean test set",
    plans=("methods", BLACK, CONTINUED),
    claims=(
        Claim(
            "C2.1",
            "figure A1",
            "On clean data prediction-time BN is worse in accuracy and Brier score.",
            "Pairs are networks, each with both strategies: there is only one clean test set.",
            _worse,
        ),
        Claim(
            "C2.2",
            "figure A1",
            "On clean data prediction-time BN is worse by a small amount only.",
            "We take two percentage points of accuracy as small: about the spread between training recipes.",
            _slightly,
        ),
        Claim(
            "C2.3",
            "not in the paper",
            "What prediction-time BN loses on clean images it loses to the black border that training crops have and "
            "test images have not.",
            "On test images cropped as in training, with that border, it must lose less than a quarter of what it "
            "loses on whole ones; with a border that continues the picture, more than half. Pairs are networks.",
            _border,
        ),
    ),
    draw=_draw,
)
