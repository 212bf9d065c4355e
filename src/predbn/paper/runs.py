"""A folder of results: one run a plan, opened when it is asked for."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.common import NotMeasured, PaperError
from predbn.evaluation import Results

from .networks import missing
from .plans import PLANS

__all__ = ["RESULTS", "Runs"]

RESULTS = Path("results/cifar10")
"""Where the measured results are kept, from the root of a checkout."""

_NOWHERE = np.empty(0, np.intp)


class Runs:
    """The runs of a folder, each in a folder of its plan's name."""

    def __init__(self, folder: str | Path = RESULTS) -> None:
        self.folder = Path(folder)
        self._opened: dict[str, Results] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        self._places: dict[str, dict[Hashable, npt.NDArray[np.intp]]] = {}

    def __repr__(self) -> str:
        """The folder, and what is in it."""
        return f"Runs({str(self.folder)!r}: {', '.join(self.measured) or 'nothing yet'})"

    def __getitem__(self, plan: str) -> Results:
        """The results of a plan; NotMeasured where there are none, with the reason."""
        if plan not in self._opened:
            if plan not in self.measured:
                raise NotMeasured(self._why_not(plan))
            self._opened[plan] = Results.load(self.place(plan))
        return self._opened[plan]

    def frame(self, plan: str) -> pd.DataFrame:
        """The tidy frame of a plan with the column `network`, the model without its seed, made to be chosen from."""
        if plan not in self._frames:
            frame = self[plan].frame
            networks = {model: model.rpartition("/")[0] for model in frame["model"].unique()}
            chosen_by = {name: frame[name].astype("category") for name in ("method", "strategy", "metric")}
            network = frame["model"].map(networks).astype("category")
            self._frames[plan] = frame.assign(**chosen_by, network=network)
        return self._frames[plan]

    def rows(self, plan: str, network: str, method: str, strategy: str) -> pd.DataFrame:
        """The rows of that frame which belong together; the frame is taken apart once, for claims ask often."""
        frame = self.frame(plan)
        if plan not in self._places:
            groups = frame.groupby(["network", "method", "strategy"], observed=True)
            self._places[plan] = {key: np.asarray(places) for key, places in groups.indices.items()}
        part: pd.DataFrame = frame.take(self._places[plan].get((network, method, strategy), _NOWHERE))
        return part

    @cached_property
    def measured(self) -> list[str]:
        """The plans that have been carried out to their end."""
        return [name for name in PLANS if (self.place(name) / "results.parquet").is_file()]

    def place(self, plan: str) -> Path:
        """The folder of a plan: in this one, or, where this is the home of other plans, in its own home beside it."""
        home, homes = PLANS[plan].home, {each.home for each in PLANS.values()}
        folder = self.folder.parent / home if self.folder.name in homes else self.folder
        return folder / plan

    @property
    def folders(self) -> list[Path]:
        """The folders that results are looked for in."""
        return list(dict.fromkeys([self.folder, *(self.place(name).parent for name in PLANS)]))

    def check(self) -> None:
        """Refuse a folder in which nothing is measured."""
        if not self.measured:
            raise PaperError(f"{self.folder} holds no results: make some with predbn paper run, or name another.")

    @cached_property
    def is_quick(self) -> bool:
        """Whether any of the runs is a quick one, on a part of the data."""
        return any(card.get("paper", {}).get("quick", False) for card in self.cards.values())

    @cached_property
    def cards(self) -> dict[str, dict[str, Any]]:
        """The run cards by plan."""
        return {name: dict(self[name].card) for name in self.measured}

    def _why_not(self, plan: str) -> str:
        lacking = [name for name in map(missing, PLANS[plan].full.models) if name is not None]
        if lacking:
            return f"the zoo has no {_families(lacking)}"
        return f"{self.place(plan).parent} has no run of the plan {plan}"


def _families(references: list[str]) -> str:
    """The kinds of network, without their seeds: `resnet20-cifar10 with instance, layer`."""
    kinds: dict[str, dict[str, None]] = {}
    for reference in references:
        architecture, kind, _ = reference.split("/")
        kinds.setdefault(architecture, {})[kind] = None
    return "; ".join(f"{architecture} with {', '.join(found)}" for architecture, found in kinds.items())
