"""C5 and I8, figures 7 and A10: the eps of batch norm at prediction time, on clean images.

C5  CIFAR-10: prediction-time BN with eps from 1e-5 to 10, for single models and for their ensemble
I8  ImageNet: ResNet-50 with eps from 1e-5 to 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from predbn.report import HUES, FigureVariant, SeriesStyle, curves

from ..claims import Measure, Measurement
from ..drawing import metric_figure
from ..experiment import FigureSpec, experiment
from ..image_measurements import accuracy_gain_by_image, ece_gain_by_image
from ..measurements import all_of, gains
from ..networks import WITH_BATCH_NORM
from ..plans import cifar10, imagenet
from ..plans.cifar10 import LARGE_EPS
from ..runs import Runs
from ..series import CLEAN, PREDICTION, Over, Series

COLLAPSE = 0.02
"""The loss of accuracy that counts as a collapse."""
MAINTAINED = 0.01
"""The largest loss of Brier score with which it counts as maintained."""
TRAINING_EPS = 1e-3
"""The eps with which our networks were trained, on both data sets; on ImageNet that of the paper is 1e-5."""
METRICS = ("ece", "accuracy", "brier")


def with_eps(eps: float, method: str = "vanilla") -> Series:
    """Prediction-time BN with some eps, on CIFAR-10."""
    return _series(cifar10.EPS_AT_PREDICTION, WITH_BATCH_NORM, eps, method)


def _series(plan: str, network: str, eps: float, method: str = "vanilla") -> Series:
    return Series(f"eps {eps:g}", plan, f"batch[eps={float(eps)}]", method, network)


def _gain(eps: float, metric: str, method: str = "vanilla", over: Over = "model", **options: Any) -> Measure:
    first, second = with_eps(eps, method), with_eps(TRAINING_EPS, method)
    return gains(first, second, (metric,), CLEAN, over=over, name=_name(eps), **options)


def _name(eps: float) -> str:
    return f"gain of an eps of {eps:g} over that of training"


def _imagenet_eps(runs: Runs) -> list[Measurement]:
    large, larger, trained = (
        _series(imagenet.EPS_AT_PREDICTION, imagenet.RESNET50, eps) for eps in (LARGE_EPS, 10 * LARGE_EPS, TRAINING_EPS)
    )
    clean, name, larger_name = ("clean", 0), _name(LARGE_EPS), _name(10 * LARGE_EPS)
    return [
        ece_gain_by_image(runs, large, trained, clean, "above", name=name),
        accuracy_gain_by_image(runs, large, trained, clean, "above", -COLLAPSE, name=name),
        accuracy_gain_by_image(runs, larger, trained, clean, "below", -COLLAPSE, name=larger_name),
    ]


def _eps_figure(
    title: str, caption: str, plan: str, network: str, grid: Sequence[float], methods: Sequence[tuple[str, str, Over]]
) -> FigureSpec:
    """One curve per method; `methods` has its label, the method, and what its band is over."""
    looks = [SeriesStyle(label, hue, False) for (label, *_), hue in zip(methods, HUES, strict=False)]

    def draw(metric: str, runs: Runs) -> FigureVariant:
        parts = []
        for label, method, over in methods:
            for eps in grid:
                means = _series(plan, network, eps, method).values(runs, metric, CLEAN).groupby(over)["value"].mean()
                parts.append(pd.DataFrame({"series": label, "eps": eps, "value": means.to_numpy()}))
        values = pd.concat(parts, ignore_index=True)
        chart = curves(values, metric, looks, by="eps", title="eps at prediction", mark=TRAINING_EPS)
        return FigureVariant(chart, looks)

    return metric_figure("eps", title, caption, draw, METRICS)


_SHIFTED_LARGE_EPS = Series(f"eps {LARGE_EPS:g}", cifar10.STRATEGIES, f"batch[eps={LARGE_EPS}]")

CIFAR10_EPS = experiment(
    "C5",
    plans=(cifar10.EPS_AT_PREDICTION, cifar10.STRATEGIES, cifar10.METHODS),
    measures={
        1: all_of(
            _gain(LARGE_EPS, "ece"),
            _gain(LARGE_EPS, "accuracy", bound=-COLLAPSE),
            _gain(LARGE_EPS, "brier", bound=-MAINTAINED),
            _gain(10 * LARGE_EPS, "accuracy", side="below", bound=-COLLAPSE),
        ),
        2: all_of(*(_gain(LARGE_EPS, metric, "ensemble", over="seed", side="below") for metric in METRICS)),
        3: gains(_SHIFTED_LARGE_EPS, PREDICTION, ("ece",), name=f"{_name(LARGE_EPS)} under shift"),
    },
    figures=[
        _eps_figure(
            "Eps at prediction",
            "Prediction-time BN on the clean test set. Lines are means; bands reach from the lowest to the highest "
            "network (for the ensemble: order of the images). The vertical line is the eps of training.",
            cifar10.EPS_AT_PREDICTION,
            WITH_BATCH_NORM,
            cifar10.EPS,
            [("single models", "vanilla", "model"), ("ensemble", "ensemble", "seed")],
        )
    ],
)

IMAGENET_EPS = experiment(
    "I8",
    plans=(imagenet.EPS_AT_PREDICTION,),
    measures={1: _imagenet_eps},
    figures=[
        _eps_figure(
            "Eps at prediction on ImageNet",
            "Prediction-time BN on clean images, batches of 100. The vertical line is the eps of these weights. There "
            "is no ensemble, because there is only one set of weights.",
            imagenet.EPS_AT_PREDICTION,
            imagenet.RESNET50,
            imagenet.EPS,
            [("ResNet-50", "vanilla", "model")],
        )
    ],
)
