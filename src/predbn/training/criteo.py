"""Training the Criteo network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from predbn.common import derive_seed
from predbn.data import CRITEO_WIDTH, Rows
from predbn.models import ClickModel, CriteoNetwork, load_criteo

from .networks import train_networks
from .optimisers import make_adam
from .process_group import ProcessGroup
from .recipes import CriteoRecipe
from .scoring import backend_settings, score
from .trainer import Trainer, build_seeded

WINDOW = 1 << 20
_GPU_SHARE = 0.6
_SCORED_AT_ONCE = 8192


@dataclass(frozen=True)
class CriteoData:
    """The three parts of the data."""

    train: Rows
    validation: Rows
    test: Rows


def epoch_batches(rows: int, size: int, *, seed: int, epoch: int) -> Iterator[Tensor]:
    """The indices of the rows of each batch of an epoch; the last, incomplete batch is dropped.

    Windows of a million consecutive rows come in random order, and so do the rows within a window. The rows that are
    read at a time are therefore in a small part of the file, and memory does not grow with the data.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "criteo order", epoch) >> 1)
    rest = torch.empty(0, dtype=torch.int64)
    for window in torch.randperm(-(-rows // WINDOW), generator=generator).tolist():
        first = window * WINDOW
        positions = torch.randperm(min(WINDOW, rows - first), generator=generator) + first
        positions = torch.cat((rest, positions))
        whole = len(positions) // size * size
        yield from positions[:whole].split(size)
        rest = positions[whole:]


class CriteoTrainer(Trainer):
    """The training of one seed.

    The rows of a batch are gathered on the GPU if all of them are there, or copied from the mapped files.
    """

    recipe: CriteoRecipe
    network: CriteoNetwork
    architecture = "criteo-mlp"
    optimiser_name = "Adam"
    headline = "validation_auc"
    card_in_weights = True

    def __init__(self, recipe: CriteoRecipe, seed: int, data: CriteoData, device: torch.device) -> None:
        self.data = data
        network = build_seeded(seed, lambda: CriteoNetwork(recipe.sizes, eps=recipe.eps, momentum=recipe.norm_momentum))
        model = ClickModel(network).to(device)
        learning_rate = torch.tensor(recipe.learning_rate, device=device)
        optimiser = make_adam(network.parameters(), learning_rate, momentum=recipe.momentum, eps=recipe.adam_eps)
        super().__init__(
            recipe,
            seed,
            model,
            optimiser,
            ProcessGroup(device),
            examples=len(data.train),
            bf16=recipe.precision == "bf16",
        )
        self.batch = torch.zeros((recipe.batch_size, CRITEO_WIDTH), dtype=torch.int32, device=device)
        self.best: dict[str, Any] = {"loss": float("inf"), "epoch": 0, "network": network.state_dict()}
        self._positions: Iterator[Tensor] = iter(())

    def begin_epoch(self) -> None:
        batches = epoch_batches(len(self.data.train), self.recipe.batch_size, seed=self.seed, epoch=self.epoch)
        self._positions = islice(batches, self.step, None)

    def train_step(self) -> None:
        with backend_settings(torch.backends.cuda.matmul, allow_tf32=self.recipe.precision != "fp32"):
            super().train_step()

    def load_batch(self) -> None:
        table = self.data.train.table(next(self._positions))
        if self.device.type == "cuda" and table.device.type == "cpu":
            table = table.pin_memory()
        self.batch.copy_(table, non_blocking=True)

    def read_batch(self) -> tuple[Tensor, Tensor]:
        return self.batch[:, 1:], self.batch[:, 0].long()

    def rate_at(self, step: int) -> float:
        return self.recipe.learning_rate_at(step, self.recipe.epochs * self.steps)

    def evaluate(self) -> dict[str, float]:
        loss, _ = self.mean_totals()
        scores = dict.fromkeys(("nll", "auc", "brier", "ece"), math.nan)
        if math.isfinite(loss):  # the predictions of a network that has diverged cannot be scored
            scores = score(self.model, self.data.validation, self.device, size=_SCORED_AT_ONCE)
            self.keep_if_best(scores["nll"])
        return {
            "learning_rate": self.last_rate,
            "loss": loss,
            "validation_loss": scores["nll"],
            **{f"validation_{name}": scores[name] for name in ("auc", "brier", "ece")},
        }

    def keep_if_best(self, loss: float) -> None:
        """Keep a copy of the network if its validation loss is the lowest so far."""
        if loss < self.best["loss"]:
            copies = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
            self.best = {"loss": loss, "epoch": self.epoch, "network": copies}

    @property
    def finished(self) -> bool:
        patience = self.recipe.patience
        waited = self.epoch - self.best["epoch"]
        return super().finished or (patience is not None and self.epoch > 0 and waited >= patience)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.best = state["best"]

    def final_weights(self) -> dict[str, Tensor]:
        """Those of the best epoch."""
        weights: dict[str, Tensor] = self.best["network"]
        return weights

    def card(self) -> dict[str, Any]:
        return {
            **super().card(),
            "sizes": self.recipe.sizes.to_dict(),
            "eps": self.recipe.eps,
            "trained_on": f"{self.data.train.name}: {len(self.data.train):,} rows",
            "epochs_trained": self.epoch,
            "best_epoch": self.best["epoch"],
            "validation_nll": round(self.best["loss"], 6),
        }

    def score_stored(self, weights: Path) -> dict[str, Any]:
        test, model = self.data.test, load_criteo(weights, device=self.device)
        scores = score(model, test, self.device, size=_SCORED_AT_ONCE)
        values = {name: round(value, 6) for name, value in scores.items()}
        return {"test": {"rows": len(test), "sha256": test.sums["rows"], **values}}


def train_criteo(
    recipe: CriteoRecipe,
    seeds: Sequence[int],
    data: CriteoData,
    out: Path,
    *,
    device: torch.device | str = "cpu",
    checkpoint_every: int = 5000,
    **options: Any,
) -> None:
    """Train a network with every seed, one after another, and write it to `out`/criteo-mlp, as `train_networks` says.

    `checkpoint_every` is in steps; the other options are those of `train_networks`.
    """
    device = torch.device(device)

    @cache
    def data_near_device() -> CriteoData:
        return replace(data, train=_move_if_small(data.train, device))

    train_networks(
        lambda seed: CriteoTrainer(recipe, seed, data_near_device(), device),
        recipe,
        seeds,
        out / CriteoTrainer.architecture,
        checkpoint_steps=checkpoint_every,
        **options,
    )


def _move_if_small(rows: Rows, device: torch.device) -> Rows:
    """The rows on the GPU if they take at most 60 % of its free memory; otherwise where they are, to be streamed."""
    if device.type != "cuda":
        return rows
    free, _ = torch.cuda.mem_get_info(device)
    return rows.to(device) if len(rows) * CRITEO_WIDTH * 4 <= _GPU_SHARE * free else rows
