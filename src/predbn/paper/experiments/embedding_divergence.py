"""D2, figures 3 and A2: how far the embeddings of a split are from those of the training images, against its scores.

The divergences are in the results of the plan `inside`, the scores in those of the plans of C1, C6 and C8.
"""

from __future__ import annotations

import pandas as pd

from predbn.common import NotMeasured
from predbn.metrics import t_mean
from predbn.report import SEVERITY_STYLES, FigureVariant, display_name, scatter

from ..claims import Measurement
from ..drawing import metric_figure
from ..experiment import experiment
from ..measurements import all_of, gains, rank_correlation, share
from ..networks import FIXUP, NORMALISED, ONE_LAYER
from ..plans.cifar10 import ACTIVATIONS, METHODS, NORMALISATIONS, ONE_BN_LAYER
from ..runs import Runs
from ..series import EVERY, PREDICTION, SHIFTED, TRAIN, Series, Severities, paired
from .activations import ACTIVATIONS_PREDICTION, ACTIVATIONS_TRAIN

NEAR_ZERO = 0.25
"""The largest share of train BN's mean divergence that counts as near zero."""
NEARLY_ALL = 0.9
"""The share of the splits that has to be near zero for them to cluster there."""

Scheme = tuple[Series, Series]
"""A normalisation scheme: the series with its divergences, and the series with its scores."""


def _scheme(label: str, network: str, plan: str, strategy: str = "train") -> Scheme:
    return Series(label, ACTIVATIONS, strategy, network=network), Series(label, plan, strategy, network=network)


WITHOUT_BATCH_NORM = [
    *(_scheme(f"{network.rpartition('/')[2]} norm", network, NORMALISATIONS) for network in NORMALISED),
    _scheme("no norm (Fixup)", FIXUP, NORMALISATIONS),
]
SCHEMES = [
    (ACTIVATIONS_TRAIN, TRAIN),
    (ACTIVATIONS_PREDICTION, PREDICTION),
    *WITHOUT_BATCH_NORM,
    _scheme("one layer, prediction BN", ONE_LAYER, ONE_BN_LAYER, "batch"),
]


def points(runs: Runs, scheme: Scheme, metric: str, severities: Severities = EVERY) -> pd.DataFrame:
    """One row per split: its divergence, and the score of the same network in the column `value`."""
    divergences = scheme[0].values(runs, "divergence", severities)
    scores = scheme[1].values(runs, metric, severities)
    keys = ["model", "corruption", "severity"]
    both = scores[[*keys, "value"]].merge(divergences[[*keys, "value"]], on=keys, suffixes=("", "_divergence"))
    if both.empty:
        raise NotMeasured(f"{scheme[0].label} has no split with both a divergence and a score")
    renamed: pd.DataFrame = both.rename(columns={"value_divergence": "divergence"})
    return renamed


def _correlates_with_scores(runs: Runs) -> list[Measurement]:
    brier, accuracy = (points(runs, SCHEMES[0], metric, SHIFTED) for metric in ("brier", "accuracy"))
    what = "rank correlation of {} and divergence, train BN"
    return [
        rank_correlation(what.format("Brier score"), brier, side="above", seed=runs.seed),
        rank_correlation(what.format("accuracy"), accuracy, side="below", seed=runs.seed),
    ]


def _near_zero(runs: Runs) -> list[Measurement]:
    train, prediction = ACTIVATIONS_TRAIN, ACTIVATIONS_PREDICTION
    table = paired(runs, (train, prediction), "divergence")
    limit = NEAR_ZERO * float(table[train.label].mean())
    splits = prediction.values(runs, "divergence", SHIFTED)
    near = (splits["value"] < limit).groupby(splits["corruption"]).mean()
    what = "divergence of embeddings: mean with prediction BN, as a share of that with train BN"
    near_what = "splits on which the divergence with prediction BN is below a quarter of train BN's mean, %"
    return [
        share(what, table[prediction.label], table[train.label], side="below", bound=NEAR_ZERO),
        Measurement(
            near_what,
            t_mean(near.to_numpy(dtype=float)),
            "above",
            NEARLY_ALL,
            len(near),
            "corruptions",
            scale=100,
            digits=0,
            signed=False,
        ),
    ]


def _scatter(metric: str, runs: Runs) -> FigureVariant:
    measured = [scheme for scheme in SCHEMES if all(series.is_measured(runs) for series in scheme)]
    if not measured:
        raise NotMeasured("no network has both divergences and scores")
    labels = [scheme[0].label for scheme in measured]
    parts = [points(runs, scheme, metric).assign(panel=label) for scheme, label in zip(measured, labels, strict=True)]
    rows = pd.concat(parts, ignore_index=True)
    rows = rows.assign(corruption=rows["corruption"].map(display_name))
    chart = scatter(rows, metric, across="divergence", title="divergence, nats", panels=labels, log=True)
    return FigureVariant(chart, list(SEVERITY_STYLES))


EMBEDDING_DIVERGENCE = experiment(
    "D2",
    plans=(ACTIVATIONS, METHODS, NORMALISATIONS, ONE_BN_LAYER),
    measures={
        1: _correlates_with_scores,
        2: _near_zero,
        3: all_of(
            *(
                gains(
                    ACTIVATIONS_PREDICTION,
                    other,
                    ("divergence",),
                    name=f"how much smaller it is with prediction BN than with {other.label}",
                )
                for other, _ in WITHOUT_BATCH_NORM
            )
        ),
    },
    figures=[
        metric_figure(
            "divergence",
            "Divergence of embeddings and scores",
            "Each dot is a split. Horizontal axis: T⁻¹ Σ ln q̂/p̂ over the test points, with p̂ and q̂ Gaussians with the "
            "means and variances of the embeddings of training and test images (the axis is symmetric-logarithmic). "
            "The stronger the shift, the stronger the colour.",
            _scatter,
            ("brier", "accuracy"),
        )
    ],
)
