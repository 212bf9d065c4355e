"""C4 and I3: statistics of the first batch frozen for the rest of a split, and batches that mix corruptions.

C4  figures 6 (top) and A8, CIFAR-10-C
I3  figures 6 (bottom) and A9, ImageNet-C
"""

from __future__ import annotations

from predbn.report import GREY, HUES, SeriesStyle

from ..claims import Claim
from ..drawing import severity_figure
from ..experiment import Experiment, FigureSpec
from ..measurements import all_of, gain_share, gains
from ..plans import cifar10, imagenet
from ..runs import Runs
from ..series import PREDICTION, STRATEGY_LABELS, TRAIN, Series

MARGINAL = 0.1
"""The largest loss that counts as marginal, as a share of the gain of prediction-time BN."""


def _frozen_and_mixed(
    id: str,
    figure: str,
    on: str,
    batches: str,
    train: Series,
    prediction: Series,
    frozen: Series,
    mixtures: str,
) -> Experiment:
    """The experiment on one data set: three series of single corruptions, and those of the plan `mixtures`."""
    mixed = tuple(
        Series(f"{label}, {count} mixed", mixtures, strategy, network=train.network, mixture=f"mixed-{count}")
        for count in (5, 19)
        for strategy, label in STRATEGY_LABELS
    )
    series = (train, prediction, frozen, *mixed)
    colours = (GREY, *HUES[:2], HUES[2], HUES[2], HUES[3], HUES[3])
    looks = [SeriesStyle(each.label, hue, each.strategy == "train") for each, hue in zip(series, colours, strict=True)]

    def figures(runs: Runs) -> list[FigureSpec]:
        title = f"Frozen statistics and mixed shifts{on}"
        caption = (
            f"{batches}Frozen: the statistics of the first batch of a split are kept for the rest of it. Mixed: every "
            "image of a split has one of 5 or 19 corruptions at the same severity; these boxes are over draws of the "
            "mixture."
        )
        return [severity_figure(runs, "statistics", title, caption, series, ("ece", "accuracy", "brier"), looks)]

    return Experiment(
        id=id,
        figure=figure,
        title=f"frozen statistics, and several shifts at once{',' if on else ''}{on}",
        plans=tuple(dict.fromkeys((train.plan, prediction.plan, frozen.plan, mixtures))),
        claims=(
            Claim(
                f"{id}.1",
                "figure 6",
                "Keeping the statistics of the first batch of a split for all its other batches costs only marginally.",
                "Freezing may lose no more than a tenth of what prediction-time BN gains over train BN, on all 95 "
                "splits.",
                gain_share(
                    "loss by freezing, as a share of the gain of prediction BN over train BN",
                    (prediction, frozen),
                    (prediction, train),
                    side="below",
                    bound=MARGINAL,
                ),
            ),
            Claim(
                f"{id}.2",
                "figure 6",
                "With 5, and even with 19 corruptions in a batch, prediction-time BN beats train BN.",
                "Each image has one of the corruptions; pairs are draws of the mixture, averaged over the severities.",
                all_of(gains(mixed[1], mixed[0], over="seed"), gains(mixed[3], mixed[2], over="seed")),
            ),
        ),
        make_figures=figures,
    )


CIFAR10_FROZEN_AND_MIXED = _frozen_and_mixed(
    "C4",
    "figures 6 (top) and A8",
    on="",
    batches="",
    train=TRAIN,
    prediction=PREDICTION,
    frozen=Series("frozen prediction BN", cifar10.STRATEGIES, "frozen"),
    mixtures=cifar10.MIXTURES,
)

IMAGENET_FROZEN_AND_MIXED = _frozen_and_mixed(
    "I3",
    "figures 6 (bottom) and A9",
    on=" on ImageNet-C",
    batches="Batches of 500 images. ",
    train=Series("train BN", imagenet.METHODS, "train", network=imagenet.RESNET50),
    prediction=Series("prediction BN", imagenet.STATISTICS, "batch", network=imagenet.RESNET50),
    frozen=Series("frozen prediction BN", imagenet.STATISTICS, "frozen", network=imagenet.RESNET50),
    mixtures=imagenet.MIXTURES,
)
