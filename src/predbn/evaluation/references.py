"""Open data by the reference in a plan: ``sample``, ``cifar10``, ``imagenet:DIR``, ``criteo`` or a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

from predbn.common import EvaluationError, Progress
from predbn.data import (
    Cifar10C,
    CriteoPart,
    ImageNetC,
    ImageNetSet,
    Images,
    Randomised,
    Rows,
    ShiftedDataset,
    cifar10,
    criteo,
    from_folder,
    from_npy,
    imagenet,
    list_imagenet,
    sample,
)
from predbn.models import Preprocessing

_PUBLISHED = "imagenet-c"
IMAGENET_SETS = (*get_args(ImageNetSet), _PUBLISHED)
"""The data sets of ImageNet, by the name in front of their folder."""


def dataset_name(reference: str) -> str:
    """What stands before the colon of a reference."""
    return reference.partition(":")[0]


def is_tabular(reference: str) -> bool:
    """Whether the reference names rows of a table."""
    return dataset_name(reference) == "criteo"


def is_imagenet(reference: str) -> bool:
    """Whether the reference names ImageNet or one of its variants."""
    return dataset_name(reference) in IMAGENET_SETS


def check_imagenet(reference: str) -> None:
    """Raise an error if ImageNet is named without its folder: it neither comes with the package nor is downloaded."""
    name, _, path = reference.partition(":")
    if name in IMAGENET_SETS and not path:
        raise EvaluationError(f"data {name} is read from a folder of yours: add --root DIR, or write {name}:DIR.")


def framing_of(preprocessing: Preprocessing | None) -> dict[str, Any]:
    """How a model wants pictures resized and cropped, as the keywords of the data sets; empty if it is not known."""
    if preprocessing is None:
        return {}
    return {name: getattr(preprocessing, name) for name in ("size", "resize", "interpolation")}


def open_test_data(
    reference: str,
    clean: str | None = None,
    *,
    block: int,
    preprocessing: Callable[[], Preprocessing],
    report: Progress | None = None,
) -> Images | ShiftedDataset | Randomised:
    """The data to evaluate on. `block` is the largest prediction batch; only pictures need a `preprocessing`."""
    if is_tabular(reference):
        return open_randomised(reference, block)
    return open_pictures(reference, clean, preprocessing=preprocessing(), report=report)


def open_validation_data(
    reference: str, *, preprocessing: Callable[[], Preprocessing], report: Progress | None = None
) -> Images | Rows:
    """The data to fit and calibrate on."""
    if is_tabular(reference):
        return open_rows(reference, "validation")
    return open_images(reference, "validation", preprocessing=preprocessing(), report=report)


def open_pictures(
    reference: str,
    clean: str | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    report: Progress | None = None,
) -> Images | ShiftedDataset:
    """Clean images, or a published set of corrupted ones.

    Pictures of a folder are resized and cropped as the models want them. `report` is called with how many of them are
    decoded, and how many there are.
    """
    root = Path(reference).expanduser()
    if dataset_name(reference) == _PUBLISHED:
        return _open_imagenet_c(reference, clean, preprocessing)
    is_named = dataset_name(reference) in ("sample", "cifar10") or is_imagenet(reference)
    if root.exists() and not is_named and not (root / "images.npy").exists():
        if (root / "labels.npy").exists():
            return Cifar10C(root, clean=None if clean is None else open_images(clean, "test"))
        if any((folder / "1").is_dir() for folder in root.glob("*")):
            return ImageNetC(root, clean=clean, **framing_of(preprocessing))
    return open_images(reference, "test", preprocessing=preprocessing, report=report)


def open_images(
    reference: str,
    part: str,
    *,
    preprocessing: Preprocessing | None = None,
    report: Progress | None = None,
) -> Images:
    """Labelled clean images; `part` ("test" or "validation") matters for data sets that have parts."""
    name, _, path = reference.partition(":")
    if reference == "sample":
        return sample(part)  # type: ignore[arg-type]
    if name == "cifar10":
        return cifar10(part, path or None)  # type: ignore[arg-type]
    if name == _PUBLISHED:
        raise EvaluationError(f"data {reference} has corrupted pictures: name the clean ones, as in imagenet:DIR.")
    if is_imagenet(reference):
        folder = Path(path).expanduser()
        return imagenet(folder, cast(ImageNetSet, name), report=report, **framing_of(preprocessing))
    root = Path(reference).expanduser()
    if not root.exists():
        raise EvaluationError(
            f"data {reference!r} is neither sample, cifar10, cifar10:PATH, imagenet:PATH nor a folder that exists."
        )
    if (root / "images.npy").exists():
        return from_npy(root)
    return from_folder(root, report=report, **framing_of(preprocessing))


def _open_imagenet_c(reference: str, clean: str | None, preprocessing: Preprocessing | None) -> ImageNetC:
    """The published ImageNet-C. All classes have to be there, because a label is a position among a model's logits."""
    originals = None if clean is None else Path(clean.removeprefix("imagenet:")).expanduser()
    root = Path(reference.partition(":")[2]).expanduser()
    data = ImageNetC(root, clean=originals, **framing_of(preprocessing))
    for folder in (root / data.names[0] / "1", originals):
        if folder is not None:
            list_imagenet(folder)
    return data


def open_rows(reference: str, part: CriteoPart) -> Rows:
    """The rows of ``criteo``, ``criteo:FOLDER`` or ``criteo:FOLDER#PART``; `part` is used if the reference names none.

    ``#all`` is for a folder that is a test set as a whole.
    """
    _, _, place = reference.partition(":")
    folder, _, named_part = place.partition("#")
    return criteo(named_part or part, folder or None)  # type: ignore[arg-type]


def open_randomised(reference: str, block: int) -> Randomised:
    """The test rows with all their randomisations; `marginals` draws its values from the training rows.

    `block` is the size of the prediction batch: `columns` draws once for that many rows, as the reference benchmark
    does. With ``#all`` the training rows of the folder are among the test rows, so there are none to draw values from.
    """
    test = open_rows(reference, "test")
    train = None if reference.endswith("#all") else open_rows(reference.partition("#")[0], "train")
    return Randomised(test, train=train, block=block)
