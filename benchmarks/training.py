"""How fast networks are trained, compared with a plain training loop.

    python benchmarks/training.py   # on a GPU: a minute or two

Both train ResNet-20 in bf16 and channels_last on 45,000 random images in GPU memory, with the same augmentation.
`plain` is eager: forward, backward, `torch.optim.Adam`, one network after another within a step. `predbn` is the loop
of `predbn.training`, in which the step is a CUDA graph. Every round measures both in turn; the numbers are medians over
the rounds of the network-epochs per second, and of their ratio within a round. Prints a table and writes
results/training-speed.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from predbn.data import Images
from predbn.models import NORMALISATIONS, resnet20
from predbn.training import Cifar10Data, Cifar10Recipe, crop_images, draw_crops
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.loop import TrainingRun, run_epoch

RESULTS = Path(__file__).resolve().parent.parent / "results"
SIZE = 512


class Plain:
    """One network in an eager loop."""

    def __init__(self, norm: str, seed: int, data: Cifar10Data) -> None:
        torch.manual_seed(seed)
        self.network = resnet20(norm).to("cuda", memory_format=torch.channels_last)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.data, self.seed, self.epoch = data, seed, 0

    def begin_epoch(self) -> None:
        crops = draw_crops(len(self.data.train), SIZE, seed=self.seed, epoch=self.epoch)
        self.order, self.corner, self.mirrored = (part.cuda() for part in crops)
        self.epoch += 1

    def step(self, number: int) -> None:
        order = self.order[number]
        images = crop_images(self.data.padded(), order, self.corner[number], self.mirrored[number])
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.network(images.float() / 127.5 - 1)
            loss = F.cross_entropy(logits, self.data.labels[order])
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def plain_epoch(networks: list[Plain], steps: int) -> None:
    for network in networks:
        network.begin_epoch()
    for number in range(steps):
        for network in networks:
            network.step(number)


def timed(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def make_runs(norm: str, count: int, data: Cifar10Data) -> list[TrainingRun]:
    recipe = Cifar10Recipe(norm=norm, learning_rate=1e-3)
    return [TrainingRun(Cifar10Trainer(recipe, seed, data)) for seed in range(count)]


def first_steps(runs: list[TrainingRun]) -> None:
    for run in runs:
        run.trainer.begin_epoch()
        run.trainer.train_step()


def measure(norm: str, count: int, data: Cifar10Data, rounds: int) -> dict[str, Any]:
    """The loop of the package against the plain one."""
    steps = len(data.train) // SIZE
    plain, runs = [Plain(norm, seed, data) for seed in range(count)], make_runs(norm, count, data)
    for network in plain:
        network.begin_epoch()
        network.step(0)
    first_steps(runs)
    pairs = [(timed(lambda: plain_epoch(plain, steps)), timed(lambda: run_epoch(runs))) for _ in range(rounds)]
    return {
        "norm": norm,
        "networks": count,
        "plain_epochs_per_second": round(count / statistics.median(p for p, _ in pairs), 2),
        "predbn_epochs_per_second": round(count / statistics.median(o for _, o in pairs), 2),
        "ratio": round(statistics.median(p / o for p, o in pairs), 2),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The results as a table in Markdown."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (rows[0].keys(), *(row.values() for row in rows))]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--norms", nargs="*", default=list(NORMALISATIONS))
    parser.add_argument("--out", type=Path, default=RESULTS / "training-speed.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs a GPU.")
    torch.backends.cudnn.deterministic = True
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (45_000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (45_000,), generator=generator)
    train = Images(images, labels, torch.arange(45_000), tuple("0123456789"), "random")
    data = Cifar10Data(train, train.take(64), train.take(64), torch.device("cuda"))
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": []}
    for norm in options.norms:
        for count in (1, 4, 10) if norm == "batch" else (4,):
            results["rows"].append(measure(norm, count, data, options.rounds))
            print(results["rows"][-1], flush=True)
            options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(table(results["rows"]))


if __name__ == "__main__":
    main()
