from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .running import Running, running, tiny_service


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """One server for the tests of a file: `ema`, which remembers its streams, with small limits."""
    with running(tiny_service(max_rows=16, max_body=200_000, max_pixels=100_000)) as server:
        yield server


@pytest.fixture(autouse=True)
def _one_thread(_deterministic) -> None:
    """Small batches: a second thread would mostly wait for the first."""
    torch.set_num_threads(1)
