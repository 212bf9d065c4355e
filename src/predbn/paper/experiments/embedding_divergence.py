"""D2, figures 3 and A2: how far the embeddings of a split are from the training images', against its scores."""

from __future__ import annotations

import pandas as pd

from predbn.common import NotMeasured
from predbn.report import SEVERITY_COLOURS as SEVERITIES
from predbn.report import Panel, Variant, scatter
from predbn.report import readable_labels as readable

from ..claims import Claim, Measurement
from ..drawing import by_metric
from ..experiment import Experiment
from ..measure import gain, rank_correlation, share
from ..networks import FIXUP, NORMALISED, ONE_LAYER
from ..plans import INSIDE
from ..runs import Runs
from ..series import EVERY, SHIFTED, Series, Severities, paired
from .activations import INSIDE_PREDICTION, INSIDE_TRAIN
from .baseline import PREDICTION, TRAIN

__all__ = ["EXPERIMENT", "NEAR"]

NEAR = 0.25


def _scheme(label: str, network: str, plan: str, strategy: str = "train") -> tuple[Series, Series]:
    return Series(label, INSIDE, strategy, network=network), Series(label, plan, strategy, network=network)


OTHERS = [
    *(_scheme(f"{network.rpartition('/')[2]} norm", network, "normalisations") for network in NORMALISED),
    _scheme("no norm (Fixup)", FIXUP, "normalisations"),
]
SCHEMES = [
    (INSIDE_TRAIN, TRAIN),
    (INSIDE_PREDICTION, PREDICTION),
    *OTHERS,
    _scheme("one layer, prediction BN", ONE_LAYER, "one-layer", "batch"),
]


def points(runs: Runs, scheme: tuple[Series, Series], metric: str, severities: Severities = EVERY) -> pd.DataFrame:
    """One row a split: its divergence, and the score of the same network in the column `value`."""
    inside, scored = (
        each.values(runs, name, severities) for each, name in zip(scheme, ("divergence", metric), strict=True)
    )
    keys = ["model", "corruption", "severity"]
    both = scored[[*keys, "value"]].merge(inside[[*keys, "value"]], on=keys, suffixes=("", "_inside"))
    if both.empty:
        raise NotMeasured(f"{scheme[0].label} has no split with both a divergence and a score")
    found: pd.DataFrame = both.rename(columns={"value_inside": "divergence"})
    return found


def _goes_with(runs: Runs) -> list[Measurement]:
    splits = {metric: points(runs, SCHEMES[0], metric, SHIFTED) for metric in ("brier", "accuracy")}
    return [
        rank_correlation("Brier score and divergence, train BN: rank correlation", splits["brier"], side="above"),
        rank_correlation("accuracy and divergence, train BN: rank correlation", splits["accuracy"], side="below"),
    ]


def _near(runs: Runs) -> list[Measurement]:
    table = paired(runs, (INSIDE_TRAIN, INSIDE_PREDICTION), "divergence")
    what = "divergence of embeddings: prediction BN, of that with train BN"
    return [share(what, table[INSIDE_PREDICTION.label], table[INSIDE_TRAIN.label], side="below", bound=NEAR)]


def _nearest(runs: Runs) -> list[Measurement]:
    return [gain(runs, INSIDE_PREDICTION, inside, "divergence") for inside, _ in OTHERS]


def _draw(runs: Runs) -> list[Panel]:
    there = [scheme for scheme in SCHEMES if all(each.is_there(runs) for each in scheme)]
    if not there:
        raise NotMeasured("no network has both divergences and scores")

    def draw(metric: str) -> Variant:
        parts = [points(runs, scheme, metric).assign(panel=scheme[0].label) for scheme in there]
        rows = pd.concat(parts, ignore_index=True)
        rows = rows.assign(corruption=rows["corruption"].map(readable))
        labels = [scheme[0].label for scheme in there]
        chart = scatter(rows, metric, across="divergence", title="divergence, nats", panels=labels, log=True)
        return Variant(chart, list(SEVERITIES))

    caption = (
        "Each dot is a split. Across: T⁻¹ Σ ln q̂/p̂ over the test points, p̂ and q̂ Gaussians with the means and "
        "variances of the embeddings of training and test images (the axis is symmetric-logarithmic). The stronger "
        "the shift, the stronger the colour."
    )
    return [by_metric("divergence", "Divergence of embeddings and scores", caption, draw, ("brier", "accuracy"))]


EXPERIMENT = Experiment(
    id="D2",
    figure="figures 3 and A2",
    title="divergence of the embeddings against scores",
    plans=(INSIDE, "methods", "normalisations", "one-layer"),
    claims=(
        Claim(
            "D2.1",
            "figure 3",
            "The further the embeddings of a split are from those of the training images, the worse its scores.",
            "Spearman's rank correlation over the 95 splits with train BN; corruptions are resampled whole.",
            _goes_with,
        ),
        Claim(
            "D2.2",
            "figure 3",
            "With prediction-time BN the divergence is near zero on all splits.",
            "There is no scale by which a divergence is near zero but the one of train BN: it must be less than a "
            "quarter of that, on average.",
            _near,
        ),
        Claim(
            "D2.3",
            "figure 3",
            "With prediction-time BN the divergence is smaller than with any other normalisation.",
            "Against instance, layer and group norm and Fixup, over all 95 splits.",
            _nearest,
        ),
    ),
    draw=_draw,
)
