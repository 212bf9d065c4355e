"""Where the kernels can run: on a GPU in half precision, or under Triton's interpreter on the CPU in single.

The interpreter has to be chosen before Triton is imported: `test_interpreted.py` runs this folder's other tests in a
process of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def _make_interpreter_faster() -> None:
    """Leave out what Triton's interpreter repeats: more than half of its time.

    A kernel replaces the functions of `triton.language` by interpreted ones before it starts. Every function that it
    calls does so again at every call, for the modules that it uses; once is enough. Nor is every sum of whole numbers
    computed again in 64 bits, to see whether it fits into 32: the tests are too small for that.
    """
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)

    prepared = set()

    def call(self: interpreter.InterpretedFunction, *args: object, **kwargs: object) -> object:
        if self.fn not in prepared:
            interpreter._patch_lang(self.fn)
            prepared.add(self.fn)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


def _sort_with_numpy() -> None:
    """Let NumPy sort a tile. Triton's own way is a hundred exchanges, each of which takes the interpreter long."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def sort(x: tl.tensor, dim: int) -> tl.tensor:
        return tl.tensor(TensorHandle(np.sort(x.handle.data, dim), x.handle.dtype), x.type)

    tl.sort = sort


def _make_fewer_programs() -> None:
    """The interpreter runs programs one after the other, so each should have several channels, not only one."""
    from predbn.norm.gpu import statistics

    statistics._BLOCKS = 8


if INTERPRETED:
    _make_interpreter_faster()
    _sort_with_numpy()
    _make_fewer_programs()


class Bench(NamedTuple):
    """A device, the precision of activations on it, and what that precision allows."""

    device: str
    dtype: torch.dtype
    tolerance: float

    def map(self, *shape: int) -> Tensor:
        values = torch.randn(shape, device=self.device).to(self.dtype)
        return values.contiguous(memory_format=torch.channels_last).requires_grad_()

    def compare(self, ours: Callable[[], Tensor], reference: Callable[[], Tensor], leaves: Sequence[Tensor]) -> None:
        """Results and gradients of `ours` against `reference`, which is computed in single precision."""
        result, expected = ours(), reference()
        assert result.dtype == self.dtype
        assert result.is_contiguous(memory_format=torch.channels_last)
        away = torch.randn_like(result)
        ours_back = torch.autograd.grad(result, leaves, away)
        # Contiguous: for one image in channels_last, PyTorch's instance norm has a wrong gradient on the CPU.
        expected_back = torch.autograd.grad(expected, leaves, away.to(expected.dtype).contiguous())
        for a, b in [(result, expected), *zip(ours_back, expected_back, strict=True)]:
            size = max(1.0, b.float().abs().max().item())
            torch.testing.assert_close(a.float(), b.float(), rtol=self.tolerance, atol=self.tolerance * size)


@pytest.fixture
def bench() -> Bench:
    pytest.importorskip("triton", reason="Triton is not installed")
    if INTERPRETED:
        return Bench("cpu", torch.float32, 2e-5)
    if torch.cuda.is_available():
        return Bench("cuda", torch.bfloat16, 3e-2)
    pytest.skip("no GPU here: test_interpreted.py runs this under Triton's interpreter")


@pytest.fixture(params=[(relu, add) for relu in (True, False) for add in (True, False)], ids=str)
def ending(request) -> tuple[bool, Callable[[Tensor, Tensor], Tensor], bool]:
    """Whether a ReLU follows, what makes the end in plain PyTorch, and whether a shortcut is added."""
    relu, add = request.param

    def end(value: Tensor, shortcut: Tensor) -> Tensor:
        value = value + shortcut if add else value
        return F.relu(value) if relu else value

    return relu, end, add
