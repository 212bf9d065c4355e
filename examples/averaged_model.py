"""Averaged weights (SWA, EMA, schedule-free, a model soup) with stale and with recomputed batch norm statistics.

    pip install schedulefree
    python examples/averaged_model.py           # trains for two to ten minutes on one core, and prints the table
    python examples/averaged_model.py --write   # also writes results/averaged.json, for docs/guides/averaged-weights.md

A ResNet-20 that comes with the package is trained further on 1,000 CIFAR-10 images, and tested on 2,000 others. Each
average is scored with the statistics that averaging leaves in it, and with those of `predbn.recompute`.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import predbn
from predbn.data import sample
from predbn.models import load

RESULT = Path(__file__).parents[1] / "results" / "averaged.json"
STEPS, BATCH, RATE = 60, 100, 0.01
TRAIN, TEST = sample("validation"), sample("test")


def train(rate: float, seed: int, after_step: Callable[[nn.Module], object] = lambda model: None) -> nn.Module:
    """The network after some more training with SGD."""
    torch.manual_seed(seed)
    model = load("zoo:resnet20-cifar10/batch/0").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for _ in range(STEPS):
        step(model, optimizer)
        after_step(model)
    return model.eval()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    chosen = torch.randperm(len(TRAIN))[:BATCH]
    optimizer.zero_grad()
    cross_entropy(model(TRAIN.images[chosen]), TRAIN.labels[chosen]).backward()
    optimizer.step()


def swa_and_ema() -> dict[str, nn.Module]:
    """Averages of one training: of the steps in its second half, and moving; with the statistics of the last step."""
    model = load("zoo:resnet20-cifar10/batch/0")
    swa, ema = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    taken = iter(range(STEPS))

    def average(trained: nn.Module) -> None:
        ema.update_parameters(trained)
        if next(taken) >= STEPS // 2:
            swa.update_parameters(trained)

    last = train(RATE, seed=0, after_step=average)
    for averaged in (swa, ema):
        for ours, theirs in zip(averaged.module.buffers(), last.buffers(), strict=True):
            ours.copy_(theirs)
    return {"last step, not averaged": last, "SWA": swa.eval(), "EMA": ema.eval()}


def schedule_free() -> nn.Module:
    """Trained without a schedule: the weights of `optimizer.eval()`, with statistics of those that were trained."""
    from schedulefree import SGDScheduleFree

    torch.manual_seed(0)
    model = load("zoo:resnet20-cifar10/batch/0").train()
    optimizer = SGDScheduleFree(model.parameters(), lr=RATE)
    optimizer.train()
    for _ in range(STEPS):
        step(model, optimizer)
    optimizer.eval()
    return model.eval()


def soup() -> nn.Module:
    """The mean of three networks trained from the same weights; of their statistics too."""
    members = [train(rate, seed) for seed, rate in enumerate((RATE / 2, RATE, 2 * RATE))]
    mixed = copy.deepcopy(members[0])
    states = [member.state_dict() for member in members]
    mean = {name: torch.stack([state[name].double() for state in states]).mean(0) for name in states[0]}
    mixed.load_state_dict({name: value.to(states[0][name].dtype) for name, value in mean.items()})
    return mixed


@torch.inference_mode()
def accuracy(model: nn.Module) -> float:
    logits = torch.cat([model(images) for images in TEST.images.split(500)])
    return (logits.argmax(1) == TEST.labels).double().mean().item()


def markdown() -> str:
    """The table of docs/guides/averaged-weights.md."""
    rows = json.loads(RESULT.read_text())
    lines = ["| | statistics as averaging leaves them | `predbn.recompute` |", "|---|--:|--:|"]
    return "\n".join([*lines, *(f"| {name} | {100 * stale:.1f} | {100 * new:.1f} |" for name, stale, new in rows)])


def main() -> None:
    if find_spec("schedulefree") is None:
        raise SystemExit("This example compares schedulefree too: pip install schedulefree.")
    models = {**swa_and_ema(), "schedule-free SGD": schedule_free(), "soup of three": soup()}
    rows = []
    for name, model in models.items():
        stale = accuracy(model)
        predbn.recompute(model, TRAIN.images.split(100))
        rows.append((name, stale, accuracy(model)))
        print(f"{name}: {stale:.1%}, with recomputed statistics {rows[-1][2]:.1%}", flush=True)
    if "--write" in sys.argv:
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
