"""Synthetic results of an evaluation: plausible and deterministic."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from predbn.shifts import names

METHODS = {"vanilla": 0.0, "temperature": 0.0, "ensemble": 0.025}
STRATEGIES = ("train", "batch")
IMAGES = 10_000
BINS = 10


def _accuracy(strategy: str, method: str, hardness: float, severity: int) -> float:
    """Train BN drops steeply with severity; batch BN starts a little lower and drops less."""
    steep = 0.095 * hardness if strategy == "train" else 0.036 * (0.6 + 0.4 * hardness)
    clean = 0.928 if strategy == "train" else 0.919
    return max(0.1, clean + METHODS[method] * (1 + severity / 2) - steep * severity**1.15)


def _excess(strategy: str, method: str, accuracy: float) -> float:
    """How far confidence lies above accuracy."""
    share = {"vanilla": 0.62, "temperature": 0.38, "ensemble": 0.22}[method]
    return share * (0.9 if strategy == "train" else 0.45) * (1 - accuracy)


def make_results(batch_size: int = 500, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The results and the reliability bins of 3 methods × 2 strategies on 19 corruptions × 5 severities."""
    random = np.random.default_rng(seed)
    hardness = dict(zip(names("all"), random.uniform(0.25, 1.5, 19), strict=True))
    hardness["jpeg_compression"] = 0.3
    splits = [("clean", 0)] + [(name, severity) for name in names("all") for severity in range(1, 6)]
    rows: list[dict[str, Any]] = []
    bins: list[dict[str, Any]] = []
    for method in METHODS:
        for strategy in STRATEGIES:
            for corruption, severity in splits:
                noise = random.normal(0, 0.004)
                accuracy = _accuracy(strategy, method, hardness.get(corruption, 0), severity) + noise
                ece = max(0.006, _excess(strategy, method, accuracy))
                key = {
                    "model": f"zoo:resnet20-cifar10/batch/{seed}",
                    "method": method,
                    "strategy": strategy,
                    "corruption": corruption,
                    "severity": severity,
                    "batch_size": batch_size,
                    "order": "shuffled",
                    "seed": 0,
                }
                brier = 1.35 * (1 - accuracy) + ece**2 + 0.01
                for metric, value in {"accuracy": accuracy, "brier": brier, "ece": ece}.items():
                    rows.append({**key, "metric": metric, "value": value})
                bins += [{**key, **row} for row in _bins(accuracy, ece)]
    return pd.DataFrame(rows), pd.DataFrame(bins)


def _bins(accuracy: float, ece: float) -> list[dict[str, Any]]:
    confidence = (np.arange(BINS) + 0.5) / BINS
    weight = np.exp(4 * confidence * (accuracy + ece)) * (confidence > 0.1)
    counts = np.floor(IMAGES * weight / weight.sum()).astype(int)
    counts[-1] += IMAGES - counts.sum()
    return [
        {
            "bin": index,
            "lower": index / BINS,
            "upper": (index + 1) / BINS,
            "count": int(count),
            "confidence": float(confidence[index]) if count else math.nan,
            "accuracy": float(confidence[index] * (1 - 1.4 * ece)) if count else math.nan,
        }
        for index, count in enumerate(counts)
    ]


def values_of(spec: dict[str, Any], layer: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that a layer of a specification draws."""
    rows: list[dict[str, Any]] = spec["datasets"][layer["data"]["name"]]
    return rows


@pytest.fixture(scope="session")
def results() -> tuple[pd.DataFrame, pd.DataFrame]:
    return make_results()


@pytest.fixture
def frame(results: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return results[0].copy()


@pytest.fixture
def rel(results: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
    return results[1].copy()
