"""I4, figure 10: how confident ResNet-50 is on ImageNet-C, and how accurate at the same confidence.

It uses the reliability diagrams that the plan `resnet50-methods` stores, with 100 bins of confidence.
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from predbn.common import NotMeasured
from predbn.report import FigureVariant, confidence_bins

from ..claims import Measurement
from ..drawing import looks_of
from ..experiment import FigureSpec, experiment
from ..measurements import mean
from ..plans.imagenet import METHODS, RESNET50
from ..runs import Runs
from ..series import PREDICTION, SHIFTED, STRATEGY_LABELS, TRAIN, paired
from .methods import IMAGENET_PREDICTION, IMAGENET_TRAIN

UNDER_CONFIDENT = 0.02
"""Accuracy minus confidence from which on predictions count as under-confident."""
LABELS = dict(STRATEGY_LABELS)
LOOKS = looks_of((TRAIN, PREDICTION))


def _bins(runs: Runs, *, shifted: bool = True) -> pd.DataFrame:
    """The bins of both strategies: series, corruption, bin, lower, upper, count, and how many were right."""
    rows = runs[METHODS].reliability
    selected = (rows["method"] == "vanilla") & rows["strategy"].isin(list(LABELS)) & (rows["count"] > 0)
    selected &= rows["model"].str.startswith(f"{RESNET50}/") & ((rows["severity"] > 0) == shifted)
    bins = rows[selected]
    if bins.empty:
        raise NotMeasured(f"the results of the plan {METHODS} have no reliability diagrams")
    labelled = bins.assign(series=bins["strategy"].map(LABELS), right=bins["accuracy"] * bins["count"])
    keys = ["series", "corruption", "bin", "lower", "upper"]
    summed: pd.DataFrame = labelled.groupby(keys, as_index=False)[["count", "right"]].sum()
    return summed


def _less_confident(runs: Runs) -> list[Measurement]:
    train, prediction = IMAGENET_TRAIN.label, IMAGENET_PREDICTION.label
    table = paired(runs, (IMAGENET_TRAIN, IMAGENET_PREDICTION), "confidence", SHIFTED)
    what = "confidence: prediction BN minus train BN"
    return [mean(what, table[prediction] - table[train], "confidence", side="below")]


def _more_accurate(runs: Runs) -> list[Measurement]:
    """By corruption, the difference in accuracy bin by bin, weighted by the predictions of both in the bin."""
    wide = _bins(runs).pivot_table(index=["corruption", "bin"], columns="series", values=["count", "right"]).dropna()
    accuracy = wide["right"] / wide["count"]
    weight = wide["count"].sum(axis=1)
    difference = weight * (accuracy[LABELS["batch"]] - accuracy[LABELS["train"]])
    gains = difference.groupby("corruption").sum() / weight.groupby("corruption").sum()
    return [mean("accuracy within a bin of confidence: gain of prediction BN", gains, "accuracy")]


def _not_under_confident(runs: Runs) -> list[Measurement]:
    accuracy, confidence = (
        IMAGENET_PREDICTION.values(runs, metric, SHIFTED).groupby("corruption")["value"].mean()
        for metric in ("accuracy", "confidence")
    )
    what = "accuracy minus confidence, prediction BN"
    return [mean(what, accuracy - confidence, "accuracy", side="below", bound=UNDER_CONFIDENT)]


def _chart(runs: Runs, shifted: bool) -> FigureVariant:
    bins = _bins(runs, shifted=shifted)
    pooled = bins.groupby(["series", "bin", "lower", "upper"], as_index=False)[["count", "right"]].sum()
    return FigureVariant(confidence_bins(pooled, LOOKS), LOOKS)


IMAGENET_CONFIDENCE = experiment(
    "I4",
    plans=(METHODS,),
    measures={1: _less_confident, 2: _more_accurate, 3: _not_under_confident},
    figures=[
        FigureSpec(
            "confidence",
            "Confidence, and accuracy by confidence",
            "Top: the share of predictions in each of 100 bins of confidence. Bottom: the share of them that is right; "
            "on the diagonal it equals the confidence. All 95 splits together, or the clean images.",
            ("images",),
            {("shifted",): partial(_chart, shifted=True), ("clean",): partial(_chart, shifted=False)},
        )
    ],
)
