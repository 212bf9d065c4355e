"""C4, figures 6 (top) and A8: statistics of one batch kept for all, and batches that mix kinds of shift."""

from __future__ import annotations

from predbn.report.looks import GREY, HUES, Look
from predbn.report.meanings import meaning
from predbn.report.panels import Panel

from ..claims import Claim, Measurement
from ..drawing import by_metric, severity_boxes
from ..experiment import Experiment
from ..measure import gain, share, signed
from ..runs import Runs
from ..series import METRICS, Series, paired
from .baseline import PREDICTION, TRAIN

__all__ = ["EXPERIMENT", "MARGINAL"]

MARGINAL = 0.1
KINDS = (5, 19)
FROZEN = Series("frozen prediction BN", "strategies", "frozen")
MIXED_TRAIN = tuple(Series(f"train BN, {n} mixed", "mixtures", "train", mixture=f"mixed-{n}") for n in KINDS)
MIXED = tuple(Series(f"prediction BN, {n} mixed", "mixtures", "batch", mixture=f"mixed-{n}") for n in KINDS)
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
        "Frozen: the statistics of the first batch of a split are kept for the rest of it. Mixed: every image of a "
        "split has one of 5 or 19 corruptions of one severity; boxes of mixtures are over draws of the mixture."
    )
    return [
        by_metric(
            "statistics",
            "Frozen statistics and mixed shifts",
            caption,
            lambda metric: severity_boxes(runs, SERIES, metric, LOOKS),
            ("ece", "accuracy", "brier"),
        )
    ]


EXPERIMENT = Experiment(
    id="C4",
    figure="figures 6 (top) and A8",
    title="frozen statistics, and several shifts at once",
    plans=("methods", "strategies", "mixtures"),
    claims=(
        Claim(
            "C4.1",
            "figure 6",
            "Statistics of the first batch of a split, kept for all the others, cost only marginally.",
            "Freezing may lose no more than a tenth of what prediction-time BN gains over train BN, on all 95 splits.",
            _frozen,
        ),
        Claim(
            "C4.2",
            "figure 6",
            "With 5, and even with 19 kinds of shift at once, prediction-time BN beats train BN.",
            "Each image has one of the kinds; pairs are draws of the mixture, averaged over the severities.",
            _mixed,
        ),
    ),
    draw=_draw,
)
