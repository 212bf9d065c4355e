"""Shared set-up."""

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

import cpu_torchvision  # noqa: F401

settings.register_profile("predbn", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("predbn")

# A shell starts background jobs with Ctrl-C ignored. Programs inherit that, and tests of Ctrl-C would wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Test processes that run side by side take a core each, and so do the processes that they start. Networks are so small
# here that a second thread would mostly wait for the first.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

SLOW_FILES = [
    "interpreted",
    "compile_and_export",
    "auto_stream",
    "ray_service",
    "ray_engine",
    "chaos",
    "run",
    "guides",
    "site",
]


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: tests wait for disks, browsers and processes that start."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first, so that no process is left with one of them at the end.

    pytest-xdist keeps this order with `--no-loadscope-reorder`. Otherwise it begins with the files of many tests, and
    ends with a file of one test that takes minutes.
    """
    rank = {f"test_{name}.py": number for number, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@pytest.fixture(autouse=True, scope="session")
def _without_fsync() -> Iterator[None]:
    """Do not wait for the disk: only a loss of power would tell, and thousands of small files are written here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded pictures are not left in the user's cache, nor read from it; processes that tests start inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREDBN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def time_limit():
    """Fail a test that waits for a process that is lost, and do not hang."""

    def stop(*_: object) -> None:
        raise TimeoutError("the test took too long")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(180)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
