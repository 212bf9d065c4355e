"""C2, figures 4a and A1 at severity 0: the clean test set, for which the training statistics are the right ones.

What the paper says about clean images it says of ImageNet (I1.5), so these claims are our own. C2.3 tests where the
loss comes from: the plans `crops` and `crops-continued` evaluate the same networks on test images cropped as in
training.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..claims import Claim, Measurement
from ..drawing import looks_of, severity_figure
from ..experiment import Experiment, FigureSpec
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


def _figures(runs: Runs) -> list[FigureSpec]:
    caption = "Boxes over the networks, each trained with another seed."
    border = (
        "Training leaves a black border around the images that it moves; a continued border repeats the edge pixels."
    )
    single = tuple(series for series in CIFAR10_SERIES if series.method != "ensemble")
    crops = (TRAIN, PREDICTION, *BLACK_BORDER, *CONTINUED_BORDER)
    return [
        severity_figure(
            runs,
            name,
            title,
            text,
            series,
            METRICS,
            looks_of(series, pairs=True),
            severities=CLEAN,
            over="model",
            is_own=True,
        )
        for name, title, text, series in (
            ("clean", "The clean test set", caption, single),
            ("crops", "The clean test set, cropped as in training", f"{caption} {border}", crops),
        )
    ]


EXPERIMENT = Experiment(
    id="C2",
    figure="figures 4a and A1, severity 0",
    title="the clean test set",
    plans=(METHODS, CROPS, CROPS_CONTINUED),
    claims=(
        Claim(
            "C2.1",
            None,
            "On the clean test set of CIFAR-10 prediction-time BN is worse in accuracy and Brier score, as the paper "
            "says of ImageNet.",
            "Pairs are networks, each with both strategies, because there is only one clean test set.",
            gains(PREDICTION, TRAIN, ("accuracy", "brier"), side="below", **ON_CLEAN),
        ),
        Claim(
            "C2.2",
            None,
            "It is worse by a small amount only, as the paper says of ImageNet.",
            "Two percentage points of accuracy count as small: about the spread between training recipes.",
            gains(PREDICTION, TRAIN, ("accuracy",), bound=-SMALL_LOSS, **ON_CLEAN),
        ),
        Claim(
            "C2.3",
            None,
            "The loss of prediction-time BN on clean images comes from the black border that training crops have and "
            "test images do not have.",
            "On test images cropped as in training, with that border, it must lose less than a quarter of what it "
            "loses on whole images; with a border that continues the image, more than half. Pairs are networks.",
            _because_of_the_border,
        ),
    ),
    make_figures=_figures,
)
