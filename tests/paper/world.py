"""Made-up results in the format of real ones, for two worlds: one that is as the paper says, and one in which
prediction-time BN does exactly what train BN does. All values are formulas, so it is known what a claim must find.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from predbn.evaluation import Plan, Setting
from predbn.norm import Train
from predbn.paper import PLANS
from predbn.paper.networks import WITH_BATCH_NORM
from predbn.paper.plans import CRITEO, IMAGENET
from predbn.paper.plans.cifar10 import ACTIVATIONS, CROPS
from predbn.paper.plans.criteo import NETWORK as CRITEO_NETWORK
from predbn.paper.run_activations import HISTOGRAMS, POOLED, SPECTRA
from predbn.shifts import names

from .keys import keys, write_run

IMAGES = 10_000
HARDNESS = dict(zip(names("all"), np.random.default_rng(0).uniform(0.25, 1.5, 19), strict=True))
MEAN_HARDNESS = sum(HARDNESS.values()) / 19
CLEAN = {"batch": 0.92, "instance": 0.87, "layer": 0.89, "group": 0.90, "fixup": 0.91, "last": 0.90}
FALL = {"batch": 0.09, "instance": 0.06, "layer": 0.085, "group": 0.08, "fixup": 0.09, "last": 0.09}


@dataclass(frozen=True)
class World:
    """With `effect` 1 prediction-time BN does what the paper says, with 0 it does what train BN does."""

    effect: float = 1.0

    def accuracy(self, kind: str, method: str, setting: Setting, hard: float, severity: int, batch: int) -> float:
        fall = FALL[kind] * hard * severity
        clean = CLEAN[kind] + (0.02 if method == "ensemble" else 0.0)
        better = 0.035 * (0.6 + 0.4 * hard) * severity * (0.5 if method == "ensemble" else 1)
        loss = 0.008 + 0.2 / batch**0.8 + (0.01 if kind == "last" else 0.0)
        if isinstance(setting.strategy, Train):
            return clean - fall
        if setting.layers == "last":
            return clean - fall - self.effect * 0.01 * (1 + severity)
        if str(setting.strategy).startswith("frozen"):
            loss += 0.004
        eps = float(setting.eps or 1e-3)
        loss += 0.0 if eps <= 0.01 else 0.004 if eps <= 0.1 else 0.05 * (1 + math.log10(eps / 0.1))
        return clean - fall + self.effect * (fall - better - loss)

    def ece(self, kind: str, method: str, setting: Setting, accuracy: float) -> float:
        share = {"vanilla": 0.6, "temperature": 0.45, "ensemble": 0.3}[method]
        share *= 0.1 if kind == "instance" else 1.0
        adapted = not isinstance(setting.strategy, Train)
        if adapted and setting.layers != "last":
            share *= 1 - 0.4 * self.effect
        eps = float(setting.eps or 1e-3)
        orders = math.log10(eps / 1e-3)
        if adapted and orders > 0:
            share *= 1 + self.effect * (0.3 * orders if method == "ensemble" else -0.3 * min(orders, 2))
        return 0.004 + share * (1 - accuracy)

    def rows(self, plan: Plan, name: str = "") -> Iterator[dict[str, Any]]:
        if plan.data == "criteo":
            yield from self.clicks(plan)
            return
        random = np.random.default_rng(1)
        for key in keys(plan, IMAGES):
            kind = key["model"].split("/")[1].split("[")[0]
            setting = Setting.parse(key["strategy"])
            mixed = key["corruption"].startswith("mixed")
            hard = MEAN_HARDNESS if mixed else HARDNESS.get(key["corruption"], 0.0)
            hidden = key["method"], setting, hard, key["severity"], key["batch_size"]
            network = int(key["model"][-1]) if key["model"][-1].isdigit() else 5
            noise = 0.0004 * network + 0.0005 * random.normal()
            accuracy = self.accuracy(kind, *hidden) + noise
            accuracy -= 0.02 * self.effect if mixed and key["strategy"] == "batch" else 0
            accuracy += 0.009 * self.effect if name == CROPS and key["strategy"] == "batch" else 0
            accuracy = min(max(accuracy, 0.1), 0.99)
            ece = self.ece(kind, key["method"], setting, accuracy)
            metrics = {"accuracy": accuracy, "ece": ece, "brier": 1.35 * (1 - accuracy) + ece**2 + 0.01}
            if name == ACTIVATIONS:
                metrics = self.activations(setting, hard, key["severity"], 1 - accuracy)
            for metric, value in metrics.items():
                yield {**key, "metric": metric, "value": value}

    def clicks(self, plan: Plan) -> Iterator[dict[str, Any]]:
        """Ten networks on randomised rows: prediction statistics halve the loss, and help on later rows."""
        kinds = ("clean", *(() if plan.shifts == ("clean",) else ("columns", "tokens", "marginals")))
        members = [f"{CRITEO_NETWORK}/{seed}" for seed in range(10)]
        for method in plan.methods:
            for model in [f"{CRITEO_NETWORK}/*"] if method == "ensemble" else members:
                for strategy, kind in product(plan.strategies, kinds):
                    for severity, seed in product((0,) if kind == "clean" else plan.severities, plan.seeds):
                        adapted = self.effect * strategy.startswith("batch")
                        fall = 0.002 * severity * (1 - 0.5 * adapted * (kind != "marginals"))
                        offset = 0.001 * int(model[-1] if model[-1].isdigit() else 5) + 0.002 * adapted
                        auc = 0.75 - fall + offset
                        key = {"model": model, "method": method, "strategy": strategy, "corruption": kind}
                        key |= {"severity": severity, "batch_size": 500, "order": "official", "seed": seed}
                        for metric, value in {"auc": auc, "brier": 1 - auc, "ece": 0.1 * (1 - auc)}.items():
                            yield {**key, "metric": metric, "value": value}

    def activations(self, setting: Setting, hard: float, severity: int, error: float) -> dict[str, float]:
        """Measurements inside a network: they grow with the error, and prediction statistics remove most of it."""
        moved = hard * severity if isinstance(setting.strategy, Train) else hard * severity * (1 - 0.95 * self.effect)
        values = {
            "divergence": 0.1 + 4 * moved + error,
            "distance": 0.05 + 0.2 * moved,
            "outside": 0.001 + 0.01 * moved,
            "spectrum_gap": 0.1 + 0.3 * moved,
            "logit_gap": 0.1 + 0.3 * moved,
        }
        return values | {f"{metric}_crops": value for metric, value in values.items()}

    def write(self, folder: Path, *, quick: bool = False, skip: tuple[str, ...] = ()) -> Path:
        for plan in PLANS.values():
            if plan.data_set != IMAGENET and plan.name not in skip:
                what = "rows" if plan.data_set == CRITEO else "images"
                rows = list(self.rows(plan.version(quick), plan.name))
                write_run(folder, plan.name, {what: IMAGES}, rows, quick=quick)
                if plan.name == ACTIVATIONS:
                    _write_activations(folder / plan.name, 1.5 * self.effect + 0.1 * (1 - self.effect))
        return folder


def _write_activations(folder: Path, moved_with_train: float) -> None:
    """Histograms of normal distributions and exponential spectra, shifted for train BN."""
    histograms, spectra, pooled = [], [], []
    places = {"norm1": 4, "layer2.0.norm1": 4, "layer3.2.norm2": 4, "embeddings": 4, "logits": 10}
    for series, moved in (("training", 0.0), ("train", moved_with_train), ("batch", 0.1)):
        shared = {"model": f"{WITH_BATCH_NORM}/0", "series": series}
        for place, channels in places.items():
            for channel in range(channels):
                for x in np.linspace(-4, 4, 41):
                    density = math.exp(-((x - moved) ** 2) / 2)
                    histograms.append({**shared, "place": place, "channel": channel, "x": x, "density": density})
        for place, dimensions in (("embeddings", 64), ("logits", 10)):
            for rank in range(1, dimensions + 1):
                value = 20 * math.exp(-0.3 * rank * (1 + moved))
                spectra.append({**shared, "place": place, "rank": rank, "value": value})
        for number, (place, reference) in product(range(10), product(places, ("crops", "whole", "itself"))):
            key = {"model": f"{WITH_BATCH_NORM}/{number}", "series": series, "place": place, "reference": reference}
            pooled += [{**key, "distance": moved + 0.001 * number}] if series != "training" else []
    pq.write_table(pa.Table.from_pylist(pooled, POOLED), folder / "pooled.parquet")
    pq.write_table(pa.Table.from_pylist(histograms, HISTOGRAMS), folder / "histograms.parquet")
    pq.write_table(pa.Table.from_pylist(spectra, SPECTRA), folder / "spectra.parquet")
