"""Fixtures of the folders that the commands use."""

import signal

import pytest

from ..data.conftest import cache, small
from ..shifts.conftest import cifar, large
from ..training.conftest import data, images, small_network

__all__ = ["cache", "cifar", "data", "images", "large", "small", "small_network"]


@pytest.fixture(autouse=True)
def _restore_handler():
    """After Ctrl-C the next one ends the process at once, which is not for the next test."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
