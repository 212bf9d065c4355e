"""What D1 to D4 share: the series of what was measured inside, and the tables beside them."""

from __future__ import annotations

import pandas as pd

from predbn.common import NotMeasured
from predbn.report import GREY, HUES, Look

from ..inside import TRAINING
from ..networks import WITH_BATCH_NORM
from ..plans import INSIDE
from ..runs import Runs
from ..series import Series

__all__ = ["INSIDE_PREDICTION", "INSIDE_TRAIN", "LOOKS", "NAMES", "table_of"]

INSIDE_TRAIN = Series("train BN", INSIDE, "train")
INSIDE_PREDICTION = Series("prediction BN", INSIDE, "batch")

NAMES = {TRAINING: "training images", "train": "shifted, train BN", "batch": "shifted, prediction BN"}
LOOKS = (Look(NAMES[TRAINING], GREY, True), Look(NAMES["train"], HUES[1], False), Look(NAMES["batch"], HUES[0], False))


def table_of(runs: Runs, name: str) -> pd.DataFrame:
    """`histograms` or `spectra` of the network with batch norm, with the column `series` in words."""
    path = runs.folder / INSIDE / f"{name}.parquet"
    if not path.is_file():
        raise NotMeasured(f"{runs.folder} has no {name} of the plan {INSIDE}")
    rows = pd.read_parquet(path)
    rows = rows[rows["model"].str.startswith(f"{WITH_BATCH_NORM}/")]
    if rows.empty:
        raise NotMeasured(f"the run of the plan {INSIDE} has no network with batch norm")
    named: pd.DataFrame = rows.assign(series=rows["series"].map(NAMES))
    return named
