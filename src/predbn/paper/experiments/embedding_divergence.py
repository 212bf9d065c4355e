"""D2, figures 2 and A2: how far the embeddings of a split are from those of the training images, against its scores.

The divergences are in the results of the plan `inside-crops`, the scores in those of the plans of C1, C6 and C8.
"""

from __future__ import annotations

import pandas as pd

from predbn.common import NotMeasured
from predbn.metrics import t_mean
from predbn.report import SEVERITY_STYLES, FigureVariant, display_name, scatter

from ..claims import Measurement
from ..drawing import metric_figure
from ..experiment import experiment
from ..measurements import PLURALS, all_of, by_network, gains, mean, rank_correlation, share
from ..networks import FIXUP, NORMALISED
from ..plans.cifar10 import ACTIVATIONS, METHODS, NORMALISATIONS
from ..runs import Runs
from ..series import EVERY, PREDICTION, SHIFTED, TRAIN, Over, Series, Severities, paired
from .activations import ACTIVATIONS_PREDICTION, ACTIVATIONS_TRAIN

NEAR_ZERO = 0.25
"""The largest share of train BN's mean divergence that counts as near zero."""
NEARLY_ALL = 0.9
"""The share of the splits that has to be near zero for them to cluster there."""

DIVERGENCE = "divergence_crops"
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
]


def points(runs: Runs, scheme: Scheme, metric: str, severities: Severities = EVERY) -> pd.DataFrame:
    """One row per split: means over the networks of its divergence, and of their scores in the column `value`."""
    divergences = scheme[0].values(runs, DIVERGENCE, severities)
    scores = scheme[1].values(runs, metric, severities)
    keys = ["model", "corruption", "severity"]
    both = scores[[*keys, "value"]].merge(divergences[[*keys, "value"]], on=keys, suffixes=("", "_divergence"))
    if both.empty:
        raise NotMeasured(f"{scheme[0].label} has no split with both a divergence and a score")
    both = both.rename(columns={"value_divergence": "divergence"})
    means: pd.DataFrame = both.groupby(["corruption", "severity"], as_index=False)[["value", "divergence"]].mean()
    return means


def _correlates_with_scores(runs: Runs) -> list[Measurement]:
    brier, accuracy = (points(runs, SCHEMES[0], metric, SHIFTED) for metric in ("brier", "accuracy"))
    what = "rank correlation of {} and divergence, train BN"
    return [
        rank_correlation(what.format("Brier score"), brier, side="above", seed=runs.seed),
        rank_correlation(what.format("accuracy"), accuracy, side="below", seed=runs.seed),
    ]


def _near_zero(runs: Runs) -> list[Measurement]:
    train, prediction = ACTIVATIONS_TRAIN, ACTIVATIONS_PREDICTION
    limit = NEAR_ZERO * train.mean(runs, DIVERGENCE)
    splits = prediction.values(runs, DIVERGENCE, SHIFTED)
    splits = splits.assign(near=splits["value"] < limit)

    def mean_share(over: Over) -> Measurement:
        table = paired(runs, (train, prediction), DIVERGENCE, over=over)
        what = "divergence of embeddings: mean with prediction BN, as a share of that with train BN"
        return share(what, table[prediction.label], table[train.label], over=over, side="below", bound=NEAR_ZERO)

    def near(over: Over) -> Measurement:
        values = splits.groupby(over)["near"].mean().to_numpy(dtype=float)
        what = "splits on which the divergence with prediction BN is below a quarter of train BN's mean, %"
        options = {"scale": 100, "digits": 0, "signed": False}
        return Measurement(what, t_mean(values), "above", NEARLY_ALL, len(values), PLURALS[over], **options)  # type: ignore[arg-type]

    return [by_network(mean_share), by_network(near)]


def _grows_with_intensity(runs: Runs) -> list[Measurement]:
    def growth(over: Over) -> Measurement:
        mild, strong = (
            paired(runs, (ACTIVATIONS_TRAIN,), DIVERGENCE, (severity,), over=over)[ACTIVATIONS_TRAIN.label]
            for severity in (1, 5)
        )
        return mean("divergence with train BN at severity 5 minus severity 1", strong - mild, DIVERGENCE, over=over)

    return [by_network(growth)]


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
    plans=(ACTIVATIONS, METHODS, NORMALISATIONS),
    measures={
        1: _correlates_with_scores,
        2: _near_zero,
        3: all_of(
            *(
                gains(
                    ACTIVATIONS_PREDICTION,
                    other,
                    (DIVERGENCE,),
                    name=f"how much smaller it is with prediction BN than with {other.label}",
                )
                for other, _ in WITHOUT_BATCH_NORM
            )
        ),
        4: _grows_with_intensity,
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
