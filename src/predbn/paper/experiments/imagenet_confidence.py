"""I4, figure 10: how sure ResNet-50 is on ImageNet-C, and how often it is right when it is so sure."""

from __future__ import annotations

import pandas as pd

from predbn.common import NotMeasured
from predbn.report import GREY, HUES, Look, Panel, Variant, confidence_bins

from ..claims import Claim, Measurement
from ..experiment import Experiment
from ..imagenet import METHODS, RESNET50
from ..measure import mean
from ..runs import Runs
from ..series import SHIFTED, paired
from .imagenet_methods import PREDICTION, TRAIN

__all__ = ["EXPERIMENT", "UNDER"]

UNDER = 0.02
LOOKS = (Look("train BN", GREY, True), Look("prediction BN", HUES[0], False))
_STRATEGIES = {"train": LOOKS[0].series, "batch": LOOKS[1].series}


def _bins(runs: Runs, *, shifted: bool = True) -> pd.DataFrame:
    """The bins of both strategies: series, corruption, bin, lower, upper, count, and how many were right."""
    rows = runs[METHODS].reliability
    chosen = (rows["method"] == "vanilla") & rows["strategy"].isin(list(_STRATEGIES)) & (rows["count"] > 0)
    chosen &= rows["model"].str.startswith(f"{RESNET50}/") & ((rows["severity"] > 0) == shifted)
    part = rows[chosen]
    if part.empty:
        raise NotMeasured(f"the run of the plan {METHODS} has no reliability diagrams")
    named = part.assign(series=part["strategy"].map(_STRATEGIES), right=part["accuracy"] * part["count"])
    keys = ["series", "corruption", "bin", "lower", "upper"]
    summed: pd.DataFrame = named.groupby(keys, as_index=False)[["count", "right"]].sum()
    return summed


def _less_sure(runs: Runs) -> list[Measurement]:
    table = paired(runs, (TRAIN, PREDICTION), "confidence", SHIFTED)
    what = f"confidence: {PREDICTION.label} less {TRAIN.label}"
    return [mean(what, table[PREDICTION.label] - table[TRAIN.label], "confidence", side="below")]


def _more_accurate(runs: Runs) -> list[Measurement]:
    """By corruption, the difference in accuracy bin by bin, weighted with the predictions of both in the bin."""
    wide = _bins(runs).pivot_table(index=["corruption", "bin"], columns="series", values=["count", "right"]).dropna()
    count, right = wide["count"], wide["right"]
    accuracy = right / count
    weight = count.sum(axis=1)
    difference = weight * (accuracy[LOOKS[1].series] - accuracy[LOOKS[0].series])
    gained = difference.groupby("corruption").sum() / weight.groupby("corruption").sum()
    return [mean("accuracy within a bin of confidence: prediction BN over train BN", gained, "accuracy")]


def _not_under(runs: Runs) -> list[Measurement]:
    sides = [PREDICTION.values(runs, metric, SHIFTED) for metric in ("accuracy", "confidence")]
    accuracy, confidence = (side.groupby("corruption")["value"].mean() for side in sides)
    what = "accuracy less confidence, prediction BN"
    return [mean(what, accuracy - confidence, "accuracy", side="below", bound=UNDER)]


def _draw(runs: Runs) -> list[Panel]:
    caption = (
        "Above, the share of predictions in each of 100 bins of confidence; below, the share of them that was right, "
        "which on the diagonal is the confidence. All 95 splits together, or the clean images."
    )
    panel = Panel("confidence", "Confidence, and accuracy by confidence", caption, ("images",))
    for name, shifted in (("shifted", True), ("clean", False)):
        bins = _bins(runs, shifted=shifted)
        pooled = bins.groupby(["series", "bin", "lower", "upper"], as_index=False)[["count", "right"]].sum()
        panel.variants[name,] = Variant(confidence_bins(pooled, LOOKS), list(LOOKS))
    return [panel]


EXPERIMENT = Experiment(
    id="I4",
    figure="figure 10",
    title="confidence and accuracy by confidence on ImageNet-C",
    plans=(METHODS,),
    claims=(
        Claim(
            "I4.1",
            "figure 10",
            "Prediction-time BN is less confident than train BN on shifted images.",
            "The mean confidence over all 95 splits must be lower.",
            _less_sure,
        ),
        Claim(
            "I4.2",
            "figure 10",
            "At the same confidence, prediction-time BN is more often right.",
            "In 100 bins of confidence, the difference in accuracy, weighted with the predictions of both strategies "
            "in a bin, must be above 0.",
            _more_accurate,
        ),
        Claim(
            "I4.3",
            "figure 10",
            "It is not so much more accurate that it would be under-confident.",
            "Accuracy may be at most two points above confidence.",
            _not_under,
        ),
    ),
    draw=_draw,
)
