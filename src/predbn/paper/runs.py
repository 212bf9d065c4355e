"""The results of the plans, loaded from their folders when they are first needed."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from predbn.common import NotMeasured, PaperError
from predbn.evaluation import Results

from .networks import missing_weights
from .plans.base import PLANS


class Runs:
    """The results in a folder, one subfolder per plan.

    If the folder is named like a data set (`results/cifar10`), the plans of the other data sets are looked for in the
    folders next to it (`results/criteo`, `results/imagenet`).

    seed  for the intervals that are bootstrapped; no verdict may depend on it
    """

    def __init__(self, folder: str | Path, *, seed: int = 0) -> None:
        self.folder = Path(folder)
        self.seed = seed
        self._results: dict[str, Results] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        self._groups: dict[str, dict[Hashable, pd.DataFrame]] = {}

    def __getitem__(self, plan: str) -> Results:
        """The results of a plan; raises NotMeasured with the reason if there are none."""
        if plan not in self._results:
            if plan not in self.measured:
                raise NotMeasured(self._why_not_measured(plan))
            self._results[plan] = Results.load(self.plan_folder(plan))
        return self._results[plan]

    def table(self, plan: str, name: str) -> pd.DataFrame:
        """A table of the results of a plan."""
        table: pd.DataFrame = getattr(self[plan], name)
        return table

    def frame(self, plan: str) -> pd.DataFrame:
        """The tidy results of a plan, with the column `network`: the model without its seed."""
        if plan not in self._frames:
            frame = self.table(plan, "frame")
            networks = {model: model.rpartition("/")[0] for model in frame["model"].unique()}
            # Rows are selected by these columns many times, and categories are compared faster than strings.
            categories = {name: frame[name].astype("category") for name in ("method", "strategy", "metric")}
            network = frame["model"].map(networks).astype("category")
            self._frames[plan] = frame.assign(**categories, network=network)
        return self._frames[plan]

    def rows(self, plan: str, network: str, method: str, strategy: str) -> pd.DataFrame:
        """The rows of `frame` with this network, method and strategy.

        The frame is grouped once per plan, because the claims make hundreds of such selections.
        """
        frame = self.frame(plan)
        if plan not in self._groups:
            self._groups[plan] = dict(iter(frame.groupby(["network", "method", "strategy"], observed=True)))
        rows: pd.DataFrame = self._groups[plan].get((network, method, strategy), frame.iloc[:0])
        return rows

    @cached_property
    def measured(self) -> list[str]:
        """The plans that have results."""
        return [name for name in PLANS if (self.plan_folder(name) / "results.parquet").is_file()]

    def plan_folder(self, plan: str) -> Path:
        return (self.root / PLANS[plan].data_set if self._has_data_sets else self.folder) / plan

    @property
    def folders(self) -> list[Path]:
        """The folders in which results are looked for."""
        return list(dict.fromkeys([self.folder, *(self.plan_folder(name).parent for name in PLANS)]))

    def check(self) -> None:
        """Raise PaperError if there are no results at all."""
        if not self.measured:
            raise PaperError(
                f"{self.folder} has no results: make some with predbn paper run, or name another folder; a clone of "
                "predbn has the measured ones."
            )

    @cached_property
    def is_quick(self) -> bool:
        """Whether any of the runs is a quick one, on part of the data."""
        return any(card.get("paper", {}).get("quick", False) for card in self.cards.values())

    @cached_property
    def reduced(self) -> dict[str, str]:
        """The plans that were run on a part of the images with `--images`, and on which."""
        data = {name: card["data"] for name, card in self.cards.items() if card.get("paper", {}).get("images")}
        return {name: f"{card['images']:,} of {card['of']:,} images" for name, card in data.items()}

    def size(self, plan: str) -> str:
        """The number of images or rows of a plan, from its card."""
        if plan not in self.measured:
            return "not measured"
        data = self.cards[plan].get("data", {})
        every = next((f"{data[unit]:,} {unit}" for unit in ("images", "rows") if unit in data), "")
        return self.reduced.get(plan, every)

    @property
    def root(self) -> Path:
        """The folder of texts about all results: that above the data sets, if `folder` is named like one."""
        return self.folder.parent if self._has_data_sets else self.folder

    @property
    def _has_data_sets(self) -> bool:
        """Whether the results are in one folder per data set."""
        return self.folder.name in {plan.data_set for plan in PLANS.values()}

    @cached_property
    def cards(self) -> dict[str, dict[str, Any]]:
        return {name: dict(self[name].card) for name in self.measured}

    def _why_not_measured(self, plan: str) -> str:
        missing = [name for name in map(missing_weights, PLANS[plan].full.models) if name is not None]
        if missing:
            return f"the zoo has no {', '.join(missing)}"
        return f"{self.plan_folder(plan).parent} has no results of the plan {plan}"
