"""C3, figures 5 and A6: how large a prediction batch must be."""

from __future__ import annotations

import pandas as pd

from predbn.report import GREY, HUES, Look, Panel, Places, Variant, box_chart, meaning
from predbn.report import readable_labels as readable

from ..claims import Claim, Measurement
from ..experiment import Experiment
from ..measure import gain, share, signed
from ..runs import Runs
from ..series import METRICS, TOP, Series, paired
from .baseline import TRAIN

__all__ = ["EXPERIMENT", "MARGINAL"]

MARGINAL = 0.1
HUNDRED = Series("batches of 100", "batch-sizes", "batch", batch_size=100)
WHOLE = Series("whole splits", "batch-sizes", "batch", batch_size="all")
LOOKS = (Look(TRAIN.label, GREY, True), Look("prediction BN", HUES[0], False))


def _strong(runs: Runs) -> list[Measurement]:
    return [gain(runs, HUNDRED, TRAIN, metric, TOP, where=" at severity 5") for metric in METRICS]


def _little_more(runs: Runs) -> list[Measurement]:
    found = []
    for metric in ("accuracy", "brier"):
        table = signed(paired(runs, (TRAIN, HUNDRED, WHOLE), metric, TOP), metric)
        more, already = (
            table[WHOLE.label] - table[HUNDRED.label],
            table[HUNDRED.label] - table[TRAIN.label],
        )
        what = f"{meaning(metric).label}: what whole splits gain over batches of 100, of what these gain over train BN"
        found.append(share(what, more, already, side="below", bound=MARGINAL))
    return found


def _boxes(runs: Runs, metric: str, severity: int) -> Variant:
    """A box a batch size over the corruptions at one severity, and one for train BN, which needs no batch."""
    sizes = runs["batch-sizes"].frame["batch_size"]
    order = ["train BN", *(str(size) for size in sorted(sizes.unique())[:-1]), "all"]
    parts = []
    for series, look in ((TRAIN, LOOKS[0]), (Series("", "batch-sizes", "batch"), LOOKS[1])):
        rows = series.values(runs, metric, (severity,))
        means = rows.groupby(["batch_size", "corruption"], as_index=False)["value"].mean()
        if look.baseline:
            place = pd.Series(order[0], index=means.index)
        else:
            place = means["batch_size"].map(lambda size: order[-1] if size == sizes.max() else str(size))
        what = means["corruption"].map(lambda name: readable(str(name)))
        parts.append(means.assign(series=look.series, what=what, batch_size=place))
    places = Places("batch_size", "images in a prediction batch", order, shared=False)
    return Variant(box_chart(pd.concat(parts, ignore_index=True), metric, LOOKS, places=places), list(LOOKS))


def _draw(runs: Runs) -> list[Panel]:
    severities = sorted(set(runs["batch-sizes"].frame["severity"]) - {0}, reverse=True)
    caption = "Boxes over the 19 corruptions at one severity, for every size of the prediction batch."
    panel = Panel("batch-sizes", "Prediction batch sizes", caption, ("metric", "severity"))
    for metric in ("brier", "accuracy", "ece"):
        for severity in severities:
            panel.variants[meaning(metric).label, f"severity {severity}"] = _boxes(runs, metric, severity)
    return [panel]


EXPERIMENT = Experiment(
    id="C3",
    figure="figures 5 and A6",
    title="prediction batch sizes",
    plans=("methods", "batch-sizes"),
    claims=(
        Claim(
            "C3.1",
            "figure 5",
            "Batches of 100 images are enough for prediction-time BN to do well under shift.",
            "With batches of 100 it must beat train BN at severity 5, the one that the paper shows, on every metric.",
            _strong,
        ),
        Claim(
            "C3.2",
            "figure 5",
            "Beyond 100 images larger batches improve little.",
            "A whole split as one batch may add no more than a tenth of what batches of 100 gain over train BN.",
            _little_more,
        ),
    ),
    draw=_draw,
)
