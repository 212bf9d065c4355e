"""ImageNet and its kin as a plan names them: ``imagenet:DIR``, ``imagenet-v2:DIR``, ``imagenet-c:DIR``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

from predbn.common import EvaluationError
from predbn.data import ClassMask, ImageNetC, ImageNetSet, Images, class_mask, imagenet, list_imagenet, wnids
from predbn.data import DecodingProgress as Report
from predbn.models import Preprocessing

__all__ = [
    "IMAGENET_SETS",
    "check_imagenet",
    "framing_of",
    "is_imagenet",
    "mask_for",
    "open_imagenet",
    "open_published",
]

_PUBLISHED = "imagenet-c"
IMAGENET_SETS = (*get_args(ImageNetSet), _PUBLISHED)


def is_imagenet(reference: str) -> bool:
    """Whether a plan's data is one of these sets, by its name."""
    return reference.partition(":")[0] in IMAGENET_SETS


def check_imagenet(reference: str) -> None:
    """Refuse a set without its folder: nothing of ImageNet comes with the package or is fetched."""
    kind, _, path = reference.partition(":")
    if kind in IMAGENET_SETS and not path:
        raise EvaluationError(f"data {kind} is read from a folder of yours: add --root DIR, or say {kind}:DIR.")


def open_imagenet(reference: str, preprocessing: Preprocessing | None, report: Report | None = None) -> Images:
    """The pictures of a set, framed as the models want them, from the decoded cache or decoded into it now."""
    kind, _, path = reference.partition(":")
    if kind == _PUBLISHED:
        raise EvaluationError(f"data {reference} is of corrupted pictures: name the clean ones, as in imagenet:DIR.")
    root = Path(path).expanduser()
    return imagenet(root, cast(ImageNetSet, kind), report=report, **framing_of(preprocessing))


def open_published(reference: str, clean: str | None, preprocessing: Preprocessing | None) -> ImageNetC:
    """ImageNet-C as published. It has to have all classes, for a label is a position among a model's logits."""
    originals = None if clean is None else Path(clean.removeprefix("imagenet:")).expanduser()
    root = Path(reference.partition(":")[2]).expanduser()
    found = ImageNetC(root, clean=originals, **framing_of(preprocessing))
    for folder in (root / found.names[0] / "1", originals):
        if folder is not None:
            list_imagenet(folder)
    return found


def framing_of(preprocessing: Preprocessing | None) -> dict[str, Any]:
    """What the data sets of pictures take, in the words of a model's preprocessing; nothing where it is not known."""
    if preprocessing is None:
        return {}
    return {name: getattr(preprocessing, name) for name in ("size", "resize", "interpolation")}


def mask_for(classes: tuple[str, ...]) -> ClassMask | None:
    """Which of ImageNet's 1,000 logits data with these classes is scored on; None where they are others, or all."""
    known = set(wnids())
    if not classes or any(name not in known for name in classes):
        return None
    mask = class_mask(classes)
    return None if mask.everything else mask
