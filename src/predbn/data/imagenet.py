"""ImageNet's validation images and related test sets, each in its published layout.

| set | folders | classes |
|---|---|---|
| `imagenet` | WordNet IDs | 1,000 |
| `imagenet-v2` (Recht et al. 2019) | 0 to 999; sorted as text they would get wrong labels | 1,000 |
| `imagenet-a` (Hendrycks et al. 2019) | WordNet IDs | 200 |
| `imagenet-r` (Hendrycks et al. 2020) | WordNet IDs | 200 |

With 1,000 classes, a label is the position of a model's logit; with 200, `class_mask` says which logits are used.
The folders are checked before anything is decoded, because decoding takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from predbn.common import DataError, Progress

from .folder import images_of
from .imagenet_classes import is_wnid, wnids
from .images import Images
from .pictures import Listing, ResizeCrop, class_folders, list_pictures

ImageNetSet = Literal["imagenet", "imagenet-v2", "imagenet-a", "imagenet-r"]
USUAL_CROP = ResizeCrop((224, 224), resize=256)
_TITLES = {"imagenet": "ImageNet", "imagenet-v2": "ImageNet-v2", "imagenet-a": "ImageNet-A", "imagenet-r": "ImageNet-R"}


def imagenet(
    root: str | Path,
    which: ImageNetSet = "imagenet",
    transform: ResizeCrop = USUAL_CROP,
    *,
    images: int | None = None,
    progress: Progress | None = None,
) -> Images:
    """One of the sets ("imagenet", "imagenet-v2", "imagenet-a", "imagenet-r"), from the folder of its class folders.

    The pictures are decoded, resized and cropped as in `from_folder`, or read from the cache. A model says what it
    needs in `preprocessing.crop`; the default is right for most models of 224 × 224 pixels.
    `images` and `progress` as in `from_folder`.
    """
    listing = list_imagenet(root, which)
    if which == "imagenet-v2":
        listing = replace(listing, classes=wnids())
    return images_of(listing, transform, name=which, images=images, progress=progress)


def list_imagenet(root: str | Path, which: ImageNetSet = "imagenet") -> Listing:
    """The pictures of one of the sets, after checking that its folders are as published."""
    root = Path(root)
    if which not in _TITLES:
        raise DataError(f"There is no set {which!r} of ImageNet: use {', '.join(_TITLES)}.")
    is_v2, title = which == "imagenet-v2", _TITLES[which]
    classes = tuple(str(label) for label in range(1000)) if is_v2 else wnids()
    folders = _class_folders(root, title, classes, str.isdecimal if is_v2 else is_wnid)
    if which in ("imagenet-a", "imagenet-r"):
        classes = tuple(name for name in classes if name in folders)
        if len(classes) != 200:
            raise DataError(f"{root} has {len(classes):,} classes of ImageNet, but {title} has 200: is it another set?")
    missing = [name for name in classes if name not in folders]
    if missing:
        raise DataError(
            f"{root} lacks {len(missing)} of the {len(classes):,} classes of {title} ({_first_few(missing)}): "
            "unpack it again."
        )
    return _check_empty(list_pictures(root, classes), title)


def _class_folders(root: Path, title: str, classes: Sequence[str], is_class: Callable[[str], bool]) -> list[str]:
    """The folders directly below `root`, some of which must be classes and none a class of another set."""
    folders = class_folders(root)
    if not set(classes) & set(folders):
        raise DataError(
            f"{root} has no class folder of {title} such as {classes[0]}, it has {_first_few(folders)}: give the "
            "folder that contains the class folders, each with its pictures."
        )
    foreign = [name for name in sorted(set(folders) - set(classes)) if is_class(name)]
    if foreign:
        raise DataError(
            f"{root / foreign[0]} is not a class of {title} ({len(foreign)} such folders): "
            "move what does not belong to it elsewhere."
        )
    return folders


def _check_empty(listing: Listing, title: str) -> Listing:
    counts = listing.labels.bincount(minlength=len(listing.classes)).tolist()
    empty = [name for name, count in zip(listing.classes, counts, strict=True) if not count]
    if empty:
        raise DataError(
            f"{listing.root} has no picture in {len(empty)} of the {len(listing.classes):,} classes of {title} "
            f"({_first_few(empty)}): unpack it again."
        )
    return listing


def _first_few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) or "none"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
