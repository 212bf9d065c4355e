"""D1, D3 and D4: what shifts do to the activations inside a network, and what prediction-time BN restores.

D1  figures 1, A11 and A12: the distributions of the outputs of every batch norm layer
D3  figure 10: the eigenvalues of the covariances of embeddings and logits
D4  figure A13: the distributions of the dimensions of embeddings and logits

The reference is what the network has seen in training: crops, normalised with the statistics of their batch. The plan
`inside-crops` also measures whole images with the stored statistics and with each strategy (`run_activations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import read_table as read_table_file
from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, curves, densities, metric_info

from ..claims import Measurement
from ..experiment import Charts, FigureSpec, experiment
from ..measurements import all_of, by_network, gains, mean
from ..networks import WITH_BATCH_NORM
from ..plans.cifar10 import ACTIVATIONS
from ..run_activations import EIGENVALUES, STORED_CHANNELS, TRAINING
from ..runs import Runs
from ..series import CLEAN, Over, Series, paired

ACTIVATIONS_TRAIN = Series("train BN", ACTIVATIONS, "train")
ACTIVATIONS_PREDICTION = Series("prediction BN", ACTIVATIONS, "batch")

SPECTRUM_METRICS = ("spectrum_gap_crops", "logit_gap_crops")
TAIL = 0.01
"""The share of training logits that are larger in magnitude than those that count as large."""
LABELS = {TRAINING: "training crops", "train": "shifted, train BN", "batch": "shifted, prediction BN"}
LOOKS = (
    SeriesStyle(LABELS[TRAINING], GREY, True),
    SeriesStyle(LABELS["train"], HUES[1], False),
    SeriesStyle(LABELS["batch"], HUES[0], False),
)


@lru_cache(maxsize=8)
def read_table(runs: Runs, name: str) -> pd.DataFrame:
    """A table of the plan for the networks with batch norm, with readable names in `label`."""
    path = runs.plan_folder(ACTIVATIONS) / f"{name}.parquet"
    if not path.is_file():
        raise NotMeasured(f"{path.parent.parent} has no results of the plan {ACTIVATIONS}, or these have no {name}")
    rows: pd.DataFrame = read_table_file(path).to_pandas()
    rows = rows[rows["model"].str.startswith(f"{WITH_BATCH_NORM}/")]
    if rows.empty:
        raise NotMeasured(f"the results of the plan {ACTIVATIONS} have no network with batch norm")
    labelled: pd.DataFrame = rows.assign(label=rows["series"].map(LABELS))
    return labelled


def pooled_distances(runs: Runs, reference: str = "crops") -> pd.DataFrame:
    """W₁ between a reference and all shifted images together, as figure 1 pools them, in its standard deviations.

    One row per network and layer, and one column per strategy.
    """
    rows = read_table(runs, "pooled")
    rows = rows[rows["reference"] == reference]
    table: pd.DataFrame = rows.pivot(index=["model", "place"], columns="series", values="distance")
    return table


@lru_cache(maxsize=8)
def histogram_distances(runs: Runs) -> pd.DataFrame:
    """The same from the stored histograms of one network: one row per layer and channel (only some are stored)."""
    from scipy.stats import wasserstein_distance  # here, because importing it takes most of a second

    distances = []
    for (place, channel), group in read_table(runs, "histograms").groupby(["place", "channel"]):
        points = {series: (part["x"], part["density"]) for series, part in group.groupby("series")}
        x, density = points[TRAINING]
        centre = np.average(x, weights=density)
        deviation = np.sqrt(np.average((x - centre) ** 2, weights=density))
        distance = {
            strategy: wasserstein_distance(x, points[strategy][0], density, points[strategy][1]) / deviation
            for strategy in ("train", "batch")
        }
        distances.append({"place": place, "channel": channel, **distance})
    by_channel: pd.DataFrame = pd.DataFrame(distances).set_index(["place", "channel"])
    return by_channel


def _nearer_if_pooled(runs: Runs) -> list[Measurement]:
    distances = pooled_distances(runs)
    gains = distances["train"] - distances["batch"]
    by_model, by_layer = (gains.groupby(level).mean() for level in ("model", "place"))
    what = "distance of activations, all shifted images pooled: gain of prediction BN"
    other = mean(what, by_layer, "distance", plural="layers")
    return [by_network(lambda over: mean(what, by_model, "distance", over=over) if over == "model" else other)]


def _distributions(runs: Runs, places: Sequence[str], title: str, channels: int, columns: int = 4) -> FigureVariant:
    """The densities of the first channels of some layers."""
    histograms = read_table(runs, "histograms")
    shown = histograms[histograms["place"].isin(places) & (histograms["channel"] < channels)]
    panel = shown["place"] + " · " + shown["channel"].astype(str)
    order = [f"{place} · {channel}" for place in places for channel in range(channels)]
    chart = densities(
        shown.assign(panel=panel, series=shown["label"]), LOOKS, title=title, panels=order, columns=columns
    )
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
    "Spatial means of the outputs of a layer, before the non-linearity, channel by channel: over training crops, "
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
                ("distance_crops", "outside_crops"),
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
    def farther(metric: str, over: Over) -> Measurement:
        series = ACTIVATIONS_PREDICTION
        shifted = paired(runs, (series,), metric, over=over)[series.label]
        clean = series.values(runs, metric, CLEAN).groupby("model")["value"].mean()
        what = f"{metric_info(metric).label}, prediction BN: shifted images minus clean images"
        return mean(what, shifted - (clean if over == "model" else clean.mean()), metric, over=over)

    return [by_network(partial(farther, metric)) for metric in SPECTRUM_METRICS]


def _spectrum(runs: Runs, place: str) -> FigureVariant:
    spectra = read_table(runs, "spectra")
    last = EIGENVALUES["embeddings"] if place == "embeddings" else 10
    shown = spectra[(spectra["place"] == place) & (spectra["rank"] <= last)]
    shown = shown[shown["model"] == shown["model"].iloc[0]].assign(series=shown["label"])
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
            "Eigenvalues of the covariance in descending order, over training crops and over the test images of "
            "all shifted splits. For the embeddings, the first 12, as in the paper.",
            ("of",),
            {(place,): partial(_spectrum, place=place) for place in EIGENVALUES},
        )
    ],
)


def _large_logits(runs: Runs) -> list[Measurement]:
    """By dimension, the share of shifted logits that are larger in magnitude than 99 % of the training crops'."""
    rows = read_table(runs, "histograms")
    shares: dict[str, list[float]] = {"train": [], "batch": []}
    for _, group in rows[rows["place"] == "logits"].groupby("channel"):
        training = group[group["series"] == TRAINING].assign(size=lambda part: part["x"].abs()).sort_values("size")
        weight = training["density"].cumsum() / training["density"].sum()
        threshold = training["size"][weight >= 1 - TAIL].iloc[0]
        for strategy, values in shares.items():
            part = group[group["series"] == strategy]
            values.append(float(part["density"][part["x"].abs() > threshold].sum() / part["density"].sum()))
    what = "logits larger than 99 % of those in training: train BN minus prediction BN"
    difference = pd.Series(shares["train"]) - pd.Series(shares["batch"])
    return [mean(what, difference, "outside", plural="dimensions")]


def _marginals_nearer(runs: Runs) -> list[Measurement]:
    distances = histogram_distances(runs)
    return [
        mean(
            f"distance of the {place}, dimension by dimension: gain of prediction BN",
            distances.loc[place]["train"] - distances.loc[place]["batch"],
            "distance",
            plural="dimensions",
        )
        for place in EIGENVALUES
    ]


DIMENSION_DISTRIBUTIONS = experiment(
    "D4",
    plans=(ACTIVATIONS,),
    measures={1: _large_logits, 2: _marginals_nearer},
    figures=[
        FigureSpec(
            "dimensions",
            "Dimensions of embeddings and logits",
            "Over training crops, and over the test images of all shifted splits with both strategies.",
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
