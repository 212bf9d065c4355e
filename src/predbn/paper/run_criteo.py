"""Run the plans of K1, with data and networks in a folder of the user.

Criteo's rows may not be redistributed, so everything is in a folder of the user, `criteo` by default:

    rows/                  predbn data criteo --root train.txt --out criteo/rows
    criteo-mlp/            predbn train criteo --root criteo/rows --out criteo --seeds 0-9
    later/                 rows of a later period, all of them test rows
    unsettled/criteo-mlp/  networks whose running statistics had too few steps to converge
    synthetic/rows/        predbn data criteo --synthetic 4000000 --out criteo/synthetic/rows
    synthetic/criteo-mlp/  predbn train criteo --root criteo/synthetic/rows --out criteo/synthetic --seeds 0-9

A plan whose data is missing is not measured. A quick run generates a few synthetic rows and trains small networks on
them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from predbn.common import NotMeasured, PaperError, ProgressWithNote
from predbn.data import Randomised, Rows, criteo, prepare_synthetic
from predbn.evaluation import Engine, Plan, Results, Setting, evaluate, write_table
from predbn.models import ClickModel, CriteoSizes, load_criteo
from predbn.norm import adapted
from predbn.training import CriteoData, CriteoRecipe, train_criteo

from .plans.criteo import LATER, NETWORK, SYNTHETIC, UNSETTLED

RESAMPLES_FILE = "resamples.parquet"
MAX_RESAMPLED_ROWS = 20_000
"""Up to this many rows resampling takes seconds to minutes; with more rows, the rows are not what makes intervals
wide."""
RESAMPLES = 1_000

_QUICK_ROWS, _QUICK_SEEDS = 8_000, (0, 1, 2)
_QUICK_RECIPE = CriteoRecipe(
    epochs=3, batch_size=256, norm_momentum=0.1, sizes=CriteoSizes(widths=(64, 32)).limited(buckets=500, dimensions=8)
)

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Inputs:
    """The data and networks of a plan."""

    test: Randomised
    validation: Rows
    models: dict[str, ClickModel]


def run_criteo(
    name: str,
    plan: Plan,
    out: Path,
    *,
    root: Path,
    quick: bool = False,
    engine: Engine | None = None,
    progress: ProgressWithNote | None = None,
) -> None:
    """Run one plan of K1; raises NotMeasured if its rows or networks are missing."""
    if not quick:
        _evaluate(plan, out, _load_inputs(name, plan, root), engine, progress)
        return
    if name != SYNTHETIC:
        raise NotMeasured("no real rows come with the package")
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "synthetic" / "rows"
        prepare_synthetic(_QUICK_ROWS, rows)
        sets = CriteoData(criteo("train", rows), criteo("validation", rows), criteo("test", rows))
        train_criteo(_QUICK_RECIPE, _QUICK_SEEDS, sets, rows.parent)
        _evaluate(plan, out, _load_inputs(name, plan, Path(folder)), engine, progress)


def _load_inputs(name: str, plan: Plan, root: Path) -> _Inputs:
    folder = root / "synthetic" if name == SYNTHETIC else root
    rows, later = folder / "rows", folder / "later"
    networks = folder / "unsettled" / NETWORK if name == UNSETTLED else folder / NETWORK
    for needed in (rows, later) if name == LATER else (rows,):
        if not needed.is_dir():
            raise NotMeasured(f"{needed} has no prepared rows; predbn data criteo --out {needed} makes them")
    weights = sorted(networks.glob("*.safetensors"), key=lambda path: (len(path.name), path.name))
    if not weights:
        command = f"predbn train criteo --root {rows} --out {networks.parent}"
        raise NotMeasured(f"{networks} has no networks; {command} makes them")
    train = criteo("train", rows)
    if train.name.startswith(SYNTHETIC) != (name == SYNTHETIC):
        raise PaperError(f"{rows} has {train.name}: real rows belong in rows, synthetic rows in synthetic/rows.")
    test = criteo("all", later) if name == LATER else criteo("test", rows)
    block = max(size for size in plan.batch_sizes if size != "all")
    models = {f"{NETWORK}/{path.stem}": load_criteo(path) for path in weights}
    return _Inputs(Randomised(test, train=train, block=block), criteo("validation", rows), models)


def _evaluate(plan: Plan, out: Path, inputs: _Inputs, engine: Engine | None, progress: ProgressWithNote | None) -> None:
    results = evaluate(
        plan,
        out,
        engine=engine,
        data=inputs.test,
        validation=inputs.validation,
        models=inputs.models,
        progress=progress,
    )
    path = out / RESAMPLES_FILE
    if len(inputs.test) <= MAX_RESAMPLED_ROWS and not path.exists():
        _write_resamples(plan, results, path, inputs)


def _write_resamples(plan: Plan, results: Results, path: Path, inputs: _Inputs) -> None:
    splits = results.frame[["corruption", "severity"]].drop_duplicates().itertuples(index=False, name=None)
    size = plan.batch_sizes[0]
    table = resample(
        inputs.test,
        inputs.models,
        list(splits),
        strategies=plan.strategies,
        batch_size=len(inputs.test) if size == "all" else size,
        seeds=plan.seeds,
    )
    small = table.astype({"value": "float32", "severity": "int16", "resample": "int16"})
    write_table(path, pa.Table.from_pandas(small, preserve_index=False))


def resample(
    data: Randomised,
    models: Mapping[str, ClickModel],
    splits: Sequence[tuple[str, int]],
    *,
    strategies: Sequence[str],
    batch_size: int,
    seeds: Sequence[int],
    resamples: int = RESAMPLES,
) -> pd.DataFrame:
    """How much AUC and Brier score vary with other rows and other networks: a bootstrap over both.

    A test set of a thousand rows says little about the third digit, and results do not store predictions. So a small
    test set is predicted again, and

        m*(r) = 1/M Σ_k v_k(r) m(w(r), network k)

    is computed for each resample r: w(r) counts how often each row is drawn with replacement, v(r) how often each
    network. All splits and strategies share the draws, so that differences between them are paired. Rows are predicted
    in their original order in batches of `batch_size`; values are means over `seeds`, the draws of the randomisation.

    Columns strategy, corruption, severity, metric, resample, value.
    """
    generator = np.random.default_rng(0)
    count = len(data)
    row_counts = generator.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)
    network_weights = generator.multinomial(len(models), np.full(len(models), 1 / len(models)), resamples) / len(models)
    parts = []
    for corruption, severity in splits:
        draws = [data.seeded(seed) for seed in (seeds if severity else seeds[:1])]
        for strategy in strategies:
            setting = Setting.parse(strategy)
            options: dict[str, Any] = {"eps": setting.eps, "layers": setting.layers}
            scores = np.zeros((2, resamples))
            for randomised in draws:
                batches = list(randomised.batches(corruption, severity, batch_size))
                labels = torch.cat([batch.labels for batch in batches]).cpu().numpy()
                for number, model in enumerate(models.values()):
                    with torch.inference_mode(), adapted(model, setting.strategy, **options):
                        clicks = torch.cat([model(batch.inputs).softmax(1)[:, 1] for batch in batches])
                    predicted = clicks.double().cpu().numpy()
                    auc = weighted_auc(predicted, labels, row_counts)
                    brier = row_counts @ (2 * (predicted - labels) ** 2) / count
                    scores += network_weights[:, number] * np.stack((auc, brier))
            for metric, values in zip(("auc", "brier"), scores / len(draws), strict=True):
                key = {"strategy": strategy, "corruption": corruption, "severity": severity, "metric": metric}
                parts.append(pd.DataFrame({**key, "resample": np.arange(resamples), "value": values}))
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return table


def weighted_auc(scores: Array, labels: npt.NDArray[np.int64], weights: Array) -> Array:
    """The area under the ROC curve for each line of weights [resamples, n], which count the rows; ties count half.

    Σ_i P_i (N_1 + … + N_{i−1} + N_i / 2) / (P N) over the distinct scores in ascending order.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    counts = weights[:, order]
    clicked = counts * labels[order]
    positives = np.add.reduceat(clicked, starts, axis=1)
    negatives = np.add.reduceat(counts - clicked, starts, axis=1)
    pairs = (positives * (negatives.cumsum(1) - negatives / 2)).sum(1)
    area: Array = pairs / (positives.sum(1) * negatives.sum(1))
    return area
