"""C2, figures 3a and A1 at severity 0: the clean test set, for which the training statistics are the right ones.

What the paper says about clean images it says of ImageNet (I1.5), so these claims are our own. C2.3 tests where the
loss comes from: the plans `crops` and `crops-continued` evaluate the same networks on test images cropped as in
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ..claims import Measurement
from ..drawing import looks_of, severity_figure
from ..experiment import FigureSpec, experiment
from ..measurements import gains, share
from ..plans.cifar10 import CROPS, CROPS_CONTINUED, METHODS
from ..runs import Runs
from ..series import CLEAN, METRICS, PREDICTION, TRAIN, Series, paired
from .methods import CIFAR10_SERIES, SMALL_LOSS

ON_CLEAN: dict[str, Any] = {
    "severities": CLEAN,
    "over": "model",
    "name": "gain of prediction BN on clean images",
}
BLACK_BORDER, CONTINUED_BORDER = (
    (Series(f"train BN, {border}", plan, "train"), Series(f"prediction BN, {border}", plan, "batch"))
    for plan, border in ((CROPS, "crops with a black border"), (CROPS_CONTINUED, "crops with a continued border"))
)


def _because_of_the_border(runs: Runs) -> list[Measurement]:
    def loss(train: Series, prediction: Series) -> pd.Series:
        table = paired(runs, (train, prediction), "accuracy", CLEAN, over="model")
        return table[train.label] - table[prediction.label]

    whole = loss(TRAIN, PREDICTION)
    what = "accuracy: what prediction BN loses on crops with a {} border, as a share of its loss on whole images"
    return [
        share(what.format("black"), loss(*BLACK_BORDER), whole, over="model", side="below", bound=0.25),
        share(what.format("continued"), loss(*CONTINUED_BORDER), whole, over="model", side="above", bound=0.5),
    ]


def _figure(name: str, title: str, caption: str, series: Sequence[Series]) -> FigureSpec:
    looks = looks_of(series, pairs=True)
    return severity_figure(name, title, caption, series, METRICS, looks, severities=CLEAN, over="model")


CLEAN_TEST_SET = experiment(
    "C2",
    plans=(METHODS, CROPS, CROPS_CONTINUED),
    measures={
        1: gains(PREDICTION, TRAIN, ("accuracy", "brier"), side="below", **ON_CLEAN),
        2: gains(PREDICTION, TRAIN, ("accuracy",), bound=-SMALL_LOSS, **ON_CLEAN),
        3: _because_of_the_border,
    },
    figures=[
        _figure(
            "clean",
            "The clean test set",
            "Boxes over the networks, each trained with another seed.",
            [series for series in CIFAR10_SERIES if series.method != "ensemble"],
        ),
        _figure(
            "crops",
            "The clean test set, cropped as in training",
            "Boxes over the networks. Training leaves a black border around the images that it moves; a continued "
            "border repeats the edge pixels.",
            (TRAIN, PREDICTION, *BLACK_BORDER, *CONTINUED_BORDER),
        ),
    ],
)
