"""A small U-Net on shifted pictures of shapes: mIoU with the strategies train, batch, prior and auto.

    python benchmarks/segmentation.py             # some minutes on one core
    python benchmarks/segmentation.py --markdown  # measures nothing: the table of docs/segmentation.md from results/

Pictures of 64×64 pixels show discs, squares and triangles in random colours on a textured background; the classes are
these three and the background. The network is trained on clean pictures, calibrated on others, and tested on new ones
under the corruptions of `predbn.shifts` at three severities, in batches of 50 and of 4; elastic_transform is left out,
because it moves the pixels and not their labels. Writes results/segmentation.json.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import predbn
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.common import hardware_of, package_versions
from predbn.shifts import corrupt, names

RESULT = RESULTS / "segmentation.json"
SIZE, CLASSES, WIDTH = 64, 4, 12
STEPS, BATCH = 400, 16
CALIBRATION, TEST = 400, 100
SEVERITIES, BATCH_SIZES = (1, 3, 5), (50, 4)
CORRUPTIONS = [name for name in names("all") if name != "elastic_transform"]
"""Those that leave every pixel where its label is."""
STRATEGIES = ("train", "batch", "prior(N=16)", "auto")


def shapes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures, uint8 [N, 3, 64, 64], and the class of each pixel, [N, 64, 64]."""
    draws = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    pictures = torch.empty(count, 3, SIZE, SIZE)
    labels = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    for i in range(count):
        texture = torch.rand(1, 3, 8, 8, generator=draws)
        pictures[i] = 0.25 + 0.35 * F.interpolate(texture, SIZE, mode="bilinear")[0]
        for shape in torch.randperm(3, generator=draws).tolist():
            y, x, radius = (
                torch.rand(3, generator=draws) * torch.tensor([44, 44, 8]) + torch.tensor([10, 10, 6])
            ).tolist()
            dy, dx = rows - y, columns - x
            inside = [
                dy**2 + dx**2 < radius**2,
                (dy.abs() < 0.85 * radius) & (dx.abs() < 0.85 * radius),
                (dy < 0.8 * radius) & (dy + radius > 2 * dx.abs()),
            ][shape]
            colour = torch.rand(3, generator=draws)
            pictures[i][:, inside] = (0.3 * colour + 0.7 * (colour > 0.5))[:, None]
            labels[i][inside] = shape + 1
    return (255 * pictures).clamp(0, 255).to(torch.uint8), labels


def block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Three scales; takes uint8 pictures and gives the scores of the classes for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = block(3, WIDTH), block(WIDTH, 2 * WIDTH), block(2 * WIDTH, 4 * WIDTH)
        self.up2, self.up1 = block(6 * WIDTH, 2 * WIDTH), block(3 * WIDTH, WIDTH)
        self.head = nn.Conv2d(WIDTH, CLASSES, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        fine = self.down1(pictures / 127.5 - 1)
        medium = self.down2(F.max_pool2d(fine, 2))
        coarse = self.middle(F.max_pool2d(medium, 2))
        medium = self.up2(torch.cat([medium, F.interpolate(coarse, scale_factor=2)], 1))
        return self.head(self.up1(torch.cat([fine, F.interpolate(medium, scale_factor=2)], 1)))


def train() -> UNet:
    torch.manual_seed(0)
    model = UNet().to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=STEPS)
    for step in range(STEPS):
        pictures, labels = shapes(BATCH, seed=1_000_000 + step)
        loss = F.cross_entropy(model(pictures), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    return model.eval()


@torch.no_grad()
def mean_iou(model: nn.Module, pictures: Tensor, labels: Tensor, size: int) -> float:
    """In %: of each class the pixels that are both predicted and labelled so, over those that are either."""
    confusion = torch.zeros(CLASSES * CLASSES, dtype=torch.long)
    for x, y in zip(pictures.split(size), labels.split(size), strict=True):
        pairs = CLASSES * y + model(x).argmax(1)
        confusion += torch.bincount(pairs.flatten(), minlength=CLASSES * CLASSES)
    counts = confusion.view(CLASSES, CLASSES).double()
    both = counts.diagonal()
    return 100 * (both / (counts.sum(0) + counts.sum(1) - both)).mean().item()


def measure() -> dict[str, Any]:
    model = train()
    predbn.calibrate(model, shapes(CALIBRATION, seed=1)[0].split(50))
    pictures, labels = shapes(TEST, seed=2)
    rows = []
    for corruption, severity in [("clean", 0), *((name, level) for name in CORRUPTIONS for level in SEVERITIES)]:
        shifted = pictures
        if severity:
            shifted = corrupt(pictures, corruption, severity, seed=0, index=range(TEST))
        for strategy in STRATEGIES:
            for size in BATCH_SIZES:
                predbn.adapt(model, strategy)
                row = {"corruption": corruption, "severity": severity, "strategy": strategy, "batch_size": size}
                rows.append({**row, "mean_iou": mean_iou(model, shifted, labels, size)})
        print(corruption, severity, [round(row["mean_iou"], 1) for row in rows[-8:]], flush=True)
    return {"environment": {**package_versions(), **hardware_of("cpu")}, "rows": rows}


def markdown() -> str:
    """Mean IoU in %, over the corruptions."""
    rows = read_results(RESULT)["rows"]
    heads = ["clean", *(f"severity {severity}" for severity in SEVERITIES)]
    table = []
    for size in BATCH_SIZES:
        for strategy in STRATEGIES:
            cells = []
            for severity in (0, *SEVERITIES):
                key = {"severity": severity, "strategy": strategy, "batch_size": size}
                found = [row["mean_iou"] for row in rows if key.items() <= row.items()]
                cells.append(f"{sum(found) / len(found):.1f}")
            table.append([str(size), f"`{strategy}`", *cells])
    return markdown_table(["batches of", "strategy", *heads], table, left=(1,))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print the table from results/, and measure nothing")
    if not parser.parse_args().markdown:
        torch.set_num_threads(1)
        write_results(RESULT, measure())
    print(markdown())
