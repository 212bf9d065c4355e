"""C5, figures 8 and A10: the eps of batch norm at prediction, on the clean test set."""

from __future__ import annotations

import pandas as pd

from predbn.report import HUES, Look, Panel, Variant, curves

from ..claims import Claim, Measurement, Side
from ..drawing import by_metric
from ..experiment import Experiment
from ..measure import gain
from ..plans import EPS, LARGE_EPS
from ..runs import Runs
from ..series import CLEAN, Series

__all__ = ["COLLAPSE", "EXPERIMENT"]

COLLAPSE = 0.02
DEFAULT = 1e-3
LOOKS = (Look("single models", HUES[0], False), Look("ensemble", HUES[1], False))


def at(eps: float, method: str = "vanilla") -> Series:
    """Prediction-time BN with some eps."""
    return Series(f"eps {eps:g}", "eps", f"batch[eps={float(eps)}]", method)


def _single(runs: Runs) -> list[Measurement]:
    def gained(eps: float, metric: str, side: Side, bound: float) -> Measurement:
        return gain(runs, at(eps), at(DEFAULT), metric, CLEAN, over="model", side=side, bound=bound)

    return [
        gained(LARGE_EPS, "ece", "above", 0.0),
        gained(LARGE_EPS, "accuracy", "above", -COLLAPSE),
        gained(10 * LARGE_EPS, "accuracy", "below", -COLLAPSE),
    ]


def _ensemble(runs: Runs) -> list[Measurement]:
    default = at(DEFAULT, "ensemble")
    return [
        gain(runs, at(eps, "ensemble"), default, "ece", CLEAN, over="seed", side="below")
        for eps in (10 * DEFAULT, LARGE_EPS)
    ]


def _curves(runs: Runs, metric: str) -> Variant:
    parts = []
    for look, method, over in zip(LOOKS, ("vanilla", "ensemble"), ("model", "seed"), strict=True):
        for eps in EPS:
            means = at(eps, method).values(runs, metric, CLEAN).groupby(over)["value"].mean()
            parts.append(pd.DataFrame({"series": look.series, "eps": eps, "value": means.to_numpy()}))
    values = pd.concat(parts, ignore_index=True)
    return Variant(curves(values, metric, LOOKS, by="eps", title="eps at prediction", mark=DEFAULT), list(LOOKS))


def _draw(runs: Runs) -> list[Panel]:
    caption = (
        "Prediction-time BN on the clean test set. Lines are means, bands reach from the lowest to the highest network "
        "(for the ensemble: order of the images). The vertical line is the eps of training."
    )
    metrics = ("ece", "accuracy", "brier")
    return [by_metric("eps", "Eps at prediction", caption, lambda metric: _curves(runs, metric), metrics)]


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
            "At eps = 0.1 ECE must be better than at the 0.001 of training, and accuracy lower by less than two "
            "percentage points; one order further accuracy must be lower by more than that. Pairs are networks.",
            _single,
        ),
        Claim(
            "C5.2",
            "figure A10",
            "For ensembles a larger eps gains nothing.",
            "ECE must be no better at eps = 0.01 and 0.1 than at 0.001. Pairs are orders of the test images, for there "
            "is one ensemble.",
            _ensemble,
        ),
    ),
    draw=_draw,
)
