"""The series by which `auto` is compared, and its gain over the better of train and prediction-time BN."""

from __future__ import annotations

from functools import lru_cache

import pandas as pd

from ..image_measurements import correct_by_split
from ..plans.auto import AUTO, LARGEST, ONE_PASS, RESNET20_PLANS, SKEWED, STREAM_BATCH, UNCALIBRATED, NetworkPlans
from ..runs import Runs
from ..series import EVERY, STRATEGY_LABELS, Series

_LABELS = {
    **dict(STRATEGY_LABELS),
    ONE_PASS: "auto, one pass",
    SKEWED: "auto, skewed",
    UNCALIBRATED: "auto, not calibrated",
}


def label_of(strategy: str) -> str:
    """The name of a strategy in figures and documents."""
    return _LABELS.get(strategy, strategy)


def with_batch_size(plans: NetworkPlans, strategy: str, size: int) -> Series:
    """A strategy in shuffled batches of one size, from the plan with the most images for that size."""
    label = f"{label_of(strategy)}, batches of {size}"
    if size != LARGEST:
        return Series(label, plans.sizes, strategy, network=plans.network, batch_size=size)
    return Series(label, plans.methods if strategy == ONE_PASS else plans.baseline, strategy, network=plans.network)


def on_same_images(plans: NetworkPlans, strategy: str, size: int) -> Series:
    """A strategy in batches of one size, on the images on which all strategies were measured."""
    label = f"{label_of(strategy)}, batches of {size}"
    return Series(label, plans.compared, strategy, network=plans.network, batch_size=size)


def with_all_classes(plans: NetworkPlans, strategy: str) -> Series:
    """A strategy in batches of 100 that hold all classes, on the images on which `auto` was measured by default."""
    plan = plans.default if strategy == AUTO or plans.default == plans.streams else plans.compared
    options = {"network": plans.network, "batch_size": STREAM_BATCH, "order": "shuffled"}
    return Series(f"{label_of(strategy)}, shuffled", plan, strategy, **options)  # type: ignore[arg-type]


def in_order(plans: NetworkPlans, strategy: str, order: str) -> Series:
    """A strategy on a stream with few classes at a time."""
    return Series(f"{label_of(strategy)}, {order}", plans.streams, strategy, network=plans.network, order=order)


def with_attack(strategy: str, plan: str, order: str) -> Series:
    """A strategy on ResNet-20 in batches of a plan with attacks: attacked, or for comparison shuffled."""
    return Series(f"{label_of(strategy)}, {order}", plan, strategy, network=RESNET20_PLANS.network, order=order)


def on_mixtures(plans: NetworkPlans, strategy: str) -> Series:
    """A strategy on batches that mix 19 corruptions."""
    return Series(label_of(strategy), plans.mixtures, strategy, network=plans.network, mixture="mixed-19")


def held_out(network: str, plan: str, strategy: str) -> Series:
    """A strategy on a network on which nothing was chosen."""
    return Series(label_of(strategy), plan, strategy, network=network)


def with_method(plans: NetworkPlans, method: str, strategy: str = ONE_PASS) -> Series:
    """A method such as an ensemble, with a strategy."""
    plan = plans.methods if strategy == ONE_PASS else plans.baseline
    return Series(f"{method}, {label_of(strategy)}", plan, strategy, method, plans.network)


@lru_cache(maxsize=8)
def gains_over_better(runs: Runs, plans: NetworkPlans) -> pd.DataFrame:
    """The accuracy of one pass minus that of the better of train and batch, for each network, split and batch size.

    Columns model, corruption, severity, batch_size, train, batch, auto, gain. Cached, because claims, tables and
    figures of the same results all need it.
    """
    smaller = sorted(int(size) for size in runs.frame(plans.sizes)["batch_size"].unique())
    keys = ["model", "corruption", "severity"]
    parts = []
    for size in (*smaller, LARGEST):
        accuracy = {
            strategy: with_batch_size(plans, strategy, size).values(runs, "accuracy", EVERY).set_index(keys)["value"]
            for strategy in ("train", "batch", ONE_PASS)
        }
        parts.append(pd.DataFrame(accuracy).dropna().reset_index().assign(batch_size=size))
    cells = pd.concat(parts, ignore_index=True)
    with_gain: pd.DataFrame = cells.assign(gain=cells[ONE_PASS] - cells[["train", "batch"]].max(axis=1))
    return with_gain


def better_of(cell: pd.Series) -> str:
    """The better of train and batch in one row of `gains_over_better`."""
    return "batch" if cell["batch"] > cell["train"] else "train"


def mean_over_networks(cells: pd.DataFrame) -> pd.DataFrame:
    """The gains averaged over the networks: columns corruption, severity, batch_size and gain."""
    keys = ["corruption", "severity", "batch_size"]
    means: pd.DataFrame = cells.groupby(keys, observed=True)["gain"].mean().reset_index()
    return means


def smallest_gain(cells: pd.DataFrame) -> pd.Series:
    """The row with the smallest gain."""
    row: pd.Series = cells.sort_values("gain").iloc[0]
    return row


def gains_in_standard_errors(runs: Runs, plans: NetworkPlans, cells: pd.DataFrame) -> pd.Series:
    """For each row of a single network with one batch size: the gain divided by its standard error over the images."""
    (size,) = cells["batch_size"].unique()
    correct = {
        strategy: correct_by_split(runs, with_batch_size(plans, strategy, int(size)))
        for strategy in ("train", "batch", ONE_PASS)
    }

    def in_standard_errors(cell: pd.Series) -> float:
        split = str(cell["corruption"]), int(cell["severity"])
        gains = correct[ONE_PASS][split].astype(float) - correct[better_of(cell)][split]
        deviation = float(gains.std())
        return float(gains.mean()) / deviation * len(gains) ** 0.5 if deviation else 0.0

    ratios: pd.Series = cells.apply(in_standard_errors, axis=1)
    return ratios
