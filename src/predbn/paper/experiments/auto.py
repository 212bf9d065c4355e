"""auto: as much of the batch as is not chance. It is not in the paper, whose limits it is an answer to.

The claims are what it was built to do. They are asked of results in the same way as the paper's, and a target that is
missed is reported as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from predbn.evaluation import Split
from predbn.report import meaning

from ..auto_plans import (
    ARMS,
    AUTO,
    CIFAR_ARM,
    IMAGENET_ARMS,
    IMAGENET_PRIORS,
    LARGEST,
    ORDERS,
    PAST,
    PAST_SIZES,
    SKEWED,
    STREAM,
    Arm,
)
from ..claims import Claim, Measurement
from ..corruption_error import gain_by_image
from ..experiment import Experiment
from ..measure import gain, mean
from ..runs import Runs
from ..series import EVERY, Series
from .auto_figures import draw
from .auto_series import (
    against_the_better,
    at,
    best_of,
    by_split,
    compared,
    in_order,
    lowest,
    mixed,
    on_top,
    with_its_past,
)

__all__ = ["EXPERIMENT"]

ON_AVERAGE, AT_WORST = 0.005, 0.01
AHEAD = {LARGEST: 0.02, 20: 0.05}
WITHIN = 0.01

Measure = Callable[[Runs], Sequence[Measurement]]


def _never_worse(runs: Runs) -> list[Measurement]:
    """With ten networks: where they lose most on average, and how much each loses at its worst."""
    cells = against_the_better(runs, CIFAR_ARM)
    keys = ["corruption", "severity", "batch_size"]
    worst = lowest(by_split(cells))[keys]
    there = cells[(cells[keys] == worst).all(axis=1)]
    split = Split(str(worst["corruption"]), int(worst["severity"]))
    where = f"{str(split).replace('_', ' ')}, batches of {worst['batch_size']}"
    each = cells.groupby("model", observed=True)["gain"].min()
    over = "accuracy: auto over the better of train and prediction BN"
    return [
        mean(
            f"{over}, where it is lowest on average ({where})",
            there["gain"],
            "accuracy",
            over="model",
            bound=-ON_AVERAGE,
        ),
        mean(f"{over}, where it is lowest for a network", each, "accuracy", over="model", bound=-AT_WORST),
    ]


def _never_worse_on_imagenet(runs: Runs) -> list[Measurement]:
    """With one network: where it loses most, and what other images would say of that."""
    found = []
    for arm in IMAGENET_ARMS:
        cells = against_the_better(runs, arm)
        worst = lowest(cells)
        size, split = int(worst["batch_size"]), (str(worst["corruption"]), int(worst["severity"]))
        pair = at(arm, AUTO, size), at(arm, best_of(worst), size)
        found.append(_of(arm, gain_by_image(runs, *pair, split, "above", -AT_WORST)))
    return found


def _of(arm: Arm, measured: Measurement) -> Measurement:
    return replace(measured, what=f"{arm.single}: {measured.what}")


def _gains(
    pairs: Iterable[tuple[Arm, Series, Series, float]], metrics: Sequence[str], runs: Runs, **options: object
) -> list[Measurement]:
    return [
        _of(arm, gain(runs, first, second, metric, bound=bound, **options))  # type: ignore[arg-type]
        for arm, first, second, bound in pairs
        for metric in metrics
    ]


def _over_batch(arms: Sequence[Arm], sizes: Iterable[int], metrics: Sequence[str], ahead: dict[int, float]) -> Measure:
    pairs = [(arm, at(arm, AUTO, size), at(arm, "batch", size), ahead.get(size, 0.0)) for arm in arms for size in sizes]
    return partial(_gains, pairs, metrics)


def _over_prior(runs: Runs) -> list[Measurement]:
    pairs = [
        (arm, compared(arm, AUTO, size), compared(arm, prior, size), 0.0)
        for arm in IMAGENET_ARMS
        for size in (20, 5, 1)
        for prior in IMAGENET_PRIORS
    ]
    return _gains(pairs, ("accuracy",), runs)


def _in_streams(strategy: str) -> Measure:
    pairs = [
        (arm, in_order(arm, strategy, order), in_order(arm, "train", order), -WITHIN)
        for arm in ARMS
        for order in ORDERS
    ]
    return partial(_gains, pairs, ("accuracy",), severities=EVERY)


def _in_mixtures(runs: Runs) -> list[Measurement]:
    pairs = [(arm, mixed(arm, AUTO), mixed(arm, "batch"), 0.0) for arm in ARMS]
    return _gains(pairs, ("accuracy",), runs, over="seed")


def _with_methods(runs: Runs) -> list[Measurement]:
    ensemble = [(CIFAR_ARM, on_top(CIFAR_ARM, "ensemble"), on_top(CIFAR_ARM, "vanilla"), 0.0)]
    scaled = [(arm, on_top(arm, "temperature"), on_top(arm, "vanilla"), 0.0) for arm in ARMS]
    return [*_gains(ensemble, ("accuracy", "brier"), runs), *_gains(scaled, ("ece",), runs)]


def _with_the_past(runs: Runs) -> list[Measurement]:
    pairs = [
        (CIFAR_ARM, with_its_past(CIFAR_ARM, PAST, size), with_its_past(CIFAR_ARM, other, size), 0.0)
        for size in PAST_SIZES
        for other in (AUTO, "ema")
    ]
    return _gains(pairs, ("accuracy",), runs, severities=EVERY)


def _claim(number: int, statement: str, reading: str, measure: Measure) -> Claim:
    return Claim(f"auto.{number}", "not in the paper", statement, reading, measure)


EXPERIMENT = Experiment(
    id="auto",
    figure="not in the paper",
    title="statistics that move by what is not chance",
    page="docs/auto.md",
    plans=tuple(dict.fromkeys(plan for arm in ARMS for plan in arm.plans)),
    claims=(
        _claim(
            1,
            "On CIFAR-10, auto is never worse than the better of train and prediction-time BN.",
            "Over clean images and all 95 splits in batches of 1, 2, 5, 20, 100 and 500: where the ten networks lose "
            f"most on average, half a point at most; where each of them loses most, on average {AT_WORST * 100:.0f} "
            "point at most. The better of the two is known only afterwards, and the worst of 576 is sought, so that "
            "chance alone makes for a loss.",
            _never_worse,
        ),
        _claim(
            2,
            "On ImageNet, auto is never worse than the better of train and prediction-time BN.",
            f"As auto.1 with one network of a kind: at most {AT_WORST * 100:.0f} point where it loses most, with an "
            "interval over images.",
            _never_worse_on_imagenet,
        ),
        _claim(
            3,
            "On CIFAR-10-C, auto is ahead of prediction-time BN: by 2 points in batches of 500, by 5 in batches of 20.",
            "Mean accuracy over 95 splits.",
            _over_batch((CIFAR_ARM,), (LARGEST, 20), ("accuracy",), AHEAD),
        ),
        _claim(
            4,
            "On ImageNet-C, auto is more accurate than prediction-time BN in batches of 500 and of 100.",
            "Mean accuracy over 95 splits.",
            _over_batch(IMAGENET_ARMS, (LARGEST, STREAM), ("accuracy",), {}),
        ),
        _claim(
            5,
            "On ImageNet-C, auto is more accurate than prior, a fixed mixture, in batches of 20, 5 and 1.",
            "Mean accuracy over 95 splits, against prior with N = 16 and 64.",
            _over_prior,
        ),
        _claim(
            6,
            "On CIFAR-10-C, the Brier score and ECE of auto are better than those of prediction-time BN.",
            "Means over 95 splits, in batches of 500, 100, 20 and 5.",
            _over_batch((CIFAR_ARM,), (LARGEST, STREAM, 20, 5), ("brier", "ece"), {}),
        ),
        _claim(
            7,
            "On ImageNet-C, the Brier score and ECE of auto are better than those of prediction-time BN.",
            "As auto.6.",
            _over_batch(IMAGENET_ARMS, (LARGEST, STREAM, 20, 5), ("brier", "ece"), {}),
        ),
        _claim(
            8,
            "In streams of few classes at a time, auto comes within a point of train BN.",
            "Classes sorted, or in bursts drawn from Dirichlet(0.1), in batches of 100, clean images among them.",
            _in_streams(AUTO),
        ),
        _claim(
            9,
            "In streams of few classes at a time, auto comes within a point of train BN where it is told of them.",
            "As auto.8, with skewed=True.",
            _in_streams(SKEWED),
        ),
        _claim(
            10,
            "On batches of 100 that mix 19 kinds of shift, auto is more accurate than prediction-time BN.",
            "Pairs are draws of the mixture, averaged over the severities.",
            _in_mixtures,
        ),
        _claim(
            11,
            "Ensembles and temperature scaling help on top of auto.",
            f"In batches of 500, over 95 splits: an ensemble in accuracy and Brier score, a temperature in "
            f"{meaning('ece').label}.",
            _with_methods,
        ),
        _claim(
            12,
            "Going by the past of its stream, auto is more accurate than by single images or five, and than a moving "
            "average.",
            "auto_stream, on clean images and 19 shifts at severity 3.",
            _with_the_past,
        ),
    ),
    draw=draw,
)
