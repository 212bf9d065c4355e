"""I3, figures 6 (bottom) and A9: frozen statistics and mixed shifts on ImageNet-C."""

from __future__ import annotations

from predbn.report.looks import GREY, HUES, Look
from predbn.report.meanings import meaning
from predbn.report.panels import Panel

from ..claims import Claim, Measurement
from ..drawing import by_metric, severity_boxes
from ..experiment import Experiment
from ..imagenet import METHODS, MIXTURES, RESNET50, STATISTICS
from ..measure import gain, share, signed
from ..runs import Runs
from ..series import METRICS, Series, paired

__all__ = ["EXPERIMENT", "MARGINAL"]

MARGINAL = 0.1
KINDS = (5, 19)
TRAIN = Series("train BN", METHODS, "train", network=RESNET50)
PREDICTION = Series("prediction BN", STATISTICS, "batch", network=RESNET50)
FROZEN = Series("frozen prediction BN", STATISTICS, "frozen", network=RESNET50)
MIXED_TRAIN, MIXED = (
    tuple(Series(f"{name}, {n} mixed", MIXTURES, strategy, network=RESNET50, mixture=f"mixed-{n}") for n in KINDS)
    for strategy, name in (("train", "train BN"), ("batch", "prediction BN"))
)
SERIES = (TRAIN, PREDICTION, FROZEN, MIXED_TRAIN[0], MIXED[0], MIXED_TRAIN[1], MIXED[1])
LOOKS = tuple(
    Look(series.label, colour, series.strategy == "train")
    for series, colour in zip(SERIES, (GREY, *HUES[:2], HUES[2], HUES[2], HUES[3], HUES[3]), strict=True)
)


def _frozen(runs: Runs) -> list[Measurement]:
    found = []
    for metric in METRICS:
        table = signed(paired(runs, (TRAIN, PREDICTION, FROZEN), metric), metric)
        lost, gained = table[PREDICTION.label] - table[FROZEN.label], table[PREDICTION.label] - table[TRAIN.label]
        what = f"{meaning(metric).label}: what freezing loses, of what prediction BN gains over train BN"
        found.append(share(what, lost, gained, side="below", bound=MARGINAL))
    return found


def _mixed(runs: Runs) -> list[Measurement]:
    pairs = zip(MIXED, MIXED_TRAIN, strict=True)
    return [gain(runs, batch, train, metric, over="seed") for batch, train in pairs for metric in METRICS]


def _draw(runs: Runs) -> list[Panel]:
    caption = (
        "Batches of 500 images. Frozen: the statistics of the first batch of a split are kept for the rest of it. "
        "Mixed: every image of a split has one of 5 or 19 corruptions of one severity; their boxes are over draws."
    )
    return [
        by_metric(
            "statistics",
            "Frozen statistics and mixed shifts on ImageNet-C",
            caption,
            lambda metric: severity_boxes(runs, SERIES, metric, LOOKS),
            ("ece", "accuracy", "brier"),
        )
    ]


EXPERIMENT = Experiment(
    id="I3",
    figure="figures 6 (bottom) and A9",
    title="frozen statistics, and several shifts at once, on ImageNet-C",
    plans=(METHODS, STATISTICS, MIXTURES),
    claims=(
        Claim(
            "I3.1",
            "figure 6",
            "Statistics of the first batch of a split, kept for all the others, cost only marginally.",
            "Freezing may lose no more than a tenth of what prediction-time BN gains over train BN, on all 95 splits.",
            _frozen,
        ),
        Claim(
            "I3.2",
            "figure 6",
            "With 5, and even with 19 kinds of shift at once, prediction-time BN beats train BN.",
            "Each image has one of the kinds; pairs are draws of the mixture, averaged over the severities.",
            _mixed,
        ),
    ),
    draw=_draw,
)
