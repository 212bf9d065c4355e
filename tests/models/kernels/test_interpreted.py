"""The kernels on a machine without a GPU: all their tests, under Triton's interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import INTERPRETED

HERE = Path(__file__).parent
NORM = HERE.parents[1] / "norm"
NAMES = (
    "activation",
    "compiled_strategies",
    "cudnn",
    "gpu_kernels",
    "gpu_operators",
    "gpu_streams",
    "prepared_call",
    "fused_conv",
    "fused_network",
)
TESTS = [HERE, *(NORM / f"test_{name}.py" for name in NAMES)]


@pytest.mark.skipif(INTERPRETED, reason="this is the process of the interpreter")
def test_the_kernels_under_the_interpreter():
    pytest.importorskip("triton", reason="Triton is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, TESTS)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted is not None
    assert int(counted.group(1)) >= 150
