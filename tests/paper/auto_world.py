"""Made-up results of the plans of `auto` on both data sets: one world in which it reaches its goals, and one in
which it does exactly what prediction-time BN does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from predbn.paper import PLANS
from predbn.paper.experiments.auto import AUTO_PLANS
from predbn.shifts import names

from .keys import keys, write_run

IMAGES = 2_000
HARD = dict(zip(names("all"), np.random.default_rng(0).uniform(0.3, 1.2, 19), strict=True))


class AutoWorld:
    """With `effect` 1 auto is ahead by 6 points under shift, and loses nothing anywhere."""

    def __init__(self, effect: float = 1.0) -> None:
        self.effect = effect

    def accuracy(self, key: dict[str, Any]) -> float:
        strategy, size, severity = key["strategy"], key["batch_size"], key["severity"]
        fall = 0.08 * HARD.get(key["corruption"], 0.8) * severity
        better = {"ensemble": 0.02}.get(key["method"], 0.0) + 0.9
        train = better - fall
        skew = 0.3 if key["order"] != "shuffled" else 0.0
        batch = better - 0.5 * fall - 0.02 - 0.3 / size - skew
        best = max(train, batch + skew) + (0.06 if severity else 0.001)
        if strategy == "train":
            return train
        if strategy.startswith("auto"):
            best += 0.02 if "passes=4" in strategy else 0.0
            return self.effect * best + (1 - self.effect) * batch
        return batch + (0.01 if strategy.startswith("prior") else 0.0) if strategy != "batch" else batch

    def write(self, folder: Path, *, skip: tuple[str, ...] = (), quick: bool = False) -> Path:
        """`folder` is that of CIFAR-10; that of ImageNet is next to it."""
        for name in AUTO_PLANS:
            if name not in skip:
                self._write(folder.parent / PLANS[name].data_set, name, quick)
        return folder

    def _write(self, folder: Path, name: str, quick: bool) -> None:
        random = np.random.default_rng(0)
        order = random.permutation(IMAGES)
        rows, hits = [], []
        for key in keys(PLANS[name].version(quick)):
            accuracy = min(max(self.accuracy(key) + 0.0002 * random.normal(), 0.05), 0.99)
            adapted = key["strategy"] != "train"
            share = 0.5 - 0.1 * adapted - 0.1 * self.effect * key["strategy"].startswith("auto")
            ece = (share - (0.05 if key["method"] == "temperature" else 0)) * (1 - accuracy)
            metrics = {"accuracy": accuracy, "ece": ece, "brier": 1.3 * (1 - accuracy) + ece**2}
            rows += [{**key, "metric": metric, "value": value} for metric, value in metrics.items()]
            if PLANS[name].full.hits:
                right = np.zeros(IMAGES, bool)
                right[order[: round(IMAGES * accuracy)]] = True
                hits.append({**key, "hits": np.packbits(right).tobytes()})
        write_run(folder, name, {"images": IMAGES}, rows, quick=quick, hits=hits)
