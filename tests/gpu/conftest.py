"""Where the kernels run: on a GPU, or under Triton's interpreter on the CPU.

The interpreter has to be chosen before Triton is imported, and would then be used by everything in the process:
`test_interpreted.py` runs this folder in a process of its own.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`device` is the CPU in the process of the interpreter, and a GPU otherwise."""
    if "device" in metafunc.fixturenames:
        gpu = pytest.param("cuda", marks=pytest.mark.gpu)
        metafunc.parametrize("device", ["cpu" if INTERPRETED else gpu], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The process of the interpreter runs only what needs it."""
    if INTERPRETED:
        items[:] = [item for item in items if "device" in getattr(item, "fixturenames", ())]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    return torch.device(request.param)
