"""Data sets: each reads its published layout, checks it, and yields uint8 batches.

Pillow decodes the pictures of folders and the lossless mosaics in which CIFAR-10 is kept; filelock, which torch needs
too, lets one process decode a folder while others wait for it.
"""

from .batch import Batch
from .cifar10 import cifar10
from .cifar10c import Cifar10C
from .class_mask import ClassMask, class_mask
from .embedded import sample
from .errors import DataError
from .folder import from_folder
from .imagenet import ImageNetSet, imagenet
from .imagenetc import ImageNetC
from .images import Images
from .npy import from_npy
from .shifted import Corrupted, Shifted
from .wnids import wnids

__all__ = [
    "Batch",
    "Cifar10C",
    "ClassMask",
    "Corrupted",
    "DataError",
    "ImageNetC",
    "ImageNetSet",
    "Images",
    "Shifted",
    "cifar10",
    "class_mask",
    "from_folder",
    "from_npy",
    "imagenet",
    "sample",
    "wnids",
]
