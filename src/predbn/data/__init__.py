"""Data sets: each reads its published layout, checks it, and yields uint8 batches.

Pillow decodes the pictures of folders and the lossless mosaics in which CIFAR-10 is kept.
"""

from .batch import Batch
from .cifar10 import cifar10
from .cifar10c import Cifar10C
from .embedded import sample
from .errors import DataError
from .folder import from_folder
from .imagenetc import ImageNetC
from .images import Images
from .npy import from_npy
from .shifted import Corrupted, Shifted

__all__ = [
    "Batch",
    "Cifar10C",
    "Corrupted",
    "DataError",
    "ImageNetC",
    "Images",
    "Shifted",
    "cifar10",
    "from_folder",
    "from_npy",
    "sample",
]
