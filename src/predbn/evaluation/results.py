"""Results in Python: load, select, summarise, compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from predbn.common import EvaluationError

from .mce import mce_table
from .store import Store
from .tables import KEYS, fits_table

__all__ = ["Results"]

_SERIES = ("model", "method", "strategy", "batch_size", "order", "seed", "metric")


@dataclass(frozen=True, eq=False)
class Results:
    """The tables of a run.

    frame        one row per (model, method, strategy, corruption, severity, batch_size, order, seed, metric): `value`
    reliability  the same without the metric, one row a bin: bin, lower, upper, count, confidence, accuracy
    fits         temperatures and eps found on validation data: model, strategy, batch_size, what, value
    card         the run card
    hits         which images were right, one row a (model, …, seed), where the plan wanted it; `hits.unpack` reads them
    """

    frame: pd.DataFrame
    reliability: pd.DataFrame
    fits: pd.DataFrame = field(default_factory=pd.DataFrame)
    card: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    hits: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """The results in a run's folder, also of a run that is not finished."""
        store = Store(folder)
        card = store.card()
        if card is None:
            raise EvaluationError(f"{folder} holds no run: name a folder that predbn evaluate has written to.")
        tables = {name: table.to_pandas() for name, table in store.tables().items()}
        if tables["results"].empty:
            raise EvaluationError(f"{folder} holds no results yet: run the same predbn evaluate again, to its end.")
        fits = fits_table(store.fits()).to_pandas()
        return cls(tables["results"], tables["reliability"], fits, card, Path(folder), tables["hits"])

    def __repr__(self) -> str:
        """How many rows, and what is in them."""
        counts = ", ".join(f"{self.frame[key].nunique()} {key}" for key in (*KEYS, "metric"))
        return f"Results({len(self.frame)} rows: {counts})"

    def filter(self, **chosen: Any) -> Results:
        """The rows with these values: ``filter(strategy="batch", severity=[3, 4, 5])``.

        A value of `model` may be a pattern, where * stands for anything.
        """
        frame, reliability, hits = self.frame, self.reliability, self.hits
        for key, value in chosen.items():
            if key not in (*KEYS, "metric"):
                raise EvaluationError(f"results have no key {key!r}: they have {', '.join((*KEYS, 'metric'))}.")
            wanted = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
            there = frame[key].unique().tolist()
            kept = [each for each in there if any(_fits(key, each, one) for one in wanted)]
            if not kept:
                listed, asked = (", ".join(map(str, each)) for each in (there, wanted))
                raise EvaluationError(f"no result has {key} {asked}: there are {listed}.")
            frame = frame[frame[key].isin(kept)]
            if key != "metric":
                reliability = reliability[reliability[key].isin(kept)]
                hits = hits[hits[key].isin(kept)] if len(hits) else hits
        tables = {"frame": frame, "reliability": reliability, "hits": hits}
        return replace(self, **{name: table.reset_index(drop=True) for name, table in tables.items()})

    def to_pandas(self) -> pd.DataFrame:
        """A copy of the tidy frame."""
        copied: pd.DataFrame = self.frame.copy()
        return copied

    def by_severity(self) -> pd.DataFrame:
        """The paper's box plots: for each series and severity, min, quartiles, max and mean over the corruptions.

        Quartiles are interpolated linearly. Severity 0 is the clean split, alone.
        """
        keys = ["model", "method", "strategy", "batch_size", "order", "seed", "metric", "severity"]
        values = self.frame.groupby(keys)["value"]
        named = {"min": 0.0, "q1": 0.25, "median": 0.5, "q3": 0.75, "max": 1.0}
        table = pd.DataFrame({name: values.quantile(share) for name, share in named.items()})
        summary: pd.DataFrame = table.assign(mean=values.mean(), corruptions=values.size()).reset_index()
        return summary

    def means(self) -> pd.DataFrame:
        """The mean of every series over all shifted splits, and the value on clean data."""
        keys = list(_SERIES)
        clean = self.frame["severity"] == 0
        shifted = self.frame[~clean].groupby(keys)["value"]
        parts = {"clean": self.frame[clean].groupby(keys)["value"].mean(), "shifted": shifted.mean()}
        table: pd.DataFrame = pd.DataFrame({**parts, "splits": shifted.size()}).reset_index()
        return table

    def mce(self) -> pd.DataFrame:
        """The mean corruption error in per cent, one row a series of ImageNet that has the 15 corruptions at all
        severities, with a 95 % bootstrap interval over images (low, high) where hits were kept; else none."""
        known = self.card.get("data", {})
        is_imagenet = known.get("benchmark") == "ImageNet"
        return mce_table(self.frame if is_imagenet else self.frame[:0], self.hits, int(known.get("images", 0)))


def _fits(key: str, there: object, wanted: object) -> bool:
    if key == "model" and isinstance(wanted, str) and there != wanted and "*" in wanted:
        return fnmatchcase(str(there), wanted)
    return there == wanted
