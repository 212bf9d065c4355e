"""D1, D3 and D4: what shifts do to the activations inside a network, and what prediction-time BN restores.

D1  figures 2, A11 and A12: the distributions of the outputs of every batch norm layer
D3  figure 11: the eigenvalues of the covariances of embeddings and logits
D4  figure A15: the distributions of the dimensions of embeddings and logits

The plan `inside` runs one network of every kind on all splits and stores histograms and spectra (`run_activations`).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import read_table as read_table_file
from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, curves, densities, metric_info

from ..claims import Claim, Measurement
from ..experiment import Charts, Experiment, FigureSpec
from ..measurements import all_of, gains, mean
from ..networks import WITH_BATCH_NORM
from ..plans.cifar10 import ACTIVATIONS
from ..run_activations import EIGENVALUES, STORED_CHANNELS, TRAINING
from ..runs import Runs
from ..series import CLEAN, TOP, Series, paired

ACTIVATIONS_TRAIN = Series("train BN", ACTIVATIONS, "train")
ACTIVATIONS_PREDICTION = Series("prediction BN", ACTIVATIONS, "batch")

SPECTRUM_METRICS = ("spectrum_gap", "logit_gap")
LABELS = {TRAINING: "training images", "train": "shifted, train BN", "batch": "shifted, prediction BN"}
LOOKS = (
    SeriesStyle(LABELS[TRAINING], GREY, True),
    SeriesStyle(LABELS["train"], HUES[1], False),
    SeriesStyle(LABELS["batch"], HUES[0], False),
)


def read_table(runs: Runs, name: str) -> pd.DataFrame:
    """The table `histograms` or `spectra` of the network with batch norm, with readable names in `series`."""
    path = runs.plan_folder(ACTIVATIONS) / f"{name}.parquet"
    if not path.is_file():
        raise NotMeasured(f"{path.parent} has no {name}")
    rows: pd.DataFrame = read_table_file(path).to_pandas()
    rows = rows[rows["model"].str.startswith(f"{WITH_BATCH_NORM}/")]
    if rows.empty:
        raise NotMeasured(f"the results of the plan {ACTIVATIONS} have no network with batch norm")
    labelled: pd.DataFrame = rows.assign(series=rows["series"].map(LABELS))
    return labelled


def pooled_distances(runs: Runs) -> pd.DataFrame:
    """W₁ between the training images and all shifted images together, as figure 2 pools them.

    One row per batch norm layer and one column per strategy: the mean over the stored channels, in standard deviations
    of the training images.
    """
    from scipy.stats import wasserstein_distance  # here, because importing it takes most of a second

    rows = read_table(runs, "histograms")
    rows = rows[~rows["place"].isin(list(EIGENVALUES))]
    distances = []
    for (place, channel), group in rows.groupby(["place", "channel"]):
        points = {series: (part["x"], part["density"]) for series, part in group.groupby("series")}
        x, density = points[LABELS[TRAINING]]
        centre = np.average(x, weights=density)
        deviation = np.sqrt(np.average((x - centre) ** 2, weights=density))
        distance = {
            strategy: wasserstein_distance(x, points[LABELS[strategy]][0], density, points[LABELS[strategy]][1])
            for strategy in ("train", "batch")
        }
        distances.append({"place": place, "channel": channel, **{k: v / deviation for k, v in distance.items()}})
    by_layer: pd.DataFrame = pd.DataFrame(distances).groupby("place")[["train", "batch"]].mean()
    return by_layer


def _nearer_if_pooled(runs: Runs) -> list[Measurement]:
    distances = pooled_distances(runs)
    what = "distance of activations, all shifted images pooled: gain of prediction BN"
    return [mean(what, distances["train"] - distances["batch"], "distance", plural="layers")]


def _distributions(
    histograms: pd.DataFrame, places: list[str], title: str, channels: int, columns: int = 4
) -> FigureVariant:
    """The densities of the first channels of some layers."""
    shown = histograms[histograms["place"].isin(places) & (histograms["channel"] < channels)]
    panel = shown["place"] + " · " + shown["channel"].astype(str)
    order = [f"{place} · {channel}" for place in places for channel in range(channels)]
    return FigureVariant(
        densities(shown.assign(panel=panel), LOOKS, title=title, panels=order, columns=columns), list(LOOKS)
    )


def _layer_figures(runs: Runs) -> list[FigureSpec]:
    rows = read_table(runs, "histograms")
    layers = [place for place in dict.fromkeys(rows["place"]) if place not in ("embeddings", "logits")]
    selected = [layers[0], layers[len(layers) // 2], layers[-1]]
    caption = (
        "Spatial means of the outputs of a layer, before the non-linearity, channel by channel: over the training "
        "images, and over the test images of all shifted splits with train BN and with prediction-time BN."
    )
    every_layer: Charts = {(layer,): partial(_distributions, rows, [layer], f"Layer {layer}", 8) for layer in layers}
    return [
        FigureSpec(
            "layers",
            "Distributions in selected layers",
            caption,
            ("layers",),
            {("selected",): partial(_distributions, rows, selected, "Selected layers", 4)},
        ),
        FigureSpec("all-layers", "Distributions in every batch norm layer", caption, ("layer",), every_layer),
    ]


LAYER_DISTRIBUTIONS = Experiment(
    id="D1",
    figure="figures 2, A11 and A12",
    title="activations of every batch norm layer",
    plans=(ACTIVATIONS,),
    claims=(
        Claim(
            "D1.1",
            "figure 2",
            "Prediction-time BN brings the activations of shifted images back to the support and shape of the training "
            "distribution.",
            "Shape: the distance (W₁) from the training distribution, in its standard deviations and averaged over "
            "channels, must be smaller than with train BN: with all shifted images pooled, as in figure 2, and split "
            "by split. Support: the share of values outside the range of the training images must be smaller too.",
            all_of(
                _nearer_if_pooled,
                gains(
                    ACTIVATIONS_PREDICTION,
                    ACTIVATIONS_TRAIN,
                    ("distance", "outside"),
                    name="gain of prediction BN, split by split",
                ),
            ),
        ),
    ),
    make_figures=_layer_figures,
)


def _spectra_not_identical(runs: Runs) -> list[Measurement]:
    measurements = []
    for metric in SPECTRUM_METRICS:
        clean = ACTIVATIONS_TRAIN.mean(runs, metric, CLEAN)
        shifted = paired(runs, (ACTIVATIONS_PREDICTION,), metric)[ACTIVATIONS_PREDICTION.label]
        what = f"{metric_info(metric).label}: prediction BN on shifted images minus train BN on clean images"
        measurements.append(mean(what, shifted - clean, metric))
    return measurements


def _spectrum(spectra: pd.DataFrame, place: str) -> FigureVariant:
    last = EIGENVALUES["embeddings"] if place == "embeddings" else 10
    shown = spectra[(spectra["place"] == place) & (spectra["rank"] <= last)]
    chart = curves(shown, f"eigenvalues of {place}", LOOKS, by="rank", title="rank", log=False, log_value=True)
    return FigureVariant(chart, list(LOOKS))


def _spectrum_figures(runs: Runs) -> list[FigureSpec]:
    rows = read_table(runs, "spectra")
    caption = (
        "Eigenvalues of the covariance in descending order, over the training images and over the test images of all "
        "shifted splits. For the embeddings, the first 12, as in the paper."
    )
    charts: Charts = {(place,): partial(_spectrum, rows, place) for place in EIGENVALUES}
    return [FigureSpec("spectra", "Covariance spectra", caption, ("of",), charts)]


COVARIANCE_SPECTRA = Experiment(
    id="D3",
    figure="figure 11",
    title="covariance spectra of embeddings and logits",
    plans=(ACTIVATIONS,),
    claims=(
        Claim(
            "D3.1",
            "figure 11",
            "With prediction-time BN the covariance spectra of embeddings and logits are closer to those of the "
            "training images than with train BN.",
            "The gap is the mean absolute difference of the logarithms of the largest eigenvalues (12 for the "
            "embeddings, 9 for the logits).",
            gains(ACTIVATIONS_PREDICTION, ACTIVATIONS_TRAIN, SPECTRUM_METRICS, name="gain of prediction BN"),
        ),
        Claim(
            "D3.2",
            "figure 11",
            "The spectra are closer, but not identical.",
            "The gap must be larger than that of clean test images with train BN.",
            _spectra_not_identical,
        ),
    ),
    make_figures=_spectrum_figures,
)


def _dimension_figures(runs: Runs) -> list[FigureSpec]:
    rows = read_table(runs, "histograms")
    caption = "Over the training images, and over the test images of all shifted splits with both strategies."
    charts: Charts = {
        ("embeddings",): partial(_distributions, rows, ["embeddings"], "Embeddings", STORED_CHANNELS),
        ("logits",): partial(_distributions, rows, ["logits"], "Logits", 10, columns=5),
    }
    return [FigureSpec("dimensions", "Dimensions of embeddings and logits", caption, ("of",), charts)]


DIMENSION_DISTRIBUTIONS = Experiment(
    id="D4",
    figure="figure A15",
    title="distributions of embeddings and logits",
    plans=(ACTIVATIONS,),
    claims=(
        Claim(
            "D4.1",
            "figure A15",
            "With train BN the logits of shifted images are larger than with prediction-time BN.",
            "Their root mean square must be larger over all 95 splits, and at severity 5 too: a difference that is "
            "largest on clean images and gone where the shift is strongest is not one that the shift makes.",
            all_of(
                gains(
                    ACTIVATIONS_TRAIN,
                    ACTIVATIONS_PREDICTION,
                    ("logit_size",),
                    name="train BN minus prediction BN, all severities",
                ),
                gains(
                    ACTIVATIONS_TRAIN,
                    ACTIVATIONS_PREDICTION,
                    ("logit_size",),
                    TOP,
                    name="train BN minus prediction BN at severity 5",
                ),
            ),
        ),
    ),
    make_figures=_dimension_figures,
)
