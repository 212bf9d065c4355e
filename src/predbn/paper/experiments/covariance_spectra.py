"""D3, figure 11: eigenvalues of the covariances of embeddings and logits."""

from __future__ import annotations

from predbn.report import Panel, Variant, curves

from ..claims import Claim, Measurement
from ..experiment import Experiment
from ..inside import TOP
from ..measure import gain, mean
from ..plans import INSIDE
from ..runs import Runs
from ..series import CLEAN, paired
from .activations import INSIDE_PREDICTION, INSIDE_TRAIN, LOOKS, table_of

__all__ = ["EXPERIMENT"]

METRICS = ("spectrum_gap", "logit_gap")


def _closer(runs: Runs) -> list[Measurement]:
    return [gain(runs, INSIDE_PREDICTION, INSIDE_TRAIN, metric) for metric in METRICS]


def _not_identical(runs: Runs) -> list[Measurement]:
    found = []
    for metric in METRICS:
        clean = float(INSIDE_TRAIN.values(runs, metric, CLEAN)["value"].mean())
        shifted = paired(runs, (INSIDE_PREDICTION,), metric)[INSIDE_PREDICTION.label]
        what = f"{metric.replace('_', ' ')}: prediction BN on shifted images, less train BN on clean ones"
        found.append(mean(what, shifted - clean, metric))
    return found


def _draw(runs: Runs) -> list[Panel]:
    rows = table_of(runs, "spectra")
    caption = (
        "Eigenvalues of the covariance in descending order, over the training images and over the test images of all "
        "shifted splits. Of the embeddings the paper shows the first 12."
    )
    panel = Panel("spectra", "Covariance spectra", caption, ("of",))
    for place in TOP:
        shown = rows[(rows["place"] == place) & (rows["rank"] <= (TOP[place] if place == "embeddings" else 10))]
        chart = curves(shown, f"eigenvalues of {place}", LOOKS, by="rank", title="rank", log=False, log_value=True)
        panel.variants[place,] = Variant(chart, list(LOOKS))
    return [panel]


EXPERIMENT = Experiment(
    id="D3",
    figure="figure 11",
    title="covariance spectra of embeddings and logits",
    plans=(INSIDE,),
    claims=(
        Claim(
            "D3.1",
            "figure 11",
            "With prediction-time BN the covariances of embeddings and logits have a spectrum closer to the training "
            "images' than with train BN.",
            "The gap is the mean absolute difference of the logarithms of the largest eigenvalues (12 of the "
            "embeddings, 9 of the logits).",
            _closer,
        ),
        Claim(
            "D3.2",
            "figure 11",
            "The spectra are closer, but not identical.",
            "The gap must be larger than the one that clean test images have with train BN.",
            _not_identical,
        ),
    ),
    draw=_draw,
)
