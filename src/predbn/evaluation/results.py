"""Results in Python: load, select, summarise, compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.common import EvaluationError, PredbnError
from predbn.data import SEVERITIES
from predbn.metrics import ALEXNET_ERRORS, bootstrap_difference, bootstrap_mean, mce, paired_interval

from .scoring import unpack_hits
from .setting import Setting
from .store import Store
from .tables import KEYS

RESAMPLES = 2_000
"""Of a bootstrap over images: there are so many images that more resamples change nothing."""
_SERIES = ["model", "method", "strategy", "batch_size", "order", "seed"]
_MCE_SPLITS = len(ALEXNET_ERRORS) * len(SEVERITIES)


@dataclass(frozen=True, eq=False)
class Results:
    """The tables of a run.

    frame        one row per (model, method, strategy, corruption, severity, batch_size, order, seed, metric): `value`
    reliability  the same without the metric, one row per bin: bin, lower, upper, count, confidence, accuracy
    fits         temperatures fitted on validation data: model, strategy, batch_size, what, value
    card         the run card
    hits         which images were predicted correctly, one row per (model, …, seed), if the plan wanted it;
                 `unpack_hits` reads them
    predictions  what was predicted for each image (`Predictions`), one row per (model, …, seed), if the plan has a
                 reference
    examples     one picture under each shift: corruption, severity, png; no rows if the run has none
    """

    frame: pd.DataFrame
    reliability: pd.DataFrame
    fits: pd.DataFrame = field(default_factory=pd.DataFrame)
    card: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    hits: pd.DataFrame = field(default_factory=pd.DataFrame)
    predictions: pd.DataFrame = field(default_factory=pd.DataFrame)
    examples: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """The results in the folder of a run, finished or not."""
        store = Store(folder)
        card = store.card()
        if card is None:
            raise EvaluationError(f"{folder} has no run in it: name a folder that predbn evaluate has written to.")
        tables = {name: table.to_pandas() for name, table in store.tables().items()}
        if tables["results"].empty:
            raise EvaluationError(f"{folder} has no results yet: run the same predbn evaluate again, to its end.")
        examples = store.examples().to_pandas()
        return cls(tables.pop("results"), card=card, folder=Path(folder), examples=examples, **tables)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.frame[key].nunique()} {key}" for key in (*KEYS, "metric"))
        return f"Results({len(self.frame)} rows: {counts})"

    def filter(self, **selection: Any) -> Results:
        """The rows with these values: ``filter(strategy="batch", severity=[3, 4, 5])``.

        A value of `model` may be a pattern in which * matches anything.
        """
        frame, others = (
            self.frame,
            {"reliability": self.reliability, "hits": self.hits, "predictions": self.predictions},
        )
        for key, value in selection.items():
            if key not in (*KEYS, "metric"):
                raise EvaluationError(f"results have no key {key!r}: they have {', '.join((*KEYS, 'metric'))}.")
            wanted = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
            present = frame[key].unique().tolist()
            kept = [name for name in present if any(_matches(key, name, pattern) for pattern in wanted)]
            if not kept:
                listed, asked = (", ".join(map(str, names)) for names in (present, wanted))
                raise EvaluationError(f"no result has {key} {asked}: there are {listed}.")
            frame = frame[frame[key].isin(kept)]
            if key != "metric":
                others = {name: rows[rows[key].isin(kept)] if len(rows) else rows for name, rows in others.items()}
        tables = {"frame": frame, **others}
        return replace(self, **{name: table.reset_index(drop=True) for name, table in tables.items()})

    def by_severity(self) -> pd.DataFrame:
        """The paper's box plots: for each series and severity, min, quartiles, max and mean over the corruptions.

        Quartiles are interpolated linearly. Severity 0 is the clean split alone.
        """
        values = self.frame.groupby([*_SERIES, "metric", "severity"])["value"]
        quantiles = {"min": 0.0, "q1": 0.25, "median": 0.5, "q3": 0.75, "max": 1.0}
        table = pd.DataFrame({name: values.quantile(share) for name, share in quantiles.items()})
        summary: pd.DataFrame = table.assign(mean=values.mean(), corruptions=values.size()).reset_index()
        return summary

    def mce(self) -> pd.DataFrame:
        """The mean corruption error on ImageNet in per cent: mce, low and high.

        One row per series that has all 15 corruptions at all five severities; no row for other data. low and high are
        the bounds of a 95 % bootstrap interval over images, or NaN if hits were not kept.
        """
        data = self.card.get("data", {})
        frame = self.frame if data.get("benchmark") == "ImageNet" else self.frame[:0]
        is_counted = frame["corruption"].isin(list(ALEXNET_ERRORS)) & (frame["severity"] > 0)
        rows = []
        for series, part in frame[is_counted & (frame["metric"] == "accuracy")].groupby(_SERIES, sort=False):
            if len(part) != _MCE_SPLITS:
                continue
            errors = {str(name): float(1 - values.mean()) for name, values in part.groupby("corruption")["value"]}
            row = {**dict(zip(_SERIES, series, strict=True)), "mce": mce(errors), "low": np.nan, "high": np.nan}
            hits = self.hits.merge(pd.DataFrame([row])[_SERIES], on=_SERIES) if len(self.hits) else self.hits
            if len(hits):
                interval = bootstrap_mean(mce_by_image(hits, int(data["images"])), resamples=RESAMPLES)
                row |= {"low": interval.low, "high": interval.high}
            rows.append(row)
        table: pd.DataFrame = pd.DataFrame(rows, columns=[*_SERIES, "mce", "low", "high"])
        return table


def mce_by_image(hits: pd.DataFrame, images: int) -> npt.NDArray[np.float64]:
    """The contribution of each image to the mCE of one series, in per cent: their mean is the mCE.

    m_i = 100 / 15 · Σ_c Σ_s e_{i,c,s} / Σ_s E^AlexNet_{c,s}, where e is 1 for an error.
    """
    contributions = np.zeros(images)
    counted = hits[hits["corruption"].isin(list(ALEXNET_ERRORS)) & (hits["severity"] > 0)]
    for corruption, packed in zip(counted["corruption"], counted["hits"], strict=True):
        contributions += ~unpack_hits(packed, images) / (len(SEVERITIES) * ALEXNET_ERRORS[corruption])
    return 100 * contributions / len(ALEXNET_ERRORS)


def compare(first: Results, second: Results) -> pd.DataFrame:
    """How much `first` differs from `second`, by metric and severity, with paired 95 % bootstrap intervals.

    Rows are paired by all keys, except those with one value on each side and not the same one (two strategies, say):
    these are what is compared. Methods, strategies, batch sizes and orders that both sides have several of are compared
    one by one, and stand in columns of their own. Within each, values are averaged over models and seeds to one per
    split, because the interval generalises over splits.

    Further columns: metric, severity ("all" for all shifted splits), splits, first, second, difference, low, high, over
    (what the interval is over: "splits" or "images"). If 0 is not in the interval, the two differ. One split alone,
    such as clean data, has an interval over images for the accuracy if hits were kept on both sides, and for the Brier
    score too if all predictions were; otherwise none.
    """
    pair = [key for key in (*KEYS, "metric") if not _is_compared(first, second, key)]
    both = first.frame.merge(second.frame, on=pair, suffixes=("_first", "_second"))
    if both.empty:
        raise EvaluationError(
            f"the two have no row in common when paired by {', '.join(pair)}: choose what to compare so that each side "
            "has one value of what differs."
        )
    apart = [key for key in ("method", "strategy", "batch_size", "order") if key in pair and both[key].nunique() > 1]
    rows = []
    for key, series in both.groupby(apart) if apart else [((), both)]:
        named = dict(zip(apart, key, strict=True))
        splits = series.groupby(["metric", "corruption", "severity"], as_index=False)[["value_first", "value_second"]]
        for metric, values in splits.mean().groupby("metric"):
            shifted = values[values["severity"] > 0]
            parts = [(str(severity), part) for severity, part in values.groupby("severity")]
            for severity, part in [*parts, *([("all", shifted)] if shifted["severity"].nunique() > 1 else [])]:
                a, b = part["value_first"].to_numpy(), part["value_second"].to_numpy()
                interval, over = None, "splits"
                if len(part) > 1:
                    interval = bootstrap_difference(a, b)
                elif sides := _image_scores(first, second, named, part.iloc[0]):
                    interval, over = paired_interval(*sides), "images"
                rows.append(
                    {
                        **named,
                        "metric": metric,
                        "severity": severity,
                        "splits": len(part),
                        "first": a.mean(),
                        "second": b.mean(),
                        "difference": a.mean() - b.mean(),
                        "low": np.nan if interval is None else interval.low,
                        "high": np.nan if interval is None else interval.high,
                        "over": "" if interval is None else over,
                    }
                )
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def _image_scores(
    first: Results, second: Results, named: Mapping[str, Any], split: pd.Series[Any]
) -> list[npt.NDArray[np.float64]]:
    """What each side has of every image in one split, averaged over models and seeds; empty if it was not kept.

    The images are the same if the data has the same checksums.
    """
    data = [side.card.get("data", {}) for side in (first, second)]
    if not data[0] or data[0].get("sha256") != data[1].get("sha256"):
        return []
    wanted = {**named, "corruption": split["corruption"], "severity": split["severity"]}
    sides = []
    for side in (first, second):
        rows = side.predictions if len(side.predictions) else side.hits
        for key, value in wanted.items():
            rows = rows[rows[key] == value] if len(rows) else rows
        sides.append([_scores_of_images(row, str(split["metric"]), data[0]) for row in rows.to_dict("records")])
    lengths = {len(scores) for side in sides for scores in side}
    if not all(sides) or len(lengths) != 1 or 0 in lengths:
        return []
    return [np.mean(side, axis=0) for side in sides]


def _scores_of_images(row: Mapping[Any, Any], metric: str, data: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Accuracy or Brier score of every image, in the order of their index; empty for other metrics."""
    if "hits" in row:
        images = int(data.get("images", 0))
        is_kept = metric == "accuracy" and len(row["hits"]) == -(-images // 8)
        return unpack_hits(row["hits"], images).astype(np.float64) if is_kept else np.zeros(0)
    order = np.argsort(row["index"], kind="stable")
    if metric == "accuracy" and len(row["label"]):
        right: npt.NDArray[np.float64] = np.equal(row["predicted"], row["label"]).astype(np.float64)
        return right[order]
    return np.asarray(row["brier"], dtype=np.float64)[order] if metric == "brier" else np.zeros(0)


def _matches(key: str, value: object, wanted: object) -> bool:
    if key == "strategy" and isinstance(wanted, str):  # "auto" also means "auto(calibrated=True, passes=1)"
        with suppress(PredbnError):
            return value in (wanted, str(Setting.parse(wanted)))
    if key == "model" and isinstance(wanted, str) and value != wanted and "*" in wanted:
        return fnmatchcase(str(value), wanted)
    return value == wanted


def _is_compared(first: Results, second: Results, key: str) -> bool:
    """Whether each side has one value of a key, and not the same one. Splits and metrics are always paired."""
    if key in ("corruption", "severity", "metric"):
        return False
    left, right = (set(side.frame[key].unique()) for side in (first, second))
    return len(left) == len(right) == 1 and left != right
