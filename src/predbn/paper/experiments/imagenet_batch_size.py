"""I2, figure A7: how large a prediction batch must be on ImageNet-C."""

from __future__ import annotations

import pandas as pd

from predbn.report import GREY, HUES, Look, Panel, Places, Variant, box_chart, meaning
from predbn.report import readable_labels as readable

from ..claims import Claim, Measurement
from ..drawing import by_metric
from ..experiment import Experiment
from ..imagenet import METHODS, RESNET50, SIZES
from ..measure import gain, share, signed
from ..runs import Runs
from ..series import METRICS, TOP, Series, paired

__all__ = ["EXPERIMENT", "MARGINAL"]

MARGINAL = 0.1
LARGEST = 500
LOOKS = (Look("train BN", GREY, True), Look("prediction BN", HUES[0], False))


TRAIN = Series("train BN", METHODS, "train", network=RESNET50)
HUNDRED, QUARTER, WHOLE = (
    Series(f"batches of {size}", SIZES, "batch", network=RESNET50, batch_size=size) for size in (100, 250, LARGEST)
)


def _strong(runs: Runs) -> list[Measurement]:
    return [gain(runs, HUNDRED, TRAIN, metric, TOP, where=" at severity 5") for metric in METRICS]


def _plateau(runs: Runs) -> list[Measurement]:
    found = []
    for start in (HUNDRED, QUARTER):
        for metric in ("accuracy", "brier"):
            table = signed(paired(runs, (TRAIN, start, WHOLE), metric, TOP), metric)
            more, already = table[WHOLE.label] - table[start.label], table[start.label] - table[TRAIN.label]
            what = f"{meaning(metric).label}: what batches of {LARGEST} gain over {start.label}, of what these gain"
            found.append(share(f"{what} over train BN", more, already, side="below", bound=MARGINAL))
    return found


def _boxes(runs: Runs, metric: str) -> Variant:
    """A box a batch size over the corruptions, and one for train BN, which needs no batch."""
    rows = Series("", SIZES, "batch", network=RESNET50).values(runs, metric, TOP)
    parts = [TRAIN.values(runs, metric, TOP).assign(series=LOOKS[0].series, place=LOOKS[0].series)]
    parts.append(rows.assign(series=LOOKS[1].series, place=rows["batch_size"].astype(str)))
    values = pd.concat(parts, ignore_index=True).assign(what=lambda frame: frame["corruption"].map(readable))
    order = [LOOKS[0].series, *map(str, sorted(rows["batch_size"].unique()))]
    places = Places("place", "images in a prediction batch", order, shared=False)
    return Variant(box_chart(values, metric, LOOKS, places=places), list(LOOKS))


def _draw(runs: Runs) -> list[Panel]:
    return [
        by_metric(
            "batch-sizes",
            "Prediction batch sizes on ImageNet-C",
            "Boxes over the 19 corruptions at severity 5, for every size of the prediction batch.",
            lambda metric: _boxes(runs, metric),
            ("brier", "accuracy", "ece"),
        )
    ]


EXPERIMENT = Experiment(
    id="I2",
    figure="figure A7",
    title="prediction batch sizes on ImageNet-C",
    plans=(METHODS, SIZES),
    claims=(
        Claim(
            "I2.1",
            "figure A7",
            "Batches of 100 images are enough for prediction-time BN to do well under shift.",
            "With batches of 100 it must beat train BN at severity 5 on every metric.",
            _strong,
        ),
        Claim(
            "I2.2",
            "figure A7",
            "Performance has its plateau after batches of 100 or 250 images.",
            "Batches of 500 may add no more than a tenth of what those of 100, and of 250, gain over train BN.",
            _plateau,
        ),
    ),
    draw=_draw,
)
