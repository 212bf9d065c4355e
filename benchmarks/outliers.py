"""What outliers cost the other examples of their batch, with and without bounded influence.

    python benchmarks/outliers.py             # a few minutes on one core
    python benchmarks/outliers.py --markdown  # measures nothing: the table of docs/comparison.md from results/

Clean test images (the sample that comes with the package) in batches of 100, a ResNet-20 of the zoo. Some rows of each
batch are replaced: multiplied by 100 after preprocessing, black, noise of saturated pixels, or NaN. The accuracy is
that of the other rows. Writes results/outliers.json.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import predbn
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.data import sample
from predbn.models import load

RESULT = RESULTS / "outliers.json"
MODEL, BATCH = "zoo:resnet20-cifar10/batch/0", 100
STRATEGIES = {
    "`train`": ("train", False),
    "`batch`": ("batch", False),
    "`batch`, robust": ("batch", True),
    "`auto`, not robust": ("auto", False),
    "`auto`": ("auto", True),
    "`auto(passes=4)`": ("auto(passes=4)", True),
}
CASES = {
    "none": ("none", 0),
    "1 of 100 × 100": ("scaled", 1),
    "20 of 100 × 100": ("scaled", 20),
    "1 black": ("black", 1),
    "1 saturated noise": ("noise", 1),
    "20 saturated noise": ("noise", 20),
    "1 NaN": ("nan", 1),
}


def replace_rows(pixels: Tensor, normalise: torch.nn.Module, kind: str, count: int) -> Tensor:
    """The preprocessed batch with its first `count` rows replaced."""
    pixels = pixels.clone()
    if kind == "black":
        pixels[:count] = 0
    elif kind == "noise":
        generator = torch.Generator().manual_seed(0)
        pixels[:count] = 255 * torch.randint(2, pixels[:count].shape, generator=generator, dtype=torch.uint8)
    inputs = normalise(pixels).clone()
    if kind == "scaled":
        inputs[:count] *= 100
    elif kind == "nan":
        inputs[:count] = torch.nan
    return inputs


@torch.no_grad()
def measure() -> dict[str, dict[str, float]]:
    """Accuracy in % of the rows that were not replaced, by strategy and case."""
    test, model = sample("test"), load(MODEL).eval()
    network, normalise = model.network, model.normalise  # the classifier takes pixels, which cannot be NaN
    predbn.calibrate(network, [normalise(pixels) for pixels in sample("validation").images.split(250)])
    order = torch.randperm(len(test.labels), generator=torch.Generator().manual_seed(0))
    batches = [(test.images[rows], test.labels[rows]) for rows in order.split(BATCH)]
    table: dict[str, dict[str, float]] = {}
    for name, (strategy, robust) in STRATEGIES.items():
        predictor = predbn.norm.predictor(network, strategy, robust=robust)
        for case, (kind, count) in CASES.items():
            right = total = 0
            for pixels, labels in batches:
                logits = predictor(replace_rows(pixels, normalise, kind, count))
                right += int((logits.argmax(1) == labels)[count:].sum())
                total += len(labels) - count
            table.setdefault(name, {})[case] = 100 * right / total
            print(f"{name:16s} {case:20s} {table[name][case]:.1f}", flush=True)
    return table


def markdown() -> str:
    """The table of docs/comparison.md."""
    table = read_results(RESULT)["accuracy"]
    rows = [[name, *(f"{row[case]:.1f}" for case in CASES)] for name, row in table.items()]
    return markdown_table(["accuracy of the others, %", *CASES], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print the table from results/")
    if parser.parse_args().markdown:
        print(markdown())
        return
    torch.set_num_threads(1)
    card = {"command": "python benchmarks/outliers.py", "model": MODEL, "torch": torch.__version__}
    write_results(RESULT, {"card": card, "accuracy": measure()})
    print(f"Wrote {RESULT.name}")


if __name__ == "__main__":
    main()
