"""The mean corruption error of ImageNet-C from results, with an interval over images where their hits were kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.data import SEVERITIES
from predbn.metrics import ALEXNET_ERRORS, bootstrap_mean, mce

from .hits import unpack

__all__ = ["RESAMPLES", "SERIES", "mce_by_image", "mce_table"]

SERIES = ("model", "method", "strategy", "batch_size", "order", "seed")
RESAMPLES = 2_000
"""Of a bootstrap over images: more would say nothing else, and images are many."""

_SPLITS = len(ALEXNET_ERRORS) * len(SEVERITIES)


def mce_table(frame: pd.DataFrame, hits: pd.DataFrame, images: int) -> pd.DataFrame:
    """One row a series that has all 15 corruptions at all five severities: mce, low and high, in per cent.

    Bounds are those of a 95 % bootstrap over images, and NaN where hits were not kept.
    """
    keys = list(SERIES)
    chosen = frame["corruption"].isin(list(ALEXNET_ERRORS)) & (frame["metric"] == "accuracy") & (frame["severity"] > 0)
    rows = []
    for series, part in frame[chosen].groupby(keys, sort=False):
        if len(part) != _SPLITS:
            continue
        errors = {str(name): float(1 - values.mean()) for name, values in part.groupby("corruption")["value"]}
        row = {**dict(zip(keys, series, strict=True)), "mce": mce(errors), "low": np.nan, "high": np.nan}
        kept = hits.merge(pd.DataFrame([row])[keys], on=keys) if len(hits) else hits
        if len(kept):
            interval = bootstrap_mean(mce_by_image(kept, images), resamples=RESAMPLES)
            row |= {"low": interval.low, "high": interval.high}
        rows.append(row)
    table: pd.DataFrame = pd.DataFrame(rows, columns=[*keys, "mce", "low", "high"])
    return table


def mce_by_image(hits: pd.DataFrame, images: int) -> npt.NDArray[np.float64]:
    """What each image adds to the mCE of one series, in per cent: its mean over the images is the mCE.

    m_i = 100 / 15 · Σ_c Σ_s e_{i,c,s} / Σ_s E^AlexNet_{c,s}, where e is 1 for an error.
    """
    found = np.zeros(images)
    counted = hits[hits["corruption"].isin(list(ALEXNET_ERRORS)) & (hits["severity"] > 0)]
    for corruption, packed in zip(counted["corruption"], counted["hits"], strict=True):
        found += ~unpack(packed, images) / (len(SEVERITIES) * ALEXNET_ERRORS[corruption])
    return 100 * found / len(ALEXNET_ERRORS)
