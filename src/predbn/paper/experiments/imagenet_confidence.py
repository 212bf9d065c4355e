"""I4, figure 9: how confident ResNet-50 is on ImageNet-C, and how accurate at the same confidence.

It uses the reliability diagrams that the plan `resnet50-methods` stores, with 100 bins of confidence.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from predbn.common import NotMeasured
from predbn.report import FigureVariant, confidence_bins

from ..claims import Measurement
from ..drawing import looks_of
from ..experiment import FigureSpec, experiment
from ..image_measurements import NORMAL, image_count
from ..measurements import mean
from ..plans.imagenet import METHODS, RESNET50
from ..runs import Runs
from ..series import CLEAN, PREDICTION, SHIFTED, STRATEGY_LABELS, TRAIN, paired
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
    other = mean(
        "confidence: prediction BN minus train BN", table[prediction] - table[train], "confidence", side="below"
    )
    bins = runs[METHODS].reliability
    bins = bins[(bins["method"] == "vanilla") & bins["strategy"].isin(list(LABELS)) & (bins["severity"] > 0)]
    half = NORMAL * _standard_error(bins[bins["model"].str.startswith(f"{RESNET50}/") & (bins["count"] > 0)])
    estimate, count = other.interval.estimate, image_count(runs, IMAGENET_TRAIN)
    interval = replace(other.interval, low=estimate - half, high=estimate + half)
    return [replace(other, interval=interval, count=count, over="images", other=other)]


def _standard_error(bins: pd.DataFrame) -> float:
    """That of the mean over the splits of the difference in confidence, over images, from the reliability diagrams.

    The variance of a split's confidences follows from its bins, and those of the two strategies are added, as if they
    had seen different images. The splits show the same images, so their errors are added and not averaged out: the
    interval is too wide rather than too narrow.
    """
    weighted = bins.assign(sum=bins["count"] * bins["confidence"], square=bins["count"] * bins["confidence"] ** 2)
    by_split = weighted.groupby(["corruption", "severity", "strategy"], observed=True)[["count", "sum", "square"]].sum()
    variance = (by_split["square"] - by_split["sum"] ** 2 / by_split["count"]) / by_split["count"] ** 2
    return float(variance.groupby(["corruption", "severity"], observed=True).sum().pow(0.5).mean())


def _less_confident_than_on_clean_images(runs: Runs) -> list[Measurement]:
    measurements = []
    for series in (IMAGENET_TRAIN, IMAGENET_PREDICTION):
        shifted = paired(runs, (series,), "confidence", SHIFTED)[series.label]
        difference = shifted - series.mean(runs, "confidence", CLEAN)
        what = f"confidence on shifted minus clean images, {series.label}"
        measurements.append(mean(what, difference, "confidence", side="below"))
    return measurements


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
    measures={1: _less_confident, 2: _more_accurate, 3: _not_under_confident, 4: _less_confident_than_on_clean_images},
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
