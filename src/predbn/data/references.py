"""Data sets by reference, as on the command line.

| reference | data |
|---|---|
| `sample` | the embedded sample of CIFAR-10 |
| `cifar10`, `cifar10:PATH` | CIFAR-10 from the cache, or from a folder or .tar.gz |
| `imagenet:DIR`, `imagenet-v2:DIR`, `imagenet-a:DIR`, `imagenet-r:DIR` | ImageNet and related sets |
| `loader:module:function` | what a function of yours returns: a DataLoader |
| a folder with `images.npy` and `labels.npy` | these images |
| a folder of class folders | their pictures |

The first two have parts, such as "validation" and "test". References of shifted data, for `open_shifted`:

| reference | data |
|---|---|
| `imagenet-c:DIR` | ImageNet-C with all 1,000 classes |
| a folder with `labels.npy` and `<corruption>.npy` | an array per corruption, as CIFAR-10-C |
| a folder of `<corruption>/<severity>` | class folders per severity, as ImageNet-C |

Rows of a table, for `open_rows` and `open_randomised`: `criteo`, `criteo:FOLDER` or `criteo:FOLDER#PART`. Without a
part the caller chooses one; `#all` is for a folder that is a test set as a whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast, get_args

import torch

from predbn.common import DataError, Progress

from .cifar10 import cifar10, sample
from .cifar10c import Cifar10C
from .criteo import Part as CriteoPart
from .criteo import Randomised, Rows, criteo
from .folder import from_folder
from .imagenet import USUAL_CROP, ImageNetSet, imagenet, list_imagenet
from .imagenetc import ImageNetC
from .images import UNLABELLED, Images
from .loader import from_loader, is_loader
from .npy import from_npy, load_images
from .pictures import SUFFIXES, ResizeCrop, check_kind, is_picture
from .reading import readable

_IMAGENET_C = "imagenet-c"
IMAGENET_SETS = (*get_args(ImageNetSet), _IMAGENET_C)


def open_images(
    reference: str,
    part: str,
    *,
    transform: ResizeCrop | None = None,
    images: int | None = None,
    progress: Progress | None = None,
) -> Images:
    """Labelled images by reference; `part` is for the data sets that have parts.

    Pictures of ImageNet and of folders are resized and cropped by `transform`. Without it, those of ImageNet become
    224 × 224 pixels and those of folders stay as they are. With `images` only that many of them are
    decoded; other data is returned as a whole. `progress` is called with the number of decoded pictures and the total.
    """
    name, _, path = reference.partition(":")
    if reference == "sample":
        return sample(part)  # type: ignore[arg-type]
    if name == "cifar10":
        return cifar10(part, path or None)  # type: ignore[arg-type]
    if name == _IMAGENET_C:
        raise DataError(f"data {reference} has corrupted pictures: name the clean ones, as in imagenet:DIR.")
    if name in IMAGENET_SETS:
        crop = transform or USUAL_CROP
        return imagenet(imagenet_folder(reference), cast(ImageNetSet, name), crop, images=images, progress=progress)
    if is_loader(reference):
        return from_loader(reference, images)
    folder = Path(reference).expanduser()
    if not folder.exists():
        raise DataError(
            f"There is no data {reference!r}: use sample, cifar10, cifar10:PATH, imagenet:DIR (or imagenet-v2, "
            "imagenet-a, imagenet-r), loader:MODULE:FUNCTION, or a folder that exists."
        )
    if (folder / "images.npy").exists():
        return from_npy(folder)
    return from_folder(folder, transform, images=images, progress=progress)


def is_shifted(reference: str) -> bool:
    """Whether a reference names data that is already shifted, for `open_shifted`."""
    if reference.partition(":")[0] in ("sample", "cifar10", *IMAGENET_SETS):
        return reference.startswith(_IMAGENET_C)
    folder = Path(reference).expanduser()
    if (folder / "images.npy").exists():
        return False
    return (folder / "labels.npy").exists() or any((entry / "1").is_dir() for entry in folder.glob("*"))


def open_shifted(
    reference: str, clean: str | None = None, *, transform: ResizeCrop | None = None
) -> Cifar10C | ImageNetC:
    """Shifted data by reference.

    `clean` gives the clean images, which the published files do not contain: any reference of `open_images` for the
    layout of CIFAR-10-C, a folder of class folders (or `imagenet:DIR`) for that of ImageNet-C.
    """
    if not is_shifted(reference):
        raise DataError(f"data {reference!r} is not shifted data: use imagenet-c:DIR or a folder with its layout.")
    folder = Path(reference).expanduser()
    if (folder / "labels.npy").exists():
        return Cifar10C(folder, clean=None if clean is None else open_images(clean, "test"))
    originals = None if clean is None else Path(clean.removeprefix("imagenet:")).expanduser()
    is_imagenet = reference.startswith(_IMAGENET_C)
    root = imagenet_folder(reference) if is_imagenet else folder
    data = ImageNetC(root, clean=originals, transform=transform)
    if is_imagenet:
        # All classes are required, because a label is the position of a model's logit.
        list_imagenet(data.root / data.names[0] / "1")
        if originals is not None:
            list_imagenet(originals)
    return data


def unlabelled_array(path: Path) -> Images | None:
    """The images of a .npy file, or of a folder with `images.npy`, without labels; None if `path` is neither."""
    if path.suffix != ".npy" and (path / "images.npy").is_file():
        path = path / "images.npy"
    if path.suffix != ".npy":
        return None
    images = load_images(path)
    return Images(images, torch.zeros(len(images), dtype=torch.int64), torch.arange(len(images)), UNLABELLED, path.stem)


def pictures_below(root: Path) -> list[str]:
    """The paths of all pictures in a folder and its subfolders, sorted; an error if there are none."""

    def fail(error: OSError) -> None:
        raise error

    with readable(root):
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(root, onerror=fail) for name in names]
    for path in paths:
        check_kind(path)
    pictures = sorted(path for path in paths if is_picture(os.path.basename(path)))
    if not pictures:
        raise DataError(f"{root} has no pictures: name a folder that has some ({', '.join(SUFFIXES)}).")
    return pictures


def imagenet_folder(reference: str) -> Path:
    """The folder of a reference such as `imagenet:DIR`; an error without one, since ImageNet is not downloaded."""
    name, _, path = reference.partition(":")
    if not path:
        raise DataError(f"data {name} is read from a folder of yours: add --root DIR, or write {name}:DIR.")
    return Path(path).expanduser()


def is_tabular(reference: str) -> bool:
    """Whether a reference names rows of a table, for `open_rows`."""
    return reference.partition(":")[0] == "criteo"


def open_rows(reference: str, part: CriteoPart) -> Rows:
    """Rows by reference; `part` is used if the reference names none."""
    folder, _, named_part = reference.partition(":")[2].partition("#")
    return criteo(named_part or part, folder or None)  # type: ignore[arg-type]


def open_randomised(reference: str, block: int) -> Randomised:
    """The test rows with all their randomisations; `marginals` draws its values from the training rows.

    `block` is the size of the prediction batch: `columns` draws once for that many rows, as the reference benchmark
    does. With `#all` the training rows of the folder are among the test rows, so there are none to draw values from.
    """
    test = open_rows(reference, "test")
    train = None if reference.endswith("#all") else open_rows(reference.partition("#")[0], "train")
    return Randomised(test, train=train, block=block)
