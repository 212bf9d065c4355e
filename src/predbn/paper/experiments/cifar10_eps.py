"""C5, figures 8 and A10: the eps of batch norm at prediction time, on the clean test set.

The plan `eps` runs prediction-time BN with eps from 1e-5 to 10, for single models and for their ensemble.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from predbn.report import HUES, FigureVariant, SeriesStyle, curves

from ..claims import Claim, Measure
from ..drawing import metric_figure
from ..experiment import Experiment, FigureSpec
from ..measurements import all_of, gains
from ..plans.cifar10 import EPS, LARGE_EPS
from ..runs import Runs
from ..series import CLEAN, Over, Series

COLLAPSE = 0.02
"""The loss of accuracy that counts as a collapse."""
TRAINING_EPS = 1e-3
LOOKS = (SeriesStyle("single models", HUES[0], False), SeriesStyle("ensemble", HUES[1], False))


def with_eps(eps: float, method: str = "vanilla") -> Series:
    """Prediction-time BN with some eps."""
    return Series(f"eps {eps:g}", "eps", f"batch[eps={float(eps)}]", method)


def _over_default(eps: float, metric: str, method: str = "vanilla", over: Over = "model", **options: Any) -> Measure:
    return gains(with_eps(eps, method), with_eps(TRAINING_EPS, method), (metric,), CLEAN, over=over, **options)


def _figures(runs: Runs) -> list[FigureSpec]:
    def draw(metric: str) -> FigureVariant:
        parts = []
        for look, method, over in zip(LOOKS, ("vanilla", "ensemble"), ("model", "seed"), strict=True):
            for eps in EPS:
                means = with_eps(eps, method).values(runs, metric, CLEAN).groupby(over)["value"].mean()
                parts.append(pd.DataFrame({"series": look.series, "eps": eps, "value": means.to_numpy()}))
        values = pd.concat(parts, ignore_index=True)
        chart = curves(values, metric, LOOKS, by="eps", title="eps at prediction", mark=TRAINING_EPS)
        return FigureVariant(chart, list(LOOKS))

    caption = (
        "Prediction-time BN on the clean test set. Lines are means; bands reach from the lowest to the highest network "
        "(for the ensemble: order of the images). The vertical line is the eps of training."
    )
    return [metric_figure("eps", "Eps at prediction", caption, draw, ("ece", "accuracy", "brier"))]


EXPERIMENT = Experiment(
    id="C5",
    figure="figures 8 and A10",
    title="eps at prediction, on the clean test set",
    plans=("eps",),
    claims=(
        Claim(
            "C5.1",
            "figure 8",
            "For single models eps can be raised by two orders of magnitude, which improves ECE, before accuracy "
            "collapses.",
            "At eps = 0.1, ECE must be better than at the 0.001 of training, and accuracy lower by less than two "
            "percentage points; at eps = 1, accuracy must be lower by more than that. Pairs are networks.",
            all_of(
                _over_default(LARGE_EPS, "ece"),
                _over_default(LARGE_EPS, "accuracy", bound=-COLLAPSE),
                _over_default(10 * LARGE_EPS, "accuracy", side="below", bound=-COLLAPSE),
            ),
        ),
        Claim(
            "C5.2",
            "figure A10",
            "For ensembles a larger eps gains nothing.",
            "ECE must be no better at eps = 0.01 and 0.1 than at 0.001. Pairs are orders of the test images, because "
            "there is only one ensemble.",
            all_of(
                *(
                    _over_default(eps, "ece", "ensemble", over="seed", side="below")
                    for eps in (10 * TRAINING_EPS, LARGE_EPS)
                )
            ),
        ),
    ),
    make_figures=_figures,
)
