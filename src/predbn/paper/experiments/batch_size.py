"""C3 and I2: how large a prediction batch must be.

C3  figures 4 and A6, CIFAR-10-C: batches from one image to a whole split
I2  figure A7, ImageNet-C: batches from one image to 500, at severity 5
"""

from __future__ import annotations

from functools import partial

from predbn.report import FigureVariant, XAxis, metric_info

from ..claims import Measure
from ..drawing import boxes_of, looks_of, means_by, metric_figure
from ..experiment import FigureSpec, experiment
from ..measurements import all_of, gain_share, gains
from ..plans import cifar10, imagenet
from ..runs import Runs
from ..series import TOP, TRAIN, Series

LITTLE = 0.1
"""The largest further gain that counts as little, as a share of the gain so far."""
FIGURE_METRICS = ("brier", "accuracy", "ece")
_GAIN_OF_100 = "gain of prediction BN in batches of 100 at severity 5"

CIFAR10_SIZES = Series("prediction BN", cifar10.BATCH_SIZE, "batch")
CIFAR10_8 = Series("batches of 8", cifar10.BATCH_SIZE, "batch", batch_size=8)
CIFAR10_100 = Series("batches of 100", cifar10.BATCH_SIZE, "batch", batch_size=100)
CIFAR10_ALL = Series("whole splits", cifar10.BATCH_SIZE, "batch", batch_size="all")

IMAGENET_TRAIN = Series("train BN", imagenet.METHODS, "train", network=imagenet.RESNET50)
IMAGENET_SIZES = Series("prediction BN", imagenet.BATCH_SIZE, "batch", network=imagenet.RESNET50)
IMAGENET_100, IMAGENET_250, IMAGENET_500 = (
    Series(f"batches of {size}", imagenet.BATCH_SIZE, "batch", network=imagenet.RESNET50, batch_size=size)
    for size in (100, 250, 500)
)
_GAIN_OF_500 = "gain of batches of 500 over batches of 100"


def _further_gain(largest: Series, size: Series, train: Series) -> Measure:
    """What the largest batches gain over batches of some size, as a share of what these gain over train BN."""
    what = f"further gain of {largest.label} over {size.label}, as a share of the gain of {size.label} over train BN"
    metrics = ("accuracy", "brier")
    return gain_share(what, (largest, size), (size, train), metrics, TOP, side="below", bound=LITTLE)


def _boxes(
    metric: str, runs: Runs, *, train: Series, sizes: Series, severity: int = 5, largest: str | None = None
) -> FigureVariant:
    """One box per batch size over the corruptions at one severity, and one for train BN, which has no batch size.

    `largest` replaces the number of the largest batch size: "all" for a whole split.
    """
    train_means, means = (
        means_by(series, series.values(runs, metric, (severity,)), "batch_size", "corruption")
        for series in (train, sizes)
    )
    labels = {size: str(size) for size in sorted(means["batch_size"].unique())}
    if largest is not None:
        labels[max(labels)] = largest
    parts = train_means.assign(batch_size=train.label), means.assign(batch_size=means["batch_size"].map(labels))
    x_axis = XAxis("batch_size", "images in a prediction batch", [train.label, *labels.values()], shared=False)
    return boxes_of(parts, metric, looks_of((train, sizes)), x_axis=x_axis)


CIFAR10_BATCH_SIZE = experiment(
    "C3",
    plans=(cifar10.METHODS, cifar10.BATCH_SIZE),
    measures={
        1: all_of(
            gains(CIFAR10_100, TRAIN, severities=TOP, name=_GAIN_OF_100), _further_gain(CIFAR10_ALL, CIFAR10_100, TRAIN)
        ),
        2: gains(CIFAR10_8, TRAIN, severities=TOP, name="gain of prediction BN in batches of 8 at severity 5"),
    },
    figures=[
        FigureSpec(
            "batch-sizes",
            "Prediction batch sizes",
            "Boxes over the 19 corruptions at one severity, for every size of the prediction batch.",
            ("metric", "severity"),
            {
                (metric_info(metric).label, f"severity {severity}"): partial(
                    _boxes, metric, train=TRAIN, sizes=CIFAR10_SIZES, severity=severity, largest="all"
                )
                for metric in FIGURE_METRICS
                for severity in (5, 4, 3, 2, 1)
            },
        )
    ],
)

IMAGENET_BATCH_SIZE = experiment(
    "I2",
    plans=(imagenet.METHODS, imagenet.BATCH_SIZE),
    measures={
        1: gains(IMAGENET_100, IMAGENET_TRAIN, severities=TOP, name=_GAIN_OF_100),
        2: all_of(*(_further_gain(IMAGENET_500, size, IMAGENET_TRAIN) for size in (IMAGENET_100, IMAGENET_250))),
        3: all_of(
            gains(IMAGENET_500, IMAGENET_100, ("ece",), TOP, side="below", name=_GAIN_OF_500),
            gains(IMAGENET_500, IMAGENET_100, ("accuracy", "brier"), TOP, name=_GAIN_OF_500),
        ),
    },
    figures=[
        metric_figure(
            "batch-sizes",
            "Prediction batch sizes on ImageNet-C",
            "Boxes over the 19 corruptions at severity 5, for every size of the prediction batch.",
            partial(_boxes, train=IMAGENET_TRAIN, sizes=IMAGENET_SIZES),
            FIGURE_METRICS,
        )
    ],
)
