"""How far scores would move with other rows and other networks: a bootstrap over both.

A test set of a thousand rows says little to the third digit, and results keep no predictions. So where rows are few,
they are predicted once more, and

    m*(r) = 1/M Σ_k v_k(r) m(w(r), network k)

is drawn many times: w(r) counts how often each row is drawn with replacement, v(r) how often each network. All splits
and strategies share the draws, so that differences between them are paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from predbn.data import Randomised
from predbn.evaluation import Setting
from predbn.models import ClickModel
from predbn.norm import adapted

__all__ = ["MOST_ROWS", "resample", "weighted_auc"]

MOST_ROWS = 20_000
"""Up to so many rows it takes seconds to minutes; with more, rows are no longer what makes intervals wide."""

_RESAMPLES = 1_000
Array = npt.NDArray[np.float64]


def resample(
    data: Randomised,
    models: Mapping[str, ClickModel],
    splits: Sequence[tuple[str, int]],
    *,
    strategies: Sequence[str],
    batch_size: int,
    seeds: Sequence[int],
    resamples: int = _RESAMPLES,
) -> pd.DataFrame:
    """AUC and Brier score in every resample: strategy, corruption, severity, metric, resample, value.

    Rows are predicted in their own order in batches of `batch_size`; values are means over `seeds`, the draws of the
    randomisation.
    """
    generator = np.random.default_rng(0)
    count = len(data)
    rows = generator.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)
    networks = generator.multinomial(len(models), np.full(len(models), 1 / len(models)), resamples) / len(models)
    parts = []
    for name, severity in splits:
        drawn = [data.seeded(seed) for seed in (seeds if severity else seeds[:1])]
        for strategy in strategies:
            setting = Setting.parse(strategy)
            options: dict[str, Any] = {"eps": setting.eps, "layers": setting.layers}
            found = np.zeros((2, resamples))
            for shifted in drawn:
                batches = list(shifted.batches(name, severity, batch_size))
                labels = torch.cat([batch.labels for batch in batches]).cpu().numpy()
                for place, model in enumerate(models.values()):
                    with torch.inference_mode(), adapted(model, setting.strategy, **options):
                        clicks = torch.cat([model(batch.inputs).softmax(1)[:, 1] for batch in batches])
                    scores = clicks.double().cpu().numpy()
                    brier = rows @ (2 * (scores - labels) ** 2) / count
                    found += networks[:, place] * np.stack((weighted_auc(scores, labels, rows), brier))
            for metric, values in zip(("auc", "brier"), found / len(drawn), strict=True):
                key = {"strategy": strategy, "corruption": name, "severity": severity, "metric": metric}
                parts.append(pd.DataFrame({**key, "resample": np.arange(resamples), "value": values}))
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return table


def weighted_auc(scores: Array, labels: npt.NDArray[np.int64], weights: Array) -> Array:
    """The area under the ROC curve with rows counted by each line of weights [resamples, n]; ties count half.

    Σ_i P_i (N_1 + … + N_{i−1} + N_i / 2) / (P N) over the different scores in rising order, as in `predbn.metrics.auc`.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    counted = weights[:, order]
    clicked = counted * labels[order]
    positives = np.add.reduceat(clicked, starts, axis=1)
    negatives = np.add.reduceat(counted - clicked, starts, axis=1)
    above = (positives * (negatives.cumsum(1) - negatives / 2)).sum(1)
    area: Array = above / (positives.sum(1) * negatives.sum(1))
    return area
