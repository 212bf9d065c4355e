"""Where K1 finds its rows and networks, and how its plans are carried out.

Criteo's rows are nobody's to hand on, so that everything is in a folder of the user's, `criteo` unless named:

    rows/                  predbn data criteo --root train.txt --out criteo/rows
    criteo-mlp/            predbn train criteo --root criteo/rows --out criteo --seeds 0-9
    later/                 rows of a later period, all of them a test set
    unsettled/criteo-mlp/  networks whose running statistics had too few steps to settle
    synthetic/rows/        predbn data criteo --synthetic 4000000 --out criteo/synthetic/rows
    synthetic/criteo-mlp/  predbn train criteo --root criteo/synthetic/rows --out criteo/synthetic --seeds 0-9

What is missing is not measured. A quick run makes a few synthetic rows and trains small networks on them by itself.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from predbn.common import NotMeasured, PaperError, finish, part_of
from predbn.data import Randomised, Rows, criteo, prepare_synthetic
from predbn.evaluation import Engine, Plan, Results, evaluate
from predbn.evaluation import UnitProgress as Progress
from predbn.models import ClickModel, CriteoSizes, load_criteo
from predbn.training import CriteoRecipe, CriteoSets, produce_criteo

from .resampling import MOST_ROWS, resample

__all__ = ["LARGER_EPS", "LATER", "NETWORK", "REAL", "RESAMPLES", "SYNTHETIC", "UNSETTLED", "run_clicks"]

REAL, LATER, UNSETTLED, SYNTHETIC = "criteo", "criteo-later", "criteo-unsettled", "criteo-synthetic"
LARGER_EPS = "criteo-eps"
"""The plans."""

NETWORK = "criteo-mlp"
RESAMPLES = "resamples.parquet"

_QUICK_ROWS, _QUICK_SEEDS = 8_000, (0, 1, 2)
_QUICK_RECIPE = CriteoRecipe(
    epochs=3, batch_size=256, norm_momentum=0.1, sizes=CriteoSizes(widths=(64, 32)).limited(buckets=500, dimensions=8)
)


@dataclass(frozen=True)
class Clicks:
    """What a plan is carried out with."""

    data: Randomised
    validation: Rows
    models: dict[str, ClickModel]


def run_clicks(
    name: str,
    plan: Plan,
    out: Path,
    *,
    root: Path,
    quick: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> None:
    """Carry out one plan of K1; NotMeasured where its rows or networks are not there."""
    if not quick:
        _measure(plan, out, _open(name, plan, root), engine, progress)
        return
    if name != SYNTHETIC:
        raise NotMeasured("no real rows come with the package")
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "synthetic" / "rows"
        prepare_synthetic(_QUICK_ROWS, rows)
        sets = CriteoSets(criteo("train", rows), criteo("validation", rows), criteo("test", rows))
        produce_criteo(_QUICK_RECIPE, _QUICK_SEEDS, sets, rows.parent)
        _measure(plan, out, _open(name, plan, Path(place)), engine, progress)


def _measure(plan: Plan, out: Path, clicks: Clicks, engine: Engine | None, progress: Progress | None) -> None:
    results = evaluate(
        plan,
        out,
        engine=engine,
        data=clicks.data,
        validation=clicks.validation,
        models=clicks.models,
        progress=progress,
    )
    if len(clicks.data) <= MOST_ROWS:
        _resample(plan, results, out / RESAMPLES, clicks)


def _resample(plan: Plan, results: Results, path: Path, clicks: Clicks) -> None:
    if path.exists():
        return
    splits = results.frame[["corruption", "severity"]].drop_duplicates().itertuples(index=False, name=None)
    sizes = [len(clicks.data) if size == "all" else size for size in plan.batch_sizes]
    table = resample(
        clicks.data,
        clicks.models,
        list(splits),
        strategies=plan.strategies,
        batch_size=sizes[0],
        seeds=plan.seeds,
    )
    table.astype({"value": "float32", "severity": "int16", "resample": "int16"}).to_parquet(part_of(path), index=False)
    finish(path)


def _open(name: str, plan: Plan, root: Path) -> Clicks:
    place = root / "synthetic" if name == SYNTHETIC else root
    rows, later = place / "rows", place / "later"
    networks = place / "unsettled" / NETWORK if name == UNSETTLED else place / NETWORK
    for folder in (rows, *([later] if name == LATER else [])):
        if not folder.is_dir():
            raise NotMeasured(f"{folder} has no prepared rows; predbn data criteo --out {folder} makes them")
    weights = sorted(networks.glob("*.safetensors"), key=lambda path: (len(path.name), path.name))
    if not weights:
        command = f"predbn train criteo --root {rows} --out {networks.parent}"
        raise NotMeasured(f"{networks} holds no networks; {command} makes them")
    train = criteo("train", rows)
    if train.name.startswith(SYNTHETIC) != (name == SYNTHETIC):
        raise PaperError(f"{rows} holds {train.name}: real rows belong into rows, synthetic ones into synthetic/rows.")
    test = criteo("all", later) if name == LATER else criteo("test", rows)
    block = max(size for size in plan.batch_sizes if size != "all")
    models = {f"{NETWORK}/{path.stem}": load_criteo(path) for path in weights}
    return Clicks(Randomised(test, train=train, block=block), criteo("validation", rows), models)
