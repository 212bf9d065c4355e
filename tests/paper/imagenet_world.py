"""Made-up results of the ImageNet plans: a world as the paper says, and one without any effect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from predbn.evaluation import Plan, Setting
from predbn.metrics import ALEXNET_ERRORS
from predbn.paper.plans.imagenet import IMAGENET_PLANS, LITE0

from .keys import keys, write_run

IMAGES = 2_000
MCE = 60.28


class ImageNetWorld:
    """With `effect` 1, the mCE of prediction-time BN is the paper's."""

    def __init__(self, effect: float = 1.0) -> None:
        self.effect = effect

    def accuracy(self, key: dict[str, Any]) -> float:
        hard, severity = ALEXNET_ERRORS.get(key["corruption"], 0.8), key["severity"]
        error = 0.26 if severity == 0 else hard * MCE / 100 * (0.25 + 0.25 * severity)
        is_train, is_lite = key["strategy"] == "train", key["model"].startswith(LITE0)
        if is_lite:
            return 1 - error - (0 if is_train else self.effect * (0.06 - 0.0125 * severity))
        worse = -0.01 if severity == 0 else error * (0.05 + 0.02 * severity)
        lost = 0.3 / key["batch_size"] + (0.002 if key["strategy"] == "frozen" else 0) + 0.1 * (_eps(key) > 0.1)
        return 1 - error - (worse if is_train else (1 - self.effect) * worse + self.effect * lost)

    def write(self, folder: Path, *, hits: bool = True, skip: tuple[str, ...] = ()) -> Path:
        for plan in IMAGENET_PLANS:
            if plan.name not in skip:
                self._write(folder, plan.name, plan.full, hits)
        return folder

    def _write(self, folder: Path, name: str, plan: Plan, keep: bool) -> None:
        rows, hits, bins = [], [], []
        for key in keys(plan):
            right = np.zeros(IMAGES, bool)
            # The same images are hard for every strategy.
            random = np.random.default_rng([len(key["corruption"]), key["severity"], key["seed"]])
            right[random.permutation(IMAGES)[: max(1, round(IMAGES * self.accuracy(key)))]] = True
            accuracy = float(right.mean())
            share = {"train": 0.4}.get(key["strategy"], 0.4 - 0.2 * self.effect)
            share = 0.3 if key["model"].startswith(LITE0) else share - (0.02 if key["method"] == "temperature" else 0)
            ece = share * (1 - accuracy) * (0.5 if _eps(key) == 0.1 else 1.0)
            ece += 0.002 * self.effect if name == "resnet50-batch-sizes" and key["batch_size"] == 500 else 0.0
            metrics = {"accuracy": accuracy, "ece": ece, "brier": 1.2 * (1 - accuracy) + ece**2}
            lower = 0.005 * key["severity"] + 0.08 * (key["strategy"] != "train" and key["severity"] > 0)
            metrics["confidence"] = 0.65 - self.effect * lower
            rows += [{**key, "metric": metric, "value": value} for metric, value in metrics.items()]
            if plan.hits and keep:
                hits.append({**key, "hits": np.packbits(right).tobytes()})
            if plan.hits:
                bins += [{**key, **each} for each in self._bins(key["strategy"] == "train")]
        data = {"name": "imagenet", "images": IMAGES, "classes": 1000, "benchmark": "ImageNet"}
        write_run(folder, name, data, rows, hits=hits, bins=bins)

    def _bins(self, is_train: bool) -> Iterator[dict[str, Any]]:
        for number in range(0, 100, 5):
            middle = (number + 0.5) / 100
            better = 0 if is_train else self.effect
            count = round(100 * middle * (1 - better) + 100 * (1 - middle) * better) + 1
            yield {
                "bin": number,
                "lower": number / 100,
                "upper": (number + 1) / 100,
                "count": 50 * count,
                "confidence": middle,
                "accuracy": (0.5 + 0.3 * better) * middle,
            }


def _eps(key: dict[str, Any]) -> float:
    return float(Setting.parse(key["strategy"]).eps or 1e-3)
