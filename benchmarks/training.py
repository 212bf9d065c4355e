"""How fast networks are trained, compared with a plain training loop.

    python benchmarks/training.py             # on a GPU: a minute or two
    python benchmarks/training.py --markdown  # measures nothing: the table of docs/training.md from results/

Both train ResNet-20 in bf16 and channels_last on 45,000 random images in GPU memory, with the same augmentation.
`plain` is eager: forward, backward, `torch.optim.Adam`, one network after another within a step. `predbn` is the
loop of `predbn.training`. Every round measures both in turn; the numbers are medians over the rounds of the
network-epochs per second and of their ratio within a round. Prints a table and writes results/training-speed.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from predbn.data import Images
from predbn.models import NORMALISATIONS, resnet20
from predbn.training import Cifar10Data, Cifar10Recipe, crop_images, draw_crops
from predbn.training.cifar10.trainer import Cifar10Trainer
from predbn.training.loop import Run, run_epoch

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
        images = crop_images(self.data.padded, order, self.corner[number], self.mirrored[number])
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


def timed(work: object) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()  # type: ignore[operator]
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(norm: str, count: int, data: Cifar10Data, rounds: int) -> dict[str, float]:
    steps = len(data.train) // SIZE
    plain = [Plain(norm, seed, data) for seed in range(count)]
    recipe = Cifar10Recipe(norm=norm, learning_rate=1e-3)
    runs = [Run(Cifar10Trainer(recipe, seed, data)) for seed in range(count)]
    for network in plain:
        network.begin_epoch()
        network.step(0)
    for run in runs:
        run.trainer.begin_epoch()
        run.trainer.train_step()
    pairs = [(timed(lambda: plain_epoch(plain, steps)), timed(lambda: run_epoch(runs))) for _ in range(rounds)]
    return {
        "networks": count,
        "plain_epochs_per_second": round(count / statistics.median(p for p, _ in pairs), 2),
        "predbn_epochs_per_second": round(count / statistics.median(o for _, o in pairs), 2),
        "ratio": round(statistics.median(p / o for p, o in pairs), 2),
    }


def markdown(path: Path = RESULTS / "training-speed.json") -> str:
    results = json.loads(path.read_text())
    lines = [
        "| normalisation | networks at once | plain, epochs/s | predbn, epochs/s | ratio |",
        "|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        lines.append(
            f"| {row['norm']} | {row['networks']} | {row['plain_epochs_per_second']} | "
            f"{row['predbn_epochs_per_second']} | {row['ratio']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print the recorded table and stop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--norms", nargs="*", default=list(NORMALISATIONS))
    parser.add_argument("--out", type=Path, default=RESULTS / "training-speed.json")
    options = parser.parse_args()
    if options.markdown:
        print(markdown(options.out))
        return
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs a GPU.")
    torch.backends.cudnn.deterministic = True
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (45_000, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (45_000,), generator=generator)
    train = Images(images, labels, torch.arange(45_000), tuple("0123456789"), "random")
    data = Cifar10Data(train, train.take(64), train.take(64), torch.device("cuda"))
    rows = []
    for norm in options.norms:
        for count in (1, 4, 10) if norm == "batch" else (4,):
            rows.append({"norm": norm, **measure(norm, count, data, options.rounds)})
            print(rows[-1], flush=True)
            results = {
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "target": TARGET,
                "rows": rows,
            }
            options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(markdown(options.out))


if __name__ == "__main__":
    main()
