"""C3 and I2: how large a prediction batch must be.

C3  figures 5 and A6, CIFAR-10-C: batches from one image to a whole split
I2  figure A7, ImageNet-C: batches from one image to 500, at severity 5
"""

from __future__ import annotations

from functools import partial

import pandas as pd

from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, XAxis, box_chart, display_name, metric_info

from ..claims import Claim, Measurement
from ..drawing import metric_figure
from ..experiment import Charts, Experiment, FigureSpec
from ..measurements import gain, gain_share
from ..plans import cifar10, imagenet
from ..runs import Runs
from ..series import METRICS, TOP, TRAIN, Series

LITTLE = 0.1
"""The largest further gain that counts as little, as a share of the gain so far."""
LOOKS = (SeriesStyle("train BN", GREY, True), SeriesStyle("prediction BN", HUES[0], False))
FIGURE_METRICS = ("brier", "accuracy", "ece")

CIFAR10_SIZES = Series("", cifar10.BATCH_SIZE, "batch")
CIFAR10_100 = Series("batches of 100", cifar10.BATCH_SIZE, "batch", batch_size=100)
CIFAR10_ALL = Series("whole splits", cifar10.BATCH_SIZE, "batch", batch_size="all")

IMAGENET_TRAIN = Series("train BN", imagenet.METHODS, "train", network=imagenet.RESNET50)
IMAGENET_SIZES = Series("", imagenet.BATCH_SIZE, "batch", network=imagenet.RESNET50)
IMAGENET_100, IMAGENET_250, IMAGENET_500 = (
    Series(f"batches of {size}", imagenet.BATCH_SIZE, "batch", network=imagenet.RESNET50, batch_size=size)
    for size in (100, 250, 500)
)


def _beats_train(runs: Runs, size: Series, train: Series) -> list[Measurement]:
    return [gain(runs, size, train, metric, TOP, suffix=" at severity 5") for metric in METRICS]


def _further_gain(runs: Runs, largest: Series, size: Series, train: Series) -> list[Measurement]:
    """What the largest batches gain over batches of some size, as a share of what these gain over train BN."""
    what = f"gain of {largest.label} over {size.label}, as a share of the gain of {size.label} over train BN"
    return [
        gain_share(runs, what, (largest, size), (size, train), metric, TOP, side="below", bound=LITTLE)
        for metric in ("accuracy", "brier")
    ]


def _boxes(
    runs: Runs, sizes: Series, train: Series, metric: str, severity: int, largest: str | None = None
) -> FigureVariant:
    """One box per batch size over the corruptions at one severity, and one for train BN, which has no batch size.

    `largest` replaces the number of the largest batch size: "all" for a whole split.
    """
    parts = []
    for series, look in ((train, LOOKS[0]), (sizes, LOOKS[1])):
        rows = series.values(runs, metric, (severity,))
        means = rows.groupby(["batch_size", "corruption"], as_index=False)["value"].mean()
        what = means["corruption"].map(lambda name: display_name(str(name)))
        parts.append(means.assign(series=look.series, what=what))
    batch_sizes = sorted(parts[1]["batch_size"].unique())
    labels = {size: str(size) for size in batch_sizes}
    if largest is not None:
        labels[batch_sizes[-1]] = largest
    parts[0]["batch_size"] = LOOKS[0].series
    parts[1]["batch_size"] = parts[1]["batch_size"].map(labels)
    x_axis = XAxis("batch_size", "images in a prediction batch", [LOOKS[0].series, *labels.values()], shared=False)
    return FigureVariant(box_chart(pd.concat(parts, ignore_index=True), metric, LOOKS, x_axis=x_axis), list(LOOKS))


def _cifar10_figures(runs: Runs) -> list[FigureSpec]:
    severities = sorted(set(runs[cifar10.BATCH_SIZE].frame["severity"]) - {0}, reverse=True)
    charts: Charts = {
        (metric_info(metric).label, f"severity {severity}"): partial(
            _boxes, runs, CIFAR10_SIZES, TRAIN, metric, severity, "all"
        )
        for metric in FIGURE_METRICS
        for severity in severities
    }
    caption = "Boxes over the 19 corruptions at one severity, for every size of the prediction batch."
    return [FigureSpec("batch-sizes", "Prediction batch sizes", caption, ("metric", "severity"), charts)]


CIFAR10_BATCH_SIZE = Experiment(
    id="C3",
    figure="figures 5 and A6",
    title="prediction batch sizes",
    plans=(cifar10.METHODS, cifar10.BATCH_SIZE),
    claims=(
        Claim(
            "C3.1",
            "figure 5",
            "Batches of 100 images are enough for prediction-time BN to do well under shift.",
            "With batches of 100 it must beat train BN on every metric at severity 5, which the paper shows.",
            lambda runs: _beats_train(runs, CIFAR10_100, TRAIN),
        ),
        Claim(
            "C3.2",
            "figure 5",
            "Beyond 100 images larger batches improve little.",
            "A whole split as one batch may add no more than a tenth of what batches of 100 gain over train BN.",
            lambda runs: _further_gain(runs, CIFAR10_ALL, CIFAR10_100, TRAIN),
        ),
    ),
    make_figures=_cifar10_figures,
)


def _imagenet_figures(runs: Runs) -> list[FigureSpec]:
    def draw(metric: str) -> FigureVariant:
        return _boxes(runs, IMAGENET_SIZES, IMAGENET_TRAIN, metric, 5)

    caption = "Boxes over the 19 corruptions at severity 5, for every size of the prediction batch."
    return [metric_figure("batch-sizes", "Prediction batch sizes on ImageNet-C", caption, draw, FIGURE_METRICS)]


IMAGENET_BATCH_SIZE = Experiment(
    id="I2",
    figure="figure A7",
    title="prediction batch sizes on ImageNet-C",
    plans=(imagenet.METHODS, imagenet.BATCH_SIZE),
    claims=(
        Claim(
            "I2.1",
            "figure A7",
            "Batches of 100 images are enough for prediction-time BN to do well under shift.",
            "With batches of 100 it must beat train BN at severity 5 on every metric.",
            lambda runs: _beats_train(runs, IMAGENET_100, IMAGENET_TRAIN),
        ),
        Claim(
            "I2.2",
            "figure A7",
            "Performance plateaus after batches of 100 or 250 images.",
            "Batches of 500 may add no more than a tenth of what batches of 100, and of 250, gain over train BN.",
            lambda runs: [
                measurement
                for size in (IMAGENET_100, IMAGENET_250)
                for measurement in _further_gain(runs, IMAGENET_500, size, IMAGENET_TRAIN)
            ],
        ),
    ),
    make_figures=_imagenet_figures,
)
