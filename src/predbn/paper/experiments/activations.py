"""D1, D3 and D4: what shifts do to the activations inside a network, and what prediction-time BN restores.

D1  figures 2, A11 and A12: the distributions of the outputs of every batch norm layer
D3  figure 11: the eigenvalues of the covariances of embeddings and logits
D4  figure A15: the distributions of the dimensions of embeddings and logits

The plan `inside` runs one network of every kind on all splits and stores histograms and spectra (`run_activations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import read_table as read_table_file
from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, curves, densities, metric_info

from ..claims import Measure, Measurement
from ..experiment import Charts, FigureSpec, experiment
from ..measurements import all_of, gains, mean
from ..networks import WITH_BATCH_NORM
from ..plans.cifar10 import ACTIVATIONS
from ..run_activations import EIGENVALUES, STORED_CHANNELS, TRAINING
from ..runs import Runs
from ..series import CLEAN, SHIFTED, TOP, Series, Severities, paired

ACTIVATIONS_TRAIN = Series("train BN", ACTIVATIONS, "train")
ACTIVATIONS_PREDICTION = Series("prediction BN", ACTIVATIONS, "batch")

SPECTRUM_METRICS = ("spectrum_gap", "logit_gap")
LABELS = {TRAINING: "training images", "train": "shifted, train BN", "batch": "shifted, prediction BN"}
LOOKS = (
    SeriesStyle(LABELS[TRAINING], GREY, True),
    SeriesStyle(LABELS["train"], HUES[1], False),
    SeriesStyle(LABELS["batch"], HUES[0], False),
)


@lru_cache(maxsize=8)
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


@lru_cache(maxsize=8)
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


def _distributions(runs: Runs, places: Sequence[str], title: str, channels: int, columns: int = 4) -> FigureVariant:
    """The densities of the first channels of some layers."""
    histograms = read_table(runs, "histograms")
    shown = histograms[histograms["place"].isin(places) & (histograms["channel"] < channels)]
    panel = shown["place"] + " · " + shown["channel"].astype(str)
    order = [f"{place} · {channel}" for place in places for channel in range(channels)]
    chart = densities(shown.assign(panel=panel), LOOKS, title=title, panels=order, columns=columns)
    return FigureVariant(chart, list(LOOKS))


def _layers(runs: Runs) -> list[str]:
    return [place for place in read_table(runs, "histograms")["place"].unique() if place not in EIGENVALUES]


def _selected_layers(runs: Runs) -> FigureVariant:
    layers = _layers(runs)
    return _distributions(runs, [layers[0], layers[len(layers) // 2], layers[-1]], "Selected layers", 4)


def _every_layer(runs: Runs) -> Charts:
    return {
        (layer,): partial(_distributions, places=[layer], title=f"Layer {layer}", channels=8) for layer in _layers(runs)
    }


_LAYERS_CAPTION = (
    "Spatial means of the outputs of a layer, before the non-linearity, channel by channel: over the training images, "
    "and over the test images of all shifted splits with train BN and with prediction-time BN."
)

LAYER_DISTRIBUTIONS = experiment(
    "D1",
    plans=(ACTIVATIONS,),
    measures={
        1: all_of(
            _nearer_if_pooled,
            gains(
                ACTIVATIONS_PREDICTION,
                ACTIVATIONS_TRAIN,
                ("distance", "outside"),
                name="gain of prediction BN, split by split",
            ),
        )
    },
    figures=[
        FigureSpec(
            "layers",
            "Distributions in selected layers",
            _LAYERS_CAPTION,
            ("layers",),
            {("selected",): _selected_layers},
        ),
        FigureSpec("all-layers", "Distributions in every batch norm layer", _LAYERS_CAPTION, ("layer",), _every_layer),
    ],
)


def _spectra_not_identical(runs: Runs) -> list[Measurement]:
    measurements = []
    for metric in SPECTRUM_METRICS:
        clean = ACTIVATIONS_TRAIN.mean(runs, metric, CLEAN)
        shifted = paired(runs, (ACTIVATIONS_PREDICTION,), metric)[ACTIVATIONS_PREDICTION.label]
        what = f"{metric_info(metric).label}: prediction BN on shifted images minus train BN on clean images"
        measurements.append(mean(what, shifted - clean, metric))
    return measurements


def _spectrum(runs: Runs, place: str) -> FigureVariant:
    spectra = read_table(runs, "spectra")
    last = EIGENVALUES["embeddings"] if place == "embeddings" else 10
    shown = spectra[(spectra["place"] == place) & (spectra["rank"] <= last)]
    chart = curves(shown, f"eigenvalues of {place}", LOOKS, by="rank", title="rank", log=False, log_value=True)
    return FigureVariant(chart, list(LOOKS))


COVARIANCE_SPECTRA = experiment(
    "D3",
    plans=(ACTIVATIONS,),
    measures={
        1: gains(ACTIVATIONS_PREDICTION, ACTIVATIONS_TRAIN, SPECTRUM_METRICS, name="gain of prediction BN"),
        2: _spectra_not_identical,
    },
    figures=[
        FigureSpec(
            "spectra",
            "Covariance spectra",
            "Eigenvalues of the covariance in descending order, over the training images and over the test images of "
            "all shifted splits. For the embeddings, the first 12, as in the paper.",
            ("of",),
            {(place,): partial(_spectrum, place=place) for place in EIGENVALUES},
        )
    ],
)


def _larger_logits(severities: Severities, where: str) -> Measure:
    name = f"train BN minus prediction BN{where}"
    return gains(ACTIVATIONS_TRAIN, ACTIVATIONS_PREDICTION, ("logit_size",), severities, name=name)


DIMENSION_DISTRIBUTIONS = experiment(
    "D4",
    plans=(ACTIVATIONS,),
    measures={1: all_of(_larger_logits(SHIFTED, ", all severities"), _larger_logits(TOP, " at severity 5"))},
    figures=[
        FigureSpec(
            "dimensions",
            "Dimensions of embeddings and logits",
            "Over the training images, and over the test images of all shifted splits with both strategies.",
            ("of",),
            {
                ("embeddings",): partial(
                    _distributions, places=["embeddings"], title="Embeddings", channels=STORED_CHANNELS
                ),
                ("logits",): partial(_distributions, places=["logits"], title="Logits", channels=10, columns=5),
            },
        )
    ],
)
