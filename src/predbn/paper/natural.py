"""The tables on natural shift, from the outcomes of single pictures that `benchmarks/natural.py` has written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from predbn.common import PaperError, read_json
from predbn.metrics import bootstrap_mean

from .markdown import markdown_table
from .measurements import LEVEL

TRAIN, BATCH, OTHERS = "train", "batch", ("batch", "prior(N=64)", "batch, diluted")
_RESAMPLES = 2_000

Array = npt.NDArray[np.float64]
Units = Mapping[str, Any]


def natural_tables(path: Path, seed: int = 0) -> str:
    """One row per network and set: the accuracy of train BN, and what other strategies gain over it.

    Gains are in points, Brier scores signed so that positive is better, with bootstrap intervals over the pictures.
    """
    if not path.is_file():
        return "Not measured."
    units: Units = read_json(path, error=PaperError, remedy="run benchmarks/natural.py again")["units"]
    others = [strategy for strategy in OTHERS if any(name.endswith(f", {strategy}") for name in units)]
    rows = []
    for network, title in dict.fromkeys(tuple(name.split(", ")[:2]) for name in units):
        outcomes = {name.removeprefix(f"{network}, {title}, "): unit for name, unit in units.items()}
        if not {TRAIN, BATCH} <= set(outcomes):
            continue
        train, batch = outcomes[TRAIN], outcomes[BATCH]
        row = [f"{network}, {title}", str(len(train["right"])), f"{100 * _right(train).mean():.1f}"]
        for strategy in others:
            other = outcomes.get(strategy)
            row.append("–" if other is None else _change(100 * (_right(other) - _right(train)), 1, seed))
        row.append(_change(np.array(train["brier"]) - np.array(batch["brier"]), 3, seed))
        row.append(_change(100 * (np.array(batch["confidence"]) - np.array(train["confidence"])), 1, seed))
        rows.append(row)
    heads = ["", "pictures", "train BN, %", *others, "batch: Brier score", "batch: confidence"]
    return markdown_table(heads, rows)


def _right(outcome: Units) -> Array:
    return np.array([int(digit) for digit in outcome["right"]], dtype=float)


def _change(differences: Array, digits: int, seed: int) -> str:
    interval = bootstrap_mean(differences, resamples=_RESAMPLES, level=LEVEL, seed=seed)
    values = interval.estimate, interval.low, interval.high
    return "{} ({} to {})".format(*(f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}") for value in values))
