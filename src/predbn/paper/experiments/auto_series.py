"""Which rows `auto` is compared by, and where it loses most."""

from __future__ import annotations

import pandas as pd

from predbn.common import NotMeasured

from ..auto_plans import AUTO, LARGEST, PAST, SKEWED, UNCALIBRATED, Arm
from ..corruption_error import right_by_split
from ..runs import Runs
from ..series import EVERY, Series

__all__ = [
    "against_the_better",
    "at",
    "best_of",
    "by_split",
    "clearly",
    "compared",
    "in_order",
    "lowest",
    "mixed",
    "named",
    "on_top",
    "with_its_past",
]

_NAMES = {
    "train": "train BN",
    "batch": "prediction BN",
    AUTO: "auto",
    SKEWED: "auto(skewed)",
    UNCALIBRATED: "auto, not calibrated",
    "ema": "ema",
    PAST: "auto_stream",
}


def named(strategy: str) -> str:
    """How a strategy is called in words."""
    return _NAMES.get(strategy, strategy)


def at(arm: Arm, strategy: str, size: int) -> Series:
    """A strategy in batches of one size, of classes as they come, on as many images as there are for that."""
    label = f"{named(strategy)}, batches of {size}"
    if size != LARGEST:
        return Series(label, arm.sizes, strategy, network=arm.network, batch_size=size)
    return Series(label, arm.methods if strategy == AUTO else arm.baseline, strategy, network=arm.network)


def compared(arm: Arm, strategy: str, size: int) -> Series:
    """The same on the images that all strategies were measured on."""
    label = f"{named(strategy)}, batches of {size}"
    return Series(label, arm.compared, strategy, network=arm.network, batch_size=size)


def in_order(arm: Arm, strategy: str, order: str) -> Series:
    """A strategy in a stream of few classes at a time."""
    return Series(f"{named(strategy)}, {order}", arm.streams, strategy, network=arm.network, order=order)


def with_its_past(arm: Arm, strategy: str, size: int) -> Series:
    """A strategy in small batches of a stream, on the images that those which remember it were measured on."""
    if arm.past is None:
        raise NotMeasured(f"no plan measures what the past of a stream tells {arm.single}")
    return Series(f"{named(strategy)}, batches of {size}", arm.past, strategy, network=arm.network, batch_size=size)


def mixed(arm: Arm, strategy: str) -> Series:
    """A strategy on batches of 19 kinds of shift."""
    return Series(named(strategy), arm.mixtures, strategy, network=arm.network, mixture="mixed-19")


def on_top(arm: Arm, method: str, strategy: str = AUTO) -> Series:
    """A method with auto."""
    plan = arm.methods if strategy == AUTO else arm.baseline
    return Series(f"{method}, {named(strategy)}", plan, strategy, method, arm.network)


def best_of(row: pd.Series) -> str:
    """The better of the two strategies that auto is to be no worse than, in one cell."""
    return "batch" if row["batch"] > row["train"] else "train"


def against_the_better(runs: Runs, arm: Arm) -> pd.DataFrame:
    """The accuracy of auto less that of the better of train and batch: a row a network, split and batch size.

    Columns model, corruption, severity, batch_size, train, batch, auto, gain.
    """
    measured = sorted(int(size) for size in runs.frame(arm.sizes)["batch_size"].unique())
    keys = ["model", "corruption", "severity"]
    parts = []
    for size in (*measured, LARGEST):
        rows = {
            strategy: at(arm, strategy, size).values(runs, "accuracy", EVERY).set_index(keys)["value"]
            for strategy in ("train", "batch", AUTO)
        }
        parts.append(pd.DataFrame(rows).dropna().reset_index().assign(batch_size=size))
    cells = pd.concat(parts, ignore_index=True)
    gained: pd.DataFrame = cells.assign(gain=cells[AUTO] - cells[["train", "batch"]].max(axis=1))
    return gained


def by_split(cells: pd.DataFrame) -> pd.DataFrame:
    """The same as means over the networks: a row a split and batch size, columns corruption to batch_size and gain."""
    keys = ["corruption", "severity", "batch_size"]
    means: pd.DataFrame = cells.groupby(keys, observed=True)["gain"].mean().reset_index()
    return means


def clearly(runs: Runs, arm: Arm, cells: pd.DataFrame) -> pd.Series:
    """For each cell of a single network in batches of one size, what is gained in standard errors over its images."""
    (size,) = cells["batch_size"].unique()
    right = {name: right_by_split(runs, at(arm, name, int(size))) for name in ("train", "batch", AUTO)}

    def errors(cell: pd.Series) -> float:
        split = str(cell["corruption"]), int(cell["severity"])
        gains = right[AUTO][split].astype(float) - right[best_of(cell)][split]
        spread = float(gains.std())
        return float(gains.mean()) / spread * len(gains) ** 0.5 if spread else 0.0

    found: pd.Series = cells.apply(errors, axis=1)
    return found


def lowest(cells: pd.DataFrame) -> pd.Series:
    """The row where least is gained."""
    row: pd.Series = cells.sort_values("gain").iloc[0]
    return row
