"""C4 and I3: statistics of the first batch frozen for the rest of a split, and batches that mix corruptions.

C4  figures 5 (top) and A8, CIFAR-10-C
I3  figures 5 (bottom) and A9, ImageNet-C
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from predbn.report import GREY, HUES, SeriesStyle, metric_info

from ..claims import Measure, Measurement
from ..drawing import severity_figure
from ..experiment import Experiment, FigureSpec, experiment
from ..measurements import all_of, gain_share, gains, mean, signed
from ..plans import cifar10, imagenet
from ..runs import Runs
from ..series import METRICS, PREDICTION, SHIFTED, STRATEGY_LABELS, TOP, TRAIN, Series, Severities, paired

CALIBRATION = ("ece", "brier")
"""What the paper's sentence on several corruptions is about: it says "calibration", and shows ECE."""
MARGINAL = 0.1
"""The largest loss that counts as marginal, as a share of the gain of prediction-time BN."""


def _frozen_and_mixed(
    id: str,
    on: str,
    batches: str,
    train: Series,
    prediction: Series,
    frozen: Series,
    mixtures: str,
    mixtures_of_levels: str,
    levels: str,
) -> Experiment:
    """The experiment on one data set: three series of single corruptions, and those of the two plans of mixtures."""

    def mixed(plan: str, suffix: str, also: str) -> tuple[Series, ...]:
        return tuple(
            Series(f"{label}, {count} {also}", plan, strategy, network=train.network, mixture=f"mixed-{count}{suffix}")
            for count in (5, 19)
            for strategy, label in STRATEGY_LABELS
        )

    kinds = mixed(mixtures, "", "mixed")
    single = replace(prediction, label="prediction BN, one corruption in a batch")
    kinds_and_levels = mixed(mixtures_of_levels, "-levels", "mixed, and levels")

    def gains_of(
        mixed: tuple[Series, ...], what: str, severities: Severities, metrics: Sequence[str] = METRICS
    ) -> Measure:
        return all_of(
            *(
                gains(
                    prediction,
                    train,
                    metrics,
                    severities,
                    over="seed",
                    name=f"gain of prediction BN with {count} corruptions {what}",
                )
                for count, (train, prediction) in zip((5, 19), (mixed[:2], mixed[2:]), strict=True)
            )
        )

    def lost_by_mixing(runs: Runs) -> list[Measurement]:
        """What 19 corruptions in one batch cost, against batches with one corruption each."""
        measurements = []
        for metric in CALIBRATION:
            several = signed(paired(runs, (kinds[3],), metric, over="seed"), metric)[kinds[3].label]
            alone = single.values(runs, metric, SHIFTED)
            models = kinds[3].values(runs, metric, SHIFTED)["model"].unique()
            mean_alone = metric_info(metric).sign * float(alone[alone["model"].isin(models)]["value"].mean())
            what = f"{metric_info(metric).label}: what prediction BN loses if 19 corruptions at one level are mixed"
            measurements.append(mean(what, mean_alone - several, metric, over="seed"))
        return measurements

    def figure(name: str, title: str, caption: str, mixed: tuple[Series, ...]) -> FigureSpec:
        series = (train, prediction, frozen, *mixed)
        colours = (GREY, *HUES[:2], HUES[2], HUES[2], HUES[3], HUES[3])
        looks = [
            SeriesStyle(line.label, hue, line.strategy == "train") for line, hue in zip(series, colours, strict=True)
        ]
        return severity_figure(name, f"{title}{on}", caption, series, ("ece", "accuracy", "brier"), looks)

    return experiment(
        id,
        plans=tuple(dict.fromkeys((train.plan, prediction.plan, frozen.plan, mixtures, mixtures_of_levels))),
        measures={
            1: gain_share(
                "what freezing gains (+) or loses (−), as a share of the gain of prediction BN",
                (frozen, prediction),
                (prediction, train),
                side="above",
                bound=-MARGINAL,
            ),
            2: gains_of(kinds, "at one level", SHIFTED),
            3: gains_of(kinds_and_levels, "at five levels", TOP, CALIBRATION),
            4: gains_of(kinds_and_levels, "at five levels", TOP, ("accuracy",)),
            5: lost_by_mixing,
        },
        figures=[
            figure(
                "statistics",
                "Frozen statistics and mixed shifts",
                f"{batches}Frozen: the statistics of the first batch of a split are kept for the rest of it. Mixed: "
                "every image of a batch has one of 5 or 19 corruptions at the same severity; these boxes are over "
                "draws of the mixture.",
                kinds,
            ),
            figure(
                "levels",
                "Frozen statistics and shifts of mixed kinds and levels",
                f"Like the figure before, but every image of a mixed batch is at {levels}.",
                kinds_and_levels,
            ),
        ],
    )


CIFAR10_FROZEN_AND_MIXED = _frozen_and_mixed(
    "C4",
    on="",
    batches="",
    train=TRAIN,
    prediction=PREDICTION,
    frozen=Series("frozen prediction BN", cifar10.STRATEGIES, "frozen"),
    mixtures=cifar10.MIXTURES,
    mixtures_of_levels=cifar10.MIXTURES_OF_LEVELS,
    levels="a level from 1 to the severity",
)

IMAGENET_FROZEN_AND_MIXED = _frozen_and_mixed(
    "I3",
    on=" on ImageNet-C",
    batches="Batches of 500 images. ",
    train=Series("train BN", imagenet.METHODS, "train", network=imagenet.RESNET50),
    prediction=Series("prediction BN", imagenet.STATISTICS, "batch", network=imagenet.RESNET50),
    frozen=Series("frozen prediction BN", imagenet.STATISTICS, "frozen", network=imagenet.RESNET50),
    mixtures=imagenet.MIXTURES,
    mixtures_of_levels=imagenet.MIXTURES_OF_LEVELS,
    levels="any of the five levels",
)
