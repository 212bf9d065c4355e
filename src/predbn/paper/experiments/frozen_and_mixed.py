"""What C4 and I3 share: statistics of one batch kept for all, and batches that mix kinds of shift."""

from __future__ import annotations

from predbn.report import GREY, HUES, Look, Panel, meaning

from ..claims import Claim, Measurement
from ..drawing import by_metric, severity_boxes
from ..experiment import Experiment
from ..measure import gain, share, signed
from ..networks import WITH_BATCH_NORM
from ..runs import Runs
from ..series import METRICS, Series, paired

__all__ = ["MARGINAL", "kept_and_mixed"]

MARGINAL = 0.1
KINDS = (5, 19)


def kept_and_mixed(
    id: str,
    figure: str,
    title: str,
    *,
    heading: str,
    caption: str,
    train: Series,
    prediction: Series,
    frozen: Series,
    mixtures: str,
    network: str = WITH_BATCH_NORM,
) -> Experiment:
    """The experiment on one data set: three series of single shifts, and those of the plan `mixtures`."""
    mixed_train, mixed = (
        tuple(Series(f"{name}, {n} mixed", mixtures, strategy, network=network, mixture=f"mixed-{n}") for n in KINDS)
        for strategy, name in (("train", "train BN"), ("batch", "prediction BN"))
    )
    series = (train, prediction, frozen, mixed_train[0], mixed[0], mixed_train[1], mixed[1])
    looks = tuple(
        Look(each.label, colour, each.strategy == "train")
        for each, colour in zip(series, (GREY, *HUES[:2], HUES[2], HUES[2], HUES[3], HUES[3]), strict=True)
    )

    def lost_by_freezing(runs: Runs) -> list[Measurement]:
        found = []
        for metric in METRICS:
            table = signed(paired(runs, (train, prediction, frozen), metric), metric)
            lost, gained = table[prediction.label] - table[frozen.label], table[prediction.label] - table[train.label]
            what = f"{meaning(metric).label}: what freezing loses, of what prediction BN gains over train BN"
            found.append(share(what, lost, gained, side="below", bound=MARGINAL))
        return found

    def gained_on_mixtures(runs: Runs) -> list[Measurement]:
        pairs = list(zip(mixed, mixed_train, strict=True))
        return [gain(runs, batch, plain, metric, over="seed") for batch, plain in pairs for metric in METRICS]

    def draw(runs: Runs) -> list[Panel]:
        boxes = by_metric(
            "statistics",
            heading,
            caption,
            lambda metric: severity_boxes(runs, series, metric, looks),
            ("ece", "accuracy", "brier"),
        )
        return [boxes]

    return Experiment(
        id=id,
        figure=figure,
        title=title,
        plans=tuple(dict.fromkeys((train.plan, prediction.plan, frozen.plan, mixtures))),
        claims=(
            Claim(
                f"{id}.1",
                "figure 6",
                "Statistics of the first batch of a split, kept for all the others, cost only marginally.",
                "Freezing may lose no more than a tenth of what prediction-time BN gains over train BN, on all 95 "
                "splits.",
                lost_by_freezing,
            ),
            Claim(
                f"{id}.2",
                "figure 6",
                "With 5, and even with 19 kinds of shift at once, prediction-time BN beats train BN.",
                "Each image has one of the kinds; pairs are draws of the mixture, averaged over the severities.",
                gained_on_mixtures,
            ),
        ),
        draw=draw,
    )
