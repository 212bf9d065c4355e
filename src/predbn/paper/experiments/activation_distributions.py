"""D1, figures 2, A11 and A12: what the batch norm layers give, on training images and on shifted ones."""

from __future__ import annotations

import pandas as pd

from predbn.report import Panel, Variant, densities

from ..claims import Claim, Measurement
from ..experiment import Experiment
from ..measure import gain
from ..plans import INSIDE
from ..runs import Runs
from .activations import INSIDE_PREDICTION, INSIDE_TRAIN, LOOKS, table_of

__all__ = ["EXPERIMENT", "layer_panel"]

CHANNELS = 4


def _back(runs: Runs) -> list[Measurement]:
    return [gain(runs, INSIDE_PREDICTION, INSIDE_TRAIN, metric) for metric in ("distance", "outside")]


def layer_panel(rows: pd.DataFrame, places: list[str], title: str, channels: int, columns: int = 4) -> Variant:
    """The distributions of the first channels of some layers."""
    shown = rows[rows["place"].isin(places) & (rows["channel"] < channels)]
    panel = shown["place"] + " · " + shown["channel"].astype(str)
    order = [f"{place} · {channel}" for place in places for channel in range(channels)]
    return Variant(densities(shown.assign(panel=panel), LOOKS, title=title, panels=order, columns=columns), list(LOOKS))


def _draw(runs: Runs) -> list[Panel]:
    rows = table_of(runs, "histograms")
    layers = [place for place in dict.fromkeys(rows["place"]) if place not in ("embeddings", "logits")]
    middle = layers[len(layers) // 2]
    caption = (
        "Spatial means of what a layer gives, before the non-linearity, channel by channel: over the training images, "
        "and over the test images of all shifted splits with train and with prediction-time BN."
    )
    compact = Panel("layers", "Distributions in selected layers", caption, ("layers",))
    compact.variants["selected",] = layer_panel(rows, [layers[0], middle, layers[-1]], "Selected layers", CHANNELS)
    every = Panel("all-layers", "Distributions in every batch norm layer", caption, ("layer",))
    for layer in layers:
        every.variants[layer,] = layer_panel(rows, [layer], f"Layer {layer}", 2 * CHANNELS)
    return [compact, every]


EXPERIMENT = Experiment(
    id="D1",
    figure="figures 2, A11 and A12",
    title="activations of every batch norm layer",
    plans=(INSIDE,),
    claims=(
        Claim(
            "D1.1",
            "figure 2",
            "Prediction-time BN brings the activations of shifted images back to the support and shape of the training "
            "distribution.",
            "Shape: the distance from the training distribution, mean over channels and layers, must be smaller than "
            "with train BN. Support: so must the share of values outside the range of the training images.",
            _back,
        ),
    ),
    draw=_draw,
)
