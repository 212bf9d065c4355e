"""Data sets: each reads its published layout, checks it, and yields uint8 batches."""

from .cifar10c import Cifar10C
from .errors import DataError
from .imagenetc import ImageNetC

__all__ = ["Cifar10C", "DataError", "ImageNetC"]
