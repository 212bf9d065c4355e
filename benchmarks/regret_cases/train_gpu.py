"""Train the networks of the regret table on CIFAR-10, all at once on one GPU, in a few minutes.

    PYTHONPATH=benchmarks python -m regret_cases.train_gpu --data DATA  # writes to DATA/networks

For a GPU machine that cannot be given all of DATA, the training set can be a few mosaics, losslessly compressed, and
the networks one file:

    python -m regret_cases.train_gpu --pack MOSAICS --data DATA
    python -m regret_cases.train_gpu --mosaics MOSAICS --data DATA --out OUT  # on the GPU machine
    python -m regret_cases.train_gpu --unpack OUT/networks.safetensors --data DATA

The second also puts the mosaics into the DATA of the GPU machine, so that benchmarks/regret.py runs there.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import predbn

from .data import Data, load, store
from .networks import NETWORKS, save, train

_COLUMNS, _ROWS, _SIDE = 50, 125, 32
"""Images of a mosaic: 8 mosaics of 6,250 images, 10.7 MB each."""

CIFAR10 = [name for name, network in NETWORKS.items() if network.data == "cifar10"]


def pack(data: Data, folder: Path) -> None:
    """Write the training set as lossless WebP mosaics, and its labels."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = (data.train * 255).round().to(torch.uint8).numpy()
    for number, images in enumerate(np.split(pixels, len(pixels) // (_ROWS * _COLUMNS))):
        tiles = images.reshape(_ROWS, _COLUMNS, 3, _SIDE, _SIDE).transpose(0, 3, 1, 4, 2)
        mosaic = Image.fromarray(tiles.reshape(_ROWS * _SIDE, _COLUMNS * _SIDE, 3))
        mosaic.save(folder / f"train_{number}.webp", lossless=True, quality=100, method=4)
    np.save(folder / "labels.npy", data.train_labels.numpy().astype(np.uint8))


def unpacked(folder: Path) -> Data:
    """The training set from its mosaics, and the 2,000 test images that come with predbn."""
    images = torch.cat([_tiles(path) for path in sorted(folder.glob("train_*.webp"))])
    labels = np.load(folder / "labels.npy")[: len(images)]
    # predbn.data needs packages that a GPU machine may not have; see predbn.data.sample.
    pictures = Path(predbn.__file__).parent / "data" / "pictures"
    test_labels = np.load(pictures / "test.npy")[:, 1].astype(np.int64)
    test = _tiles(pictures / "test.webp")[: len(test_labels)]
    return Data(images, torch.from_numpy(labels).long(), test, torch.from_numpy(test_labels))


def _tiles(path: Path) -> Tensor:
    """The images of a mosaic, float32 [N, 3, 32, 32]."""
    with Image.open(path) as picture:
        mosaic = np.asarray(picture.convert("RGB"))
    rows, columns = mosaic.shape[0] // _SIDE, mosaic.shape[1] // _SIDE
    tiles = mosaic.reshape(rows, _SIDE, columns, _SIDE, 3).transpose(0, 2, 4, 1, 3)
    return torch.from_numpy(tiles.reshape(-1, 3, _SIDE, _SIDE).copy()).float() / 255


def train_one(index: int, options: argparse.Namespace) -> None:
    """Train one network, print its accuracy, and save it; run in a process of its own."""
    torch.set_num_threads(1)
    name, start = CIFAR10[index], time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = load("cifar10", options.data)
    data = data._replace(train=data.train[: options.examples], train_labels=data.train_labels[: options.examples])

    def report(epoch: int) -> None:
        if epoch % 5 == 0:
            print(f"{name}: epoch {epoch}, {time.perf_counter() - start:.0f} s", flush=True)

    model = train(NETWORKS[name], data, device=device, epochs=options.epochs, report=report)
    accuracy = 100 * (_predicted(model, data.test.to(device)).cpu() == data.test_labels).float().mean()
    print(f"{name}: {accuracy:.1f} % of the test images, {time.perf_counter() - start:.0f} s", flush=True)
    save(model, name, options.data)


@torch.no_grad()
def _predicted(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model(batch).argmax(1) for batch in images.split(500)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of benchmarks/regret.py")
    parser.add_argument("--mosaics", type=Path, help="read the training set from mosaics")
    parser.add_argument("--pack", type=Path, help="write the training set as mosaics, and stop")
    parser.add_argument("--unpack", type=Path, help="put the networks of one file into the data folder, and stop")
    parser.add_argument("--out", type=Path, help="write all networks into one file in this folder")
    parser.add_argument("--epochs", type=int, help="instead of those of the recipe")
    parser.add_argument("--examples", type=int, help="train on the first ones only, to try the script")
    options = parser.parse_args()
    if options.unpack is not None:
        for name, weights in _by_network(load_file(options.unpack)).items():
            save_file(weights, options.data / "networks" / f"{name}.safetensors")
        return
    if options.pack is not None:
        pack(load("cifar10", options.data), options.pack)
        return
    if options.mosaics is not None:
        store("cifar10", unpacked(options.mosaics), options.data)
    torch.multiprocessing.spawn(train_one, (options,), nprocs=len(CIFAR10))
    if options.out is not None:
        paths = sorted((options.data / "networks").glob("cifar10-*.safetensors"))
        tensors = {f"{path.stem}/{key}": tensor for path in paths for key, tensor in load_file(path).items()}
        options.out.mkdir(parents=True, exist_ok=True)
        save_file(tensors, options.out / "networks.safetensors")


def _by_network(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    networks: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, own_key = key.partition("/")
        networks.setdefault(name, {})[own_key] = tensor
    return networks


if __name__ == "__main__":
    main()
