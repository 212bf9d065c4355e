"""One Criteo network being trained: its weights, its optimiser, where it is, and the step that moves them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from predbn.common import TrainingError
from predbn.data import CRITEO_WIDTH as WIDTH
from predbn.data import Rows
from predbn.metrics import ScoreHistogram, Scores
from predbn.models import ClickModel, CriteoNetwork

from .order import epoch_batches
from .recipe import CriteoRecipe

__all__ = ["CriteoTrainee", "held_where_it_fits", "score"]

_WARM_UP = 3
_SHARE = 0.6


def held_where_it_fits(rows: Rows, device: torch.device) -> Rows:
    """The rows on the GPU if they take at most 60 % of its free memory; otherwise as they are, streamed from there."""
    if device.type != "cuda":
        return rows
    free, _ = torch.cuda.mem_get_info(device)
    return rows.to(device) if len(rows) * WIDTH * 4 <= _SHARE * free else rows


class CriteoTrainee:
    """The run of one seed.

    On a GPU the step (forward and backward pass, Adam) is captured once as a CUDA graph and replayed: the rows of a
    batch are brought to a fixed place first, gathered on the GPU or copied from the mapped files.
    """

    def __init__(self, recipe: CriteoRecipe, seed: int, train: Rows, device: torch.device) -> None:
        self.recipe, self.seed, self.train, self.device = recipe, seed, train, device
        if len(train) < recipe.batch_size:
            raise TrainingError(f"{len(train)} training rows do not fill a batch of {recipe.batch_size}.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = CriteoNetwork(recipe.sizes, eps=recipe.eps, momentum=recipe.norm_momentum)
        self.model = ClickModel(network).to(device)
        self.rate = torch.tensor(recipe.learning_rate, device=device)
        self.optimiser = torch.optim.Adam(
            network.parameters(),
            lr=self.rate,
            betas=(recipe.momentum, 0.999),
            eps=recipe.adam_eps,
            fused=True,
            capturable=device.type == "cuda",
        )
        self.epoch, self.step = 0, 0
        self.steps = len(train) // recipe.batch_size
        self.batch = torch.zeros((recipe.batch_size, WIDTH), dtype=torch.int32, device=device)
        self.loss_sum = torch.zeros((), device=device, dtype=torch.float64)
        self.best: dict[str, Any] = {"loss": float("inf"), "epoch": 0, "network": network.state_dict()}
        self._replay: Callable[[], None] | None = None

    @property
    def network(self) -> CriteoNetwork:
        """The bare network."""
        return self.model.network

    def run_epoch(self, on_step: Callable[[], None] = lambda: None) -> None:
        """Take the run to the end of its epoch, from whichever step it is at."""
        batches = epoch_batches(len(self.train), self.recipe.batch_size, seed=self.seed, epoch=self.epoch)
        with _products_in(self.recipe.precision):
            for positions in islice(batches, self.step, None):
                self._take_step(positions)
                on_step()
        self.epoch, self.step = self.epoch + 1, 0

    def _take_step(self, positions: Tensor) -> None:
        if self.step == 0:
            self.loss_sum.zero_()
        table = self.train.table(positions)
        if self.device.type == "cuda" and table.device.type == "cpu":
            table = table.pin_memory()
        self.batch.copy_(table, non_blocking=True)
        self.rate.fill_(self.recipe.rate(self.epoch * self.steps + self.step, self.recipe.epochs * self.steps))
        if self.device.type == "cuda":
            if self._replay is None:
                self._replay = self._capture()
            self._replay()
        else:
            self._compute()
        self.step += 1

    def _compute(self) -> None:
        self.model.train()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._is_half, cache_enabled=False):
            logits = self.model(self.batch[:, 1:])
        loss = F.cross_entropy(logits.float(), self.batch[:, 0].long())
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.loss_sum.add_(loss.detach())

    @property
    def _is_half(self) -> bool:
        return self.recipe.precision == "bf16" and self.device.type == "cuda"

    def _capture(self) -> Callable[[], None]:
        """The step as a CUDA graph. The steps that warm up for it are undone: only replays count."""
        weights = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        moments = {p: {k: v.clone() for k, v in state.items()} for p, state in self.optimiser.state.items()}
        total = self.loss_sum.clone()
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._compute()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._compute()
        self.network.load_state_dict(weights)
        for parameter, state in self.optimiser.state.items():
            for name, tensor in state.items():
                kept = moments.get(parameter, {}).get(name)
                tensor.zero_() if kept is None else tensor.copy_(kept)
        self.loss_sum.copy_(total)
        return graph.replay

    def remember_if_best(self, loss: float) -> None:
        """Keep the network as it is now if no epoch before had a validation loss as low."""
        if loss < self.best["loss"]:
            copied = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
            self.best = {"loss": loss, "epoch": self.epoch, "network": copied}

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to do: the last epoch is over, or patience is."""
        patience = self.recipe.patience
        waited = self.epoch - self.best["epoch"]
        return self.epoch >= self.recipe.epochs or (patience is not None and self.epoch > 0 and waited >= patience)

    def state(self) -> dict[str, Any]:
        """All that is needed to go on: weights, moments, epoch and step, the best so far, recipe and seed."""
        return {
            "recipe": self.recipe.describe(),
            "seed": self.seed,
            "epoch": self.epoch,
            "step": self.step,
            "loss_sum": self.loss_sum,
            "best": self.best,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there; before the first step."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate
        self.epoch, self.step, self.best = state["epoch"], state["step"], state["best"]
        self.loss_sum.copy_(state["loss_sum"])


@torch.no_grad()
def score(model: ClickModel, rows: Rows, device: torch.device, *, size: int = 8192) -> dict[str, float]:
    """Accuracy, AUC, NLL, Brier score (of both classes together) and ECE with the statistics of training."""
    scores, histogram = Scores(len(rows.classes)), ScoreHistogram()
    model.eval()
    for batch in rows.batches(size, device=device):
        logs = model(batch.inputs).float().log_softmax(1)
        scores.update(logs.exp(), batch.labels, log_probabilities=logs)
        histogram.update(logs[:, 1].exp(), batch.labels)
    found = scores.compute()
    return {**{name: found[name] for name in ("accuracy", "nll", "brier", "ece")}, "auc": histogram.auc()}


@contextmanager
def _products_in(precision: str) -> Iterator[None]:
    """TF32 for products of float32 matrices, or not."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
