"""The mean corruption error as measurements of a claim, and other measurements over images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import BOOTSTRAP_RESAMPLES as RESAMPLES
from predbn.evaluation import Setting, Split, mce_by_image
from predbn.evaluation import unpack_hits as unpack
from predbn.metrics import ALEXNET_ERRORS, bootstrap_mean, corruption_errors

from .claims import Measurement, Side
from .runs import Runs
from .series import SHIFTED, Series

__all__ = ["gain_by_image", "mce_gain", "mce_measured", "right_by_split"]


def mce_measured(runs: Runs, series: Series, side: Side, bound: float) -> Measurement:
    """The mCE of a series, in per cent."""
    values, over = _values(runs, series)
    what = f"mCE of {series.label}, %"
    return Measurement(
        what, bootstrap_mean(values, resamples=RESAMPLES), side, bound, len(values), over, digits=2, signed=False
    )


def mce_gain(runs: Runs, first: Series, second: Series) -> Measurement:
    """By how much the mCE of `first` is lower than that of `second`."""
    (one, over), (other, _) = _values(runs, first), _values(runs, second)
    what = f"mCE, points: {first.label} over {second.label}"
    return Measurement(what, bootstrap_mean(other - one, resamples=RESAMPLES), "above", 0.0, len(one), over, digits=2)


def gain_by_image(
    runs: Runs, first: Series, second: Series, split: tuple[str, int], side: Side, bound: float = 0.0
) -> Measurement:
    """By how much `first` is more accurate than `second` on one split, image by image."""
    one, other = (_right(_kept(runs, each, *split), runs, each) for each in (first, second))
    where = "clean images" if split[1] == 0 else str(Split(*split)).replace("_", " ")
    what = f"accuracy, points: {first.label} over {second.label} on {where}"
    interval = bootstrap_mean(one.astype(float) - other, resamples=RESAMPLES)
    return Measurement(what, interval, side, bound, len(one), "images", scale=100, digits=1)


def right_by_split(runs: Runs, series: Series) -> dict[tuple[str, int], npt.NDArray[np.bool_]]:
    """Which images of every split, by corruption and severity, the single network of a series has right."""
    images = _images(runs, series)
    return {
        (corruption, int(severity)): unpack(hits, images)
        for corruption, severity, hits in _kept(runs, series)[["corruption", "severity", "hits"]].itertuples(
            index=False
        )
    }


def _values(runs: Runs, series: Series) -> tuple[npt.NDArray[np.float64], str]:
    """What images add to the mCE where it is known which were right, else corruptions: its mean is the mCE."""
    hits = _kept(runs, series)
    errors = 1 - series.values(runs, "accuracy", SHIFTED).groupby("corruption")["value"].mean()
    lacking = [name for name in ALEXNET_ERRORS if name not in errors.index]
    if lacking:
        raise NotMeasured(f"the mCE needs {', '.join(lacking)} too")
    if len(hits):
        return mce_by_image(hits, _images(runs, series)), "images"
    return np.array(
        list(corruption_errors({name: float(errors[name]) for name in ALEXNET_ERRORS}).values())
    ), "corruptions"


def _kept(runs: Runs, series: Series, corruption: str | None = None, severity: int | None = None) -> pd.DataFrame:
    """The hits of a series."""
    hits = runs[series.plan].hits
    if hits.empty:
        return hits
    chosen = (hits["strategy"] == str(Setting.parse(series.strategy))) & (hits["method"] == series.method)
    if series.batch_size is not None:
        chosen &= hits["batch_size"] == series.batch_size
    chosen &= hits["model"].str.startswith(f"{series.network}/")
    if corruption is not None:
        chosen &= (hits["corruption"] == corruption) & (hits["severity"] == severity)
    kept: pd.DataFrame = hits[chosen]
    return kept


def _right(hits: pd.DataFrame, runs: Runs, series: Series) -> npt.NDArray[np.bool_]:
    if len(hits) != 1:
        raise NotMeasured(f"the run of the plan {series.plan} does not say which images {series.label} had right")
    return unpack(hits["hits"].iloc[0], _images(runs, series))


def _images(runs: Runs, series: Series) -> int:
    return int(runs[series.plan].card["data"]["images"])
