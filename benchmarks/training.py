"""How fast networks are trained, compared with a plain training loop; and what our kernels contribute to that.

    python benchmarks/training.py             # on a GPU: a minute or two
    python benchmarks/training.py --kernels   # on a GPU: some minutes, most of them compilation
    python benchmarks/training.py --markdown  # measures nothing: the table of docs/training.md from results/

All train ResNet-20 in bf16 and channels_last on 45,000 random images in GPU memory, with the same augmentation.
`plain` is eager: forward, backward, `torch.optim.Adam`, one network after another within a step. `predbn` is the
loop of `predbn.training`. With --kernels the loop is the same for all, one CUDA graph per step, and the network has
PyTorch's own kernels, is compiled by `torch.compile`, or has ours (`predbn.models.accelerate`). Every round measures
all in turn; the numbers are medians over the rounds of the network-epochs per second, of their ratio within a round
and, with --kernels, the seconds from the first step of the first network to the end of all first steps: compilation
and the capture of the graphs. Prints a table and writes results/training-speed.json or results/training-kernels.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from predbn.data import Images
from predbn.models import NORMALISATIONS, accelerate, resnet20
from predbn.training import Cifar10Data, Cifar10Recipe, crop_images, draw_crops
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.loop import TrainingRun, run_epoch

RESULTS = Path(__file__).resolve().parent.parent / "results"
TARGET = 2.0
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


def measure_speed(norm: str, count: int, data: Cifar10Data, rounds: int) -> dict[str, Any]:
    """Our loop against the plain one."""
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


KERNELS: dict[str, Callable[[torch.nn.Module], object]] = {
    "torch": lambda network: network,
    "compiled": lambda network: network.compile(),
    "predbn": accelerate,
}
"""What is done to a network before it is trained, by the name of the kernels that it then has."""


def measure_kernels(norm: str, count: int, data: Cifar10Data, rounds: int) -> dict[str, Any]:
    """The same loop with PyTorch's kernels, with compiled ones, and with ours."""
    torch.compiler.reset()  # nothing that was compiled for another normalisation
    runs, before = {}, {}
    for name, prepare in KERNELS.items():
        with mock.patch("predbn.training.cifar10.trainer.accelerate", prepare):
            runs[name] = make_runs(norm, count, data)
        before[name] = timed(lambda runs=runs[name]: first_steps(runs))
    seconds = {name: [] for name in KERNELS}
    for _ in range(rounds):
        for name in KERNELS:
            seconds[name].append(timed(lambda name=name: run_epoch(runs[name])))
    return {
        "norm": norm,
        "networks": count,
        **{f"{name}_epochs_per_second": round(count / statistics.median(seconds[name]), 2) for name in KERNELS},
        **{f"{name}_first_steps_seconds": round(before[name], 1) for name in KERNELS},
    }


def markdown(path: Path = RESULTS / "training-speed.json") -> str:
    """The table of our loop and the plain one."""
    headings = ("normalisation", "networks at once", "plain, epochs/s", "predbn, epochs/s", "ratio")
    return _table(path, headings, ("norm", "networks", "plain_epochs_per_second", "predbn_epochs_per_second", "ratio"))


def kernels_markdown(path: Path = RESULTS / "training-kernels.json") -> str:
    """The table of the kernels."""
    headings = ("PyTorch's kernels, epochs/s", "compiled, epochs/s", "ours, epochs/s", "compiled, first steps, s")
    keys = (*(f"{name}_epochs_per_second" for name in KERNELS), "compiled_first_steps_seconds")
    return _table(path, ("normalisation", "networks at once", *headings), ("norm", "networks", *keys))


def _table(path: Path, headings: tuple[str, ...], keys: tuple[str, ...]) -> str:
    rows = [[str(row[key]) for key in keys] for row in json.loads(path.read_text())["rows"]]
    lines = [f"| {' | '.join(cells)} |" for cells in (headings, *rows)]
    return "\n".join([lines[0], "|---" * len(headings) + "|", *lines[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", action="store_true", help="compare kernels instead of loops")
    parser.add_argument("--markdown", action="store_true", help="print the recorded table and stop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--norms", nargs="*", default=list(NORMALISATIONS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    measure, table = (measure_kernels, kernels_markdown) if options.kernels else (measure_speed, markdown)
    out = options.out or RESULTS / f"training-{'kernels' if options.kernels else 'speed'}.json"
    if options.markdown:
        print(table(out))
        return
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs a GPU.")
    torch.backends.cudnn.deterministic = True
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (45_000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (45_000,), generator=generator)
    train = Images(images, labels, torch.arange(45_000), tuple("0123456789"), "random")
    data = Cifar10Data(train, train.take(64), train.take(64), torch.device("cuda"))
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    if not options.kernels:
        results["target"] = TARGET
    results["rows"] = []
    for norm in options.norms:
        for count in (1, 4, 10) if norm == "batch" else (4,):
            results["rows"].append(measure(norm, count, data, options.rounds))
            print(results["rows"][-1], flush=True)
            out.write_text(json.dumps(results, indent=2) + "\n")
    print(table(out))


if __name__ == "__main__":
    main()
