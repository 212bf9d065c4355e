"""ImageNet's validation images and the sets that others have made for its models, each in its published layout.

| set | folders | classes |
|---|---|---|
| `imagenet` | WordNet numbers | 1,000 |
| `imagenet-v2` (Recht et al. 2019) | 0 to 999: sorted as words they mix up the labels | 1,000 |
| `imagenet-a` (Hendrycks et al. 2019) | WordNet numbers | 200 |
| `imagenet-r` (Hendrycks et al. 2020) | WordNet numbers | 200 |

With 1,000 classes a label is a position among a model's logits; with 200, `class_mask` says which logits count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import torch

from predbn.common import DataError

from .decoded import Report, decode
from .framing import Interpolation, frame
from .imagenet_layout import list_all_classes, list_some_classes
from .images import Images
from .listing import Listing
from .wnids import is_wnid, wnids

__all__ = ["ImageNetSet", "imagenet", "list_imagenet"]

ImageNetSet = Literal["imagenet", "imagenet-v2", "imagenet-a", "imagenet-r"]


def imagenet(
    root: str | Path,
    which: ImageNetSet = "imagenet",
    *,
    size: int | tuple[int, int] = 224,
    resize: int | None = 256,
    interpolation: Interpolation = "bilinear",
    report: Report | None = None,
) -> Images:
    """One of the sets, from the folder that holds its classes.

    The layout is checked before a picture is decoded: another level of folders, classes that are missing or empty are
    named and counted. Pictures are then decoded and framed as in `from_folder`, unless they are in the cache; what a
    model needs is in its `preprocessing`, and what is set here is what most models of 224 × 224 pixels need.
    """
    framing = frame(size, resize, interpolation)
    listing = list_imagenet(root, which)
    pixels = decode(listing, framing, report)
    return Images(pixels, listing.labels, torch.arange(len(listing)), _classes(listing, which), which)


def list_imagenet(root: str | Path, which: ImageNetSet = "imagenet") -> Listing:
    """The pictures of one of the sets, if its folder is as it is published."""
    root = Path(root)
    if which == "imagenet":
        return list_all_classes(root, "ImageNet", wnids(), is_wnid)
    if which == "imagenet-v2":
        return list_all_classes(root, "ImageNet-v2", [str(label) for label in range(1000)], str.isdecimal)
    if which in get_args(ImageNetSet):
        return list_some_classes(root, f"ImageNet-{which[-1].upper()}", 200)
    raise DataError(f"There is no set {which!r} of ImageNet: use {', '.join(get_args(ImageNetSet))}.")


def _classes(listing: Listing, which: ImageNetSet) -> tuple[str, ...]:
    return wnids() if which == "imagenet-v2" else listing.classes
