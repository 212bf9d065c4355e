"""Measurements of a single network, with intervals over images: accuracy, ECE and mCE.

The runs store which images were predicted correctly, so accuracies and the mCE are compared image by image. Confidences
are stored by bin only; the interval of the ECE follows from these (see `ece_gain_by_image`).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import Setting, Split, mce_by_image, unpack_hits
from predbn.metrics import ALEXNET_ERRORS, Interval, t_mean
from predbn.report import metric_info

from .claims import Measure, Measurement, Side
from .measurements import LEVEL
from .runs import Runs
from .series import Series

Array = npt.NDArray[np.float64]
NORMAL = 1.96
"""The quantile of the normal distribution for an interval of 95 %; the number of images is in the thousands."""


def mce(runs: Runs, series: Series, side: Side, bound: float) -> Measurement:
    """The mean corruption error of a series, in per cent."""
    values = _mce_values(runs, series)
    what = f"mCE of {series.label}, %"
    return Measurement(what, t_mean(values), side, bound, len(values), "images", digits=2, signed=False)


def mce_gain(first: Series, second: Series, name: str) -> Measure:
    """How much lower the mCE of `first` is than that of `second`; `name` says it in words."""

    def measure(runs: Runs) -> list[Measurement]:
        gains = _mce_values(runs, second) - _mce_values(runs, first)
        return [Measurement(f"mCE: {name}, points", t_mean(gains), "above", 0.0, len(gains), "images", digits=2)]

    return measure


def _mce_values(runs: Runs, series: Series) -> Array:
    """One value per image; their mean is the mCE."""
    hits = _hits(runs, series)
    missing = set(ALEXNET_ERRORS) - set(hits["corruption"])
    if missing:
        raise NotMeasured(f"the mCE also needs {', '.join(sorted(missing))}")
    return mce_by_image(hits, image_count(runs, series))


def accuracy_gain_by_image(
    runs: Runs,
    first: Series,
    second: Series,
    split: tuple[str, int],
    side: Side,
    bound: float = 0.0,
    *,
    name: str = "",
) -> Measurement:
    """How much more accurate `first` is than `second` on one split, image by image."""
    correct = [_correct_images(runs, series, split) for series in (first, second)]
    gains = correct[0].astype(float) - correct[1]
    where = "clean images" if split[1] == 0 else str(Split(*split)).replace("_", " ")
    what = f"accuracy: {name or f'gain of {first.label} over {second.label} on {where}'}, points"
    return Measurement(what, t_mean(gains), side, bound, len(gains), "images", scale=100, digits=1)


def ece_gain_by_image(
    runs: Runs, first: Series, second: Series, split: tuple[str, int], side: Side, *, name: str
) -> Measurement:
    """How much lower the ECE of `first` is than that of `second` on one split.

    The ECE is the mean over the images of d = ± (right − confidence), with the sign of its bin, so that its variance is
    (E[(right − confidence)²] − ECE²)/n. The two variances are added, as if the two series had seen different images:
    confidences of single images are not stored, and the interval is therefore too wide rather than too narrow.
    """
    parts = [_ece_with_variance(runs, series, split) for series in (first, second)]
    estimate = parts[1][0] - parts[0][0]
    half = NORMAL * math.sqrt(parts[0][1] + parts[1][1])
    interval = Interval(estimate, estimate - half, estimate + half, LEVEL)
    count = image_count(runs, first)
    return Measurement(f"{metric_info('ece').label}: {name}", interval, side, 0.0, count, "images")


def _ece_with_variance(runs: Runs, series: Series, split: tuple[str, int]) -> tuple[float, float]:
    values = series.values(runs, "ece", (split[1],))
    ece = float(values[values["corruption"] == split[0]]["value"].mean())
    bins = _of_series(runs.table(series.plan, "reliability"), series)
    if len(bins):
        bins = bins[(bins["corruption"] == split[0]) & (bins["severity"] == split[1]) & (bins["count"] > 0)]
    if bins.empty:
        raise NotMeasured(f"the results of the plan {series.plan} have no reliability diagram of {series.label}")
    count, accuracy, confidence = (bins[name].to_numpy(dtype=float) for name in ("count", "accuracy", "confidence"))
    square = float((count * (accuracy * (1 - accuracy) + (accuracy - confidence) ** 2)).sum() / count.sum())
    return ece, (square - ece**2) / float(count.sum())


def _correct_images(runs: Runs, series: Series, split: tuple[str, int]) -> npt.NDArray[np.bool_]:
    hits = _hits(runs, series)
    hits = hits[(hits["corruption"] == split[0]) & (hits["severity"] == split[1])]
    if len(hits) != 1:
        raise NotMeasured(f"the results of the plan {series.plan} do not have the hits of {series.label}")
    return unpack_hits(hits["hits"].iloc[0], image_count(runs, series))


def _hits(runs: Runs, series: Series) -> pd.DataFrame:
    """The stored hits of a series, one row per split; raises NotMeasured if the plan stored none."""
    hits = _of_series(runs.table(series.plan, "hits"), series)
    if hits.empty:
        raise NotMeasured(f"the results of the plan {series.plan} do not have the hits of {series.label}")
    return hits


def _of_series(table: pd.DataFrame, series: Series) -> pd.DataFrame:
    if table.empty:
        return table
    selected = (table["strategy"] == str(Setting.parse(series.strategy))) & (table["method"] == series.method)
    selected &= table["model"].str.startswith(f"{series.network}/")
    if series.batch_size is not None:
        selected &= table["batch_size"] == series.batch_size
    rows: pd.DataFrame = table[selected]
    return rows


def image_count(runs: Runs, series: Series) -> int:
    """How many images a split of the plan has."""
    return int(runs[series.plan].card["data"]["images"])
