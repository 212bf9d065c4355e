"""A prepared folder, opened and split in the order of time.

The reference benchmark (Ovadia et al. 2019) trains on the first 37,000,000 of the 45,840,617 rows, which lie in the
order of time, and halves the rest: what comes later is validation data, what comes last is test data. Files of another
length are split in the same proportion.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, get_args

import torch

from predbn.common import DataError, cache_folder

from ..npy import load_array
from .rows import Rows
from .shards import SOURCE, TOTALS

__all__ = ["Part", "criteo", "criteo_folder", "split_at"]

Part = Literal["train", "validation", "test", "all"]

_TRAINED_ON, _IN_ALL = 37_000_000, 45_840_617


def split_at(rows: int) -> tuple[int, int]:
    """Where the validation rows begin, and where the test rows do."""
    train = rows * _TRAINED_ON // _IN_ALL
    return train, train + (rows - train) // 2


def criteo_folder(cache: Path | None = None, *, synthetic: bool = False) -> Path:
    """Where prepared rows are, or would be, in a cache folder; the user's unless given."""
    return (cache or cache_folder()) / ("criteo-synthetic" if synthetic else "criteo")


def criteo(part: Part, root: str | Path | None = None) -> Rows:
    """One part of the rows prepared in the folder `root`, the cache of `predbn data criteo` unless given.

    Synthetic rows are called so in `name`.
    """
    if part not in get_args(Part):
        raise DataError(f"There is no part {part!r} of Criteo: use {', '.join(get_args(Part))}.")
    folder = criteo_folder() if root is None else Path(root).expanduser()
    if not (folder / TOTALS).is_file():
        begun = (folder / SOURCE).is_file()
        raise DataError(
            f"{folder} is prepared in part only: run the same predbn data criteo again, and it goes on."
            if begun
            else f"{folder} holds no prepared rows: make them with predbn data criteo --root PATH/TO/train.txt."
        )
    source, totals = (json.loads((folder / name).read_text()) for name in (SOURCE, TOTALS))
    tables = [torch.from_numpy(load_array(folder / f"{n:05d}.npy")) for n, rows in enumerate(totals["shards"]) if rows]
    name = "criteo-synthetic" if source["synthetic"] else "criteo"
    whole = Rows(tables, f"{name}-all")
    if len(whole) != totals["rows"]:
        raise DataError(f"{folder} has {len(whole)} of its {totals['rows']} rows: delete it and prepare it anew.")
    first, second = split_at(len(whole))
    bounds = {"train": (0, first), "validation": (first, second), "test": (second, len(whole)), "all": (0, len(whole))}
    return whole.part(*bounds[part], f"{name}-{part}")
