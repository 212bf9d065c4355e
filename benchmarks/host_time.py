"""What a batch norm layer costs the host, in µs: Python and PyTorch without any arithmetic.

    TRITON_INTERPRET=1 python benchmarks/host_time.py              # a table, on a CPU
    TRITON_INTERPRET=1 python benchmarks/host_time.py --profile ema

In eager mode a GPU waits for the host if a layer takes the host longer than its kernels take the GPU. Here a model of
53 batch norm layers on tiny maps takes the route of a GPU on a CPU. Every launch of a kernel of ours is left out, so
that what remains is what the host does around it; a launch itself takes another 5 µs or so. Prints the time per layer,
including the share of what happens once per call of the model: the least of several rounds, because other load only
adds to it. Times of PyTorch's own operators are those of a CPU.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import os
import pkgutil
import pstats
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import predbn
from predbn.norm import kernels

LAYERS, CHANNELS, CLASSES = 53, 64, 10
STRATEGIES = ("train", "frozen", "batch", "prior", "ema", "auto(passes=1)", "auto_stream")


class Stub:
    """Looks like a kernel of Triton and like what it is compiled to, and does nothing."""

    function, packed_metadata = 0, ()

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., Stub]:
        return lambda *args, **options: self

    def run(self, *args: Any) -> None:
        pass


def leave_out_launches() -> None:
    """Launch nothing from now on."""
    from predbn.norm import gpu
    from predbn.norm.gpu import launch

    launch.IS_INTERPRETED = False
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
