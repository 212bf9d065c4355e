"""`auto_stream` beside `auto`: streams that change, and streams of few classes at a time.

    python benchmarks/auto_stream.py                                               # CPU, one core: ten minutes
    python benchmarks/auto_stream.py --device cuda --images 2000 --networks 0 1 2 --every 1
    python benchmarks/auto_stream.py --markdown  # measures nothing: the table of docs/auto-evidence.md from results/

Test images of CIFAR-10 that come with the package, ResNet-20 of the zoo, calibrated on 1,000 validation images, and the
15 corruptions that were not used to develop `auto`. The streams:

    in turn     ten batches of one corruption at severity 5, then ten of the next
    mixed       images in random order
    Dirichlet   classes in bursts, concentration 0.1
    sorted      by class

All but the first are clean, or under one corruption at severity 5 (a new stream for each), and half as long in batches
of 1 and 5. With fewer than 1,000 images, batches of 100 in turn are fewer than ten. Writes results/auto-stream.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import predbn
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.data import sample
from predbn.models import load
from predbn.shifts import corrupt, names, orders

RESULT = RESULTS / "auto-stream.json"
STRATEGIES = ("train", "auto(passes=1)", "auto", "auto_stream")
SEVERITY, BATCHES_IN_TURN, CHANGING = 5, 10, (20, 100)
ORDERS = {"mixed": (1, 5, 20, 100), "Dirichlet": (20, 100), "sorted": (1, 20, 100)}
Batches = list[tuple[Tensor, Tensor]]


def _order(name: str, labels: Tensor, seed: int = 0) -> Tensor:
    if name == "sorted":
        index = orders.by_class(labels.numpy(), seed=seed)
    elif name == "Dirichlet":
        index = orders.dirichlet(labels.numpy(), 0.1, seed=seed)
    else:
        index = orders.shuffled(len(labels), seed=seed)
    return torch.as_tensor(index)


def streams(images: Tensor, labels: Tensor, corruptions: list[str], every: int) -> Iterator[tuple[str, str, Batches]]:
    """The name of each stream, whether it is clean or shifted, and its batches.

    In turn all corruptions are used, otherwise one in `every`.
    """
    index = torch.arange(len(images))
    shifted = [corrupt(images, name, SEVERITY, seed=0, index=index) for name in corruptions]
    for size in CHANGING:
        batches: Batches = []
        for number, split in enumerate(shifted):
            order = _order("mixed", labels, seed=number)[: BATCHES_IN_TURN * size]
            batches += list(zip(split[order].split(size), labels[order].split(size), strict=True))
        yield f"in turn, {size}", "shifted", batches
    for name, sizes in ORDERS.items():
        for size in sizes:
            count = len(images) if size >= 20 else len(images) // 2  # small batches take long
            order = _order(name, labels[:count])
            for kind, split in [("clean", images), *(("shifted", each) for each in shifted[::every])]:
                parts = split[order].split(size), labels[order].split(size)
                yield f"{name}, {size}", kind, list(zip(*parts, strict=True))


@torch.no_grad()
def accuracy(model: nn.Module, strategy: str, batches: Batches, device: torch.device) -> float:
    """In %, of a new stream."""
    predbn.adapt(model, strategy)
    right = sum(int((model(x.to(device)).argmax(1).cpu() == y).sum()) for x, y in batches)
    return 100 * right / sum(len(y) for _, y in batches)


def measure(
    networks: list[int], count: int, corruptions: list[str], every: int, strategies: list[str], device: torch.device
) -> dict[str, dict[str, float]]:
    """Mean accuracy by stream and strategy."""
    test, sums = sample("test"), {}
    images, labels = test.images[:count], test.labels[:count]
    for network in networks:
        model = load(f"zoo:resnet20-cifar10/batch/{network}").eval().to(device)
        predbn.calibrate(model, [part.to(device) for part in sample("validation").images.split(250)])
        for name, kind, batches in streams(images, labels, corruptions, every):
            for strategy in strategies:
                if strategy == "train":  # it does not depend on the batches
                    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
                    whole = list(zip(x.split(500), y.split(500), strict=True))
                    value = accuracy(model, strategy, whole, device)
                else:
                    value = accuracy(model, strategy, batches, device)
                sums.setdefault((f"{name}, {kind}", strategy), []).append(value)
            print(network, name, kind, {s: round(sums[f"{name}, {kind}", s][-1], 1) for s in strategies}, flush=True)
    table: dict[str, dict[str, float]] = {}
    for (name, strategy), values in sums.items():
        table.setdefault(name, {})[strategy] = round(sum(values) / len(values), 2)
    return table


def markdown() -> str:
    """The table of docs/auto-evidence.md."""
    table = read_results(RESULT)["accuracy"]
    strategies = list(next(iter(table.values())))
    rows = [[name, *(f"{row[strategy]:.1f}" for strategy in strategies)] for name, row in table.items()]
    return markdown_table(["stream, batch", *(f"`{name}`" for name in strategies)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print the table from results/")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=300, help="how many test images, at most 2,000")
    parser.add_argument("--networks", type=int, nargs="+", default=[0])
    parser.add_argument("--corruptions", nargs="+", default=list(names("standard")))
    parser.add_argument("--every", type=int, default=3, help="other streams than in turn: one corruption in so many")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    arguments = parser.parse_args()
    if arguments.markdown:
        print(markdown())
        return
    torch.set_num_threads(1)
    table = measure(
        arguments.networks,
        arguments.images,
        arguments.corruptions,
        arguments.every,
        arguments.strategies,
        torch.device(arguments.device),
    )
    card = {
        "command": "python benchmarks/auto_stream.py",
        "images": arguments.images,
        "networks": arguments.networks,
        "corruptions": arguments.corruptions,
        "every": arguments.every,
        "severity": SEVERITY,
        "torch": torch.__version__,
    }
    write_results(RESULT, {"card": card, "accuracy": table})
    print(f"Wrote {RESULT.name}")


if __name__ == "__main__":
    main()
