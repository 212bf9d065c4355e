"""C5 and I8, figures 8 and A10: the eps of batch norm at prediction time, on clean images.

C5  CIFAR-10: prediction-time BN with eps from 1e-5 to 10, for single models and for their ensemble
I8  ImageNet: ResNet-50 with eps from 1e-5 to 1
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from predbn.report import HUES, FigureVariant, SeriesStyle, curves

from ..claims import Claim, Measure, Measurement
from ..drawing import metric_figure
from ..experiment import Experiment, FigureSpec
from ..image_measurements import accuracy_gain_by_image, ece_gain_by_image
from ..measurements import all_of, gains, unmeasured
from ..networks import WITH_BATCH_NORM
from ..plans import cifar10, imagenet
from ..plans.cifar10 import LARGE_EPS
from ..runs import Runs
from ..series import CLEAN, Over, Series

COLLAPSE = 0.02
"""The loss of accuracy that counts as a collapse."""
MAINTAINED = 0.01
"""The largest loss of Brier score with which it counts as maintained."""
NO_BETTER = 0.002
"""A gain of ECE up to this counts as none: to show that there is none at all would take infinitely many draws."""
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


def _curves(
    runs: Runs,
    plan: str,
    network: str,
    grid: Sequence[float],
    drawn: Sequence[tuple[SeriesStyle, str, Over]],
    metric: str,
) -> FigureVariant:
    """One curve per method; `drawn` has its look, the method, and what its band is over."""
    parts = []
    for look, method, over in drawn:
        for eps in grid:
            means = _series(plan, network, eps, method).values(runs, metric, CLEAN).groupby(over)["value"].mean()
            parts.append(pd.DataFrame({"series": look.series, "eps": eps, "value": means.to_numpy()}))
    looks = [look for look, _, _ in drawn]
    chart = curves(
        pd.concat(parts, ignore_index=True), metric, looks, by="eps", title="eps at prediction", mark=TRAINING_EPS
    )
    return FigureVariant(chart, looks)


def _cifar10_figures(runs: Runs) -> list[FigureSpec]:
    caption = (
        "Prediction-time BN on the clean test set. Lines are means; bands reach from the lowest to the highest network "
        "(for the ensemble: order of the images). The vertical line is the eps of training."
    )
    drawn: list[tuple[SeriesStyle, str, Over]] = [
        (SeriesStyle("single models", HUES[0], False), "vanilla", "model"),
        (SeriesStyle("ensemble", HUES[1], False), "ensemble", "seed"),
    ]
    draw = partial(_curves, runs, cifar10.EPS_AT_PREDICTION, WITH_BATCH_NORM, cifar10.EPS, drawn)
    return [metric_figure("eps", "Eps at prediction", caption, draw, METRICS)]


def _imagenet_figures(runs: Runs) -> list[FigureSpec]:
    caption = (
        "Prediction-time BN on clean images, batches of 100. The vertical line is the eps of these weights. There is "
        "no ensemble, because there is only one set of weights."
    )
    drawn: list[tuple[SeriesStyle, str, Over]] = [(SeriesStyle("ResNet-50", HUES[0], False), "vanilla", "model")]
    draw = partial(_curves, runs, imagenet.EPS_AT_PREDICTION, imagenet.RESNET50, imagenet.EPS, drawn)
    return [metric_figure("eps", "Eps at prediction on ImageNet", caption, draw, METRICS)]


_TWO_ORDERS = (
    "eps can be raised by two orders of magnitude, which improves ECE and maintains accuracy and Brier score, before "
    "accuracy collapses."
)

CIFAR10_EPS = Experiment(
    id="C5",
    figure="figures 8 and A10",
    title="eps at prediction, on the clean test set",
    plans=(cifar10.EPS_AT_PREDICTION,),
    claims=(
        Claim(
            "C5.1",
            "figures 8 and A10",
            f"For single models {_TWO_ORDERS}",
            "At eps = 0.1, ECE must be better than at the 0.001 of training, accuracy lower by less than two points, "
            "and the Brier score worse by less than 0.01; at eps = 1, accuracy must be lower by more than two points. "
            "Pairs are networks.",
            all_of(
                _gain(LARGE_EPS, "ece"),
                _gain(LARGE_EPS, "accuracy", bound=-COLLAPSE),
                _gain(LARGE_EPS, "brier", bound=-MAINTAINED),
                _gain(10 * LARGE_EPS, "accuracy", side="below", bound=-COLLAPSE),
            ),
        ),
        Claim(
            "C5.2",
            "figure A10",
            "For ensembles a larger eps gains nothing.",
            "At eps = 0.01 and 0.1, ECE must be no better than at 0.001, which means by less than 0.002. Pairs are "
            "orders of the test images, because there is only one ensemble.",
            all_of(
                *(
                    _gain(eps, "ece", "ensemble", over="seed", side="below", bound=NO_BETTER)
                    for eps in (10 * TRAINING_EPS, LARGE_EPS)
                )
            ),
        ),
    ),
    make_figures=_cifar10_figures,
)

IMAGENET_EPS = Experiment(
    id="I8",
    figure="figures 8 and A10",
    title="eps at prediction, on clean images of ImageNet",
    plans=(imagenet.EPS_AT_PREDICTION,),
    claims=(
        Claim(
            "I8.1",
            "figures 8 and A10",
            f"For ResNet-50 {_TWO_ORDERS}",
            "Like C5.1, from the eps of our weights, 0.001, instead of the paper's 1e-5. Intervals are over images; "
            "the Brier scores of single images are not stored, so the figure alone shows them.",
            _imagenet_eps,
        ),
        Claim(
            "I8.2",
            "figure A10",
            "For ensembles of ResNet-50 a larger eps gains nothing.",
            "",
            unmeasured("there is only one set of weights, and an ensemble needs several"),
        ),
    ),
    make_figures=_imagenet_figures,
)
