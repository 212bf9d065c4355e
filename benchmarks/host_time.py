"""What a batch norm layer costs the host, in µs: Python and PyTorch without any arithmetic.

    TRITON_INTERPRET=1 python benchmarks/host_time.py              # a table, on a CPU
    TRITON_INTERPRET=1 python benchmarks/host_time.py --profile ema

In eager mode a GPU waits for the host if a layer takes the host longer than its kernels take the GPU. Here a model of
53 batch norm layers on tiny maps takes the route of a GPU on a CPU. In place of the CUDA driver a function is called
that does nothing, so that what remains is what the host does around a launch; the driver takes another 2 µs or more.
Prints the time per layer, including the share of what happens once per call of the model: the least of several rounds,
because other load only adds to it. Times of PyTorch's own operators are those of a CPU.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import importlib
import os
import pkgutil
import pstats
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import predbn
from predbn.norm import kernels

LAYERS, CHANNELS, CLASSES = 53, 64, 10
STRATEGIES = ("train", "frozen", "batch", "prior", "ema", "auto(passes=1)", "auto_stream")


class Stub:
    """Looks like a kernel of Triton and like what it is compiled to, and does nothing."""

    packed_metadata = ()
    metadata = SimpleNamespace(num_warps=4, shared=0)

    def __init__(self) -> None:
        self.function = id(self)
        self.src = SimpleNamespace(signature={})

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., Stub]:
        def compiled(*args: Any, **options: Any) -> Stub:
            stub = Stub()
            stub.src.signature = dict(enumerate(kinds_of(args)))
            DRIVER.sizes[stub.function] = [_SIZES[kind] for kind in stub.src.signature.values() if kind in _SIZES]
            DRIVER.stubs.append(stub)  # so that no other gets its number
            return stub

        return compiled

    def run(self, *args: Any) -> None:
        pass


_SIZES = {"*fp32": 8, "i32": 4, "fp32": 4}


def kinds_of(args: Sequence[Any]) -> Iterator[str]:
    """The kinds of arguments as Triton writes them: tensors, whole numbers, floats, and constants from a bool on.

    Constants before it, two or three for a kernel, count as numbers, which changes nothing in a call.
    """
    is_constant = False
    for value in args:
        is_constant = is_constant or isinstance(value, bool)
        number = "fp32" if isinstance(value, float) else "i32"
        yield "constexpr" if is_constant else "*fp32" if isinstance(value, Tensor) else number


class Driver:
    """Looks like the CUDA driver. What it is asked to launch goes to a function of C that does nothing."""

    def __init__(self) -> None:
        self.cuLaunchKernelEx = ctypes.CDLL(None).abs
        self.cuLaunchKernelEx.argtypes, self.cuLaunchKernelEx.restype = [ctypes.c_void_p] * 4, None
        self.sizes: dict[int, list[int]] = {}
        self.stubs: list[Stub] = []

    def cuFuncGetParamInfo(self, function: int, index: int, offset: Any, size: Any) -> int:
        sizes = self.sizes[function]
        if index >= len(sizes):
            return 1
        offset._obj.value, size._obj.value = sum(sizes[:index]), sizes[index]
        return 0


DRIVER = Driver()


def leave_out_launches() -> None:
    """Launch nothing from now on."""
    from predbn.norm import gpu
    from predbn.norm.gpu import launch, packed_launch

    launch.IS_INTERPRETED = False
    packed_launch._driver = lambda: DRIVER
    for module in pkgutil.iter_modules(gpu.__path__, f"{gpu.__name__}."):
        for kernel in vars(importlib.import_module(module.name)).values():
            if isinstance(kernel, launch.Kernel):
                kernel._function = Stub()


def plain_model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.BatchNorm2d(CHANNELS) for _ in range(LAYERS)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS * 4, CLASSES)).eval()


def images(n: int) -> Tensor:
    return torch.randn(n, CHANNELS, 2, 2).contiguous(memory_format=torch.channels_last)


def adapted_models(names: list[str]) -> dict[str, nn.Module]:
    kernels._HAS_TRITON = False
    models = {}
    for name in names:
        model = plain_model()
        if name.startswith("auto"):
            predbn.calibrate(model, [images(128)])
        models[name] = predbn.adapt(model, name)
    kernels._HAS_TRITON = True
    return models


@torch.inference_mode()
def microseconds(model: nn.Module, x: Tensor, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(5):
            model(x)
        times.append((time.process_time() - begin) / 5)
    return 1e6 * min(times) / LAYERS


@torch.inference_mode()
def profile(model: nn.Module, x: Tensor) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(100):
        model(x)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--profile", choices=STRATEGIES)
    options = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") != "1":
        parser.error("set TRITON_INTERPRET=1, so that tensors of a CPU take the route of a GPU")
    torch.set_num_threads(1)
    models = adapted_models([options.profile] if options.profile else list(STRATEGIES))
    leave_out_launches()
    x = images(4)
    with torch.inference_mode():
        for model in models.values():
            for _ in range(6):  # the first passes of a stream differ
                model(x)
    if options.profile:
        profile(models[options.profile], x)
        return
    for name, model in {"plain": plain_model(), **models}.items():
        print(f"{name:16s} {microseconds(model, x, options.rounds):6.1f} µs per layer", flush=True)


if __name__ == "__main__":
    main()
