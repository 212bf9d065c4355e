"""Data sets: each reads its published layout, checks it, and yields uint8 batches."""

from .batch import Batch
from .cifar10 import cifar10
from .cifar10c import Cifar10C
from .embedded import sample
from .errors import DataError
from .imagenetc import ImageNetC
from .images import Images

__all__ = ["Batch", "Cifar10C", "DataError", "ImageNetC", "Images", "cifar10", "sample"]
