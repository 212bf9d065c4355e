"""Fixtures of the folders that the commands use."""

from ..data.conftest import cache, small
from ..shifts.conftest import cifar, large
from ..training.conftest import data, images, small_network

__all__ = ["cache", "cifar", "data", "images", "large", "small", "small_network"]
