"""Bootstrap intervals of means: how far they would move with other images, corruptions or networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.evaluation import BOOTSTRAP_RESAMPLES, unpack_hits
from predbn.metrics import bootstrap_mean

from .frames import KEYS, add_series

_COLUMNS = ["series", "severity", "metric", "mean", "low", "high", "over"]
_OVER = {"corruption": "corruptions", "model": "networks", "seed": "seeds"}
_MIN_IMAGES = 8
"""Hits are padded to bytes: with fewer images, how often a stream visits each image would be ambiguous."""


def mean_intervals(frame: pd.DataFrame, hits: pd.DataFrame | None = None, images: int | None = None) -> pd.DataFrame:
    """The 95 % bootstrap intervals of the means by series, severity and metric.

    The column `over` says what was drawn. It is the images if `hits` of this many `images` say which were predicted
    correctly (accuracy only). Otherwise it is the first of corruptions, networks and seeds of which there are several;
    if there is one of each, there is no interval, and low and high are NaN.
    """
    by_image = _accuracy_by_image(frame, hits, images)
    rows = []
    for key, cells in add_series(frame).groupby(["series", "severity", "metric"], sort=False):
        values: npt.NDArray[np.float64] | None = by_image.get(key[:2]) if key[2] == "accuracy" else None
        over = "images"
        if values is None:
            column = next((name for name in _OVER if cells[name].nunique() > 1), None)
            over = _OVER.get(str(column), "")
            values = cells.groupby(column)["value"].mean().to_numpy() if column else None
        mean, low, high = float(cells.groupby("corruption")["value"].mean().mean()), math.nan, math.nan
        if values is not None and np.isfinite(values).all():
            interval = bootstrap_mean(values, resamples=BOOTSTRAP_RESAMPLES)
            low, high = interval.low, interval.high
        rows.append((*key, mean, low, high, over if math.isfinite(low) else ""))
    intervals: pd.DataFrame = pd.DataFrame(rows, columns=_COLUMNS)
    return intervals


def interval_note(intervals: pd.DataFrame) -> str:
    """What the intervals are over, in one sentence; empty if there are none."""
    is_clean = intervals["severity"] == 0
    shifted, clean = (
        " or ".join(filter(None, rows["over"].unique())) for rows in (intervals[~is_clean], intervals[is_clean])
    )
    if not shifted and not clean:
        return ""
    on_clean_data = f" (on clean data {clean})" if shifted and clean and shifted != clean else ""
    note = (
        f"Below each mean is its 95\N{NO-BREAK SPACE}% bootstrap interval, over the {shifted or clean}{on_clean_data}."
    )
    return note.replace("images or", "images (accuracy) or")


def _accuracy_by_image(
    frame: pd.DataFrame, hits: pd.DataFrame | None, images: int | None
) -> Mapping[tuple[Any, ...], npt.NDArray[np.float64]]:
    """For each (series, severity) how often every image was predicted correctly, as a share."""
    if hits is None or hits.empty or images is None or images < _MIN_IMAGES:
        return {}
    cells = add_series(frame[frame["metric"] == "accuracy"])[["series", *KEYS]].merge(hits, on=list(KEYS))
    shares: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
    for key, group in cells.groupby(["series", "severity"], sort=False):
        by_corruption = [
            np.mean([hits_by_image(packed, images) for packed in part["hits"]], axis=0)
            for _, part in group.groupby("corruption", sort=False)
        ]
        shares[key] = np.mean(by_corruption, axis=0)
    return shares


def hits_by_image(packed: bytes, images: int) -> npt.NDArray[np.float64]:
    """The share of correct predictions of every image, of which a stream may visit each several times."""
    visits = 8 * len(packed) // images
    shares: npt.NDArray[np.float64] = unpack_hits(packed, images * visits).reshape(images, visits).mean(1)
    return shares
