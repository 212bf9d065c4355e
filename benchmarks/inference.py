"""What prediction-time batch normalisation costs, relative to the plain network in the same mode.

    python benchmarks/inference.py                 # CPU, one thread: ten minutes; --threads for more
    python benchmarks/inference.py --device cuda   # ResNet-50, fp16, channels_last: eager, captured and compiled
    python benchmarks/inference.py --device cuda --networks mobilenetv2_100 densenet121 --modes captured --batches 100
    python benchmarks/inference.py --markdown      # measures nothing: the tables of docs/performance.md from results/
    python benchmarks/inference.py --short         # the same: the table of docs/strategies.md

Modes on a GPU: `eager`; `captured`, with `predbn.capture`; `compiled, graph`, a CUDA graph of what torch.compile makes.
Every round runs every variant once, in a new random order. The ratio is the median over the rounds of variant / plain
in the same round, so that other load on the machine affects all variants alike. With one thread CPU time is measured,
on a GPU the time between two events. For comparison, `train mode` sets the batch norm layers to `.train()`. Writes
results/inference-<device>.json; cases that are not measured again are kept.
"""

from __future__ import annotations

import argparse
import copy
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor, nn

import cpu_torchvision  # noqa: F401
import predbn
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.models import load

Rows: TypeAlias = dict[str, dict[str, float]]
Predict: TypeAlias = Callable[[Tensor], object]

CPU_CASES = {"resnet20": (32, 100), "resnet18": (32, 64), "resnet50": (224, 4)}
"""Pixels and images of a batch, by network."""
MODES = ("eager", "captured", "compiled, graph")
_BUDGETED = ("batch", "prior(N=16)", "ema", "auto")
BUDGETS = {
    "eager": dict(zip(_BUDGETED, ((1.10, 1.10), (1.30, 1.10), (1.30, 1.10), (1.60, 1.20)), strict=True)),
    "captured": dict(zip(_BUDGETED, (*[(1.05, 1.05)] * 3, (1.20, 1.10)), strict=True)),
    "compiled, graph": dict(zip(_BUDGETED, (*[(1.25, 1.20)] * 3, (1.45, 1.30)), strict=True)),
}
"""The largest ratios of ResNet-50 on a GPU in batches of 100 and of 500, by mode and variant."""
MEASURED = {"eager": None, "captured": (*_BUDGETED, "auto(passes=4)", "auto_stream"), "compiled, graph": _BUDGETED}
"""The variants of a mode by default, None for all."""
SHORT = ("batch", "prior(N=16)", "ema", "auto", "auto(passes=4)", "auto(passes=2), shifted", "frozen, folded")
"""The rows of the short table."""


def build(name: str, **options: object) -> nn.Module:
    """A network of timm with random weights, or the package's ResNet-20 behind its preprocessing."""
    if name == "resnet20":
        return load("zoo:resnet20-cifar10/batch/0").network.eval()
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, **options).eval()


def train_mode(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    return model


def variants(plain: nn.Module, x: Tensor, names: Sequence[str] | None) -> dict[str, nn.Module]:
    """The plain network and its variants, all or those with these names."""

    def adapted(strategy: str, model: nn.Module | None = None) -> nn.Module:
        return predbn.norm.predictor(copy.deepcopy(plain if model is None else model), strategy)

    @cache
    def calibrated(scale: float = 1.0) -> nn.Module:
        """Calibrated on the batch itself, or on another contrast, from which the batch has shifted."""
        return predbn.calibrate(copy.deepcopy(plain), [scale * x] * (1 + 64 // len(x)))  # enough to tell classes apart

    def folded(strategy: str) -> nn.Module:
        model = adapted(strategy)
        model(x)
        return predbn.fold(model)

    makers: dict[str, Callable[[], nn.Module]] = {
        "train mode": lambda: train_mode(copy.deepcopy(plain)),
        "train": lambda: adapted("train"),
        "batch": lambda: adapted("batch"),
        "prior(N=16)": lambda: adapted("prior(N=16)"),
        "auto": lambda: adapted("auto", calibrated()),
        "auto(passes=4)": lambda: adapted("auto(passes=4)", calibrated()),
        "auto(passes=2), shifted": lambda: adapted("auto(passes=2)", calibrated(0.3)),
        "auto_stream": lambda: adapted("auto_stream", calibrated()),
        "ema": lambda: adapted("ema"),
        "frozen": lambda: adapted("frozen"),
        "frozen, folded": lambda: folded("frozen"),
        "ema, folded": lambda: folded("ema"),
    }
    return {"plain": plain, **{name: make() for name, make in makers.items() if names is None or name in names}}


@torch.inference_mode()
def measure(models: dict[str, Predict], x: Tensor, rounds: int) -> Rows:
    """Milliseconds and the ratio to plain of each model, side by side."""
    for model in models.values():
        for _ in range(6 if x.is_cuda else 2):  # captured models record when a shape comes again
            milliseconds(model, x)
    times: dict[str, list[float]] = {name: [] for name in models}
    order, shuffle = list(models), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            times[name].append(milliseconds(models[name], x))
    ratios = {name: [a / b for a, b in zip(taken, times["plain"], strict=True)] for name, taken in times.items()}
    return {name: {"ms": statistics.median(times[name]), "ratio": statistics.median(ratios[name])} for name in models}


def milliseconds(model: Predict, x: Tensor) -> float:
    if x.is_cuda:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        model(x)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = now()
    model(x)
    return 1e3 * (now() - start)


def cpu_cases(options: argparse.Namespace) -> Iterator[tuple[str, Rows]]:
    for name in options.networks or CPU_CASES:
        size, batch = CPU_CASES[name]
        plain, x = build(name), torch.randn(batch, 3, size, size)
        yield f"{name} {size} px, batch {batch}", measure(variants(plain, x, options.variants), x, options.rounds)


def gpu_cases(options: argparse.Namespace) -> Iterator[tuple[str, Rows]]:
    torch._dynamo.config.recompile_limit = 64  # the variants share the code of one forward method
    for name in options.networks or ["resnet50"]:
        for mode in options.modes:
            plain = build(name).half().cuda().to(memory_format=torch.channels_last)
            inputs = {batch: gpu_images(batch) for batch in options.batches}
            models = variants(plain, inputs[max(inputs)], options.variants or MEASURED[mode])
            if mode == "compiled, graph":
                models = {key: torch.compile(model, fullgraph=True) for key, model in models.items()}
            elif mode == "captured":
                models = {key: predbn.capture(model) for key, model in models.items()}
            for batch, x in inputs.items():
                predict = {key: graphed(model, x) for key, model in models.items()} if "graph" in mode else models
                yield f"{name} 224 px fp16, batch {batch}, {mode}", measure(predict, x, options.rounds)


def gpu_images(batch: int) -> Tensor:
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half).contiguous(memory_format=torch.channels_last)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return x


@torch.inference_mode()
def graphed(model: Predict, x: Tensor) -> Predict:
    """A compiled model as one CUDA graph that reads `x`."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        model(x)
    return lambda _: graph.replay()


def show(case: str, rows: Rows) -> None:
    """Print a case, with the budgets of ResNet-50."""
    print(f"\n{case}: plain {rows['plain']['ms']:.2f} ms", flush=True)
    _, batch, mode = f"{case}, , ".split(", ", 2)
    for variant, row in rows.items():
        budgets = BUDGETS.get(mode.removesuffix(", , "), {}).get(variant, ())
        budget = dict(zip(("batch 100", "batch 500"), budgets, strict=False)).get(batch)
        print(f"  {variant:20s} {row['ratio']:.3f}{f'   (budget {budget:.2f})' if budget else ''}", flush=True)


def markdown(device: str = "*", chosen: Sequence[str] | None = None) -> str:
    """The ratios in results/, of one device or all: a table for each network on a GPU, and one for all others."""
    tables = []
    for path in sorted(RESULTS.glob(f"inference-{device}.json")):
        cases: dict[str, Rows] = read_results(path)["cases"]
        networks = [case.partition(", ")[0] for case in cases]
        groups: dict[str, dict[str, Rows]] = {}
        for case, network in zip(cases, networks, strict=True):
            groups.setdefault(network if networks.count(network) > 1 else "", {})[case] = cases[case]
        tables += [table(network, rows, chosen) for network, rows in groups.items()]
    return "\n\n".join(tables)


def table(network: str, cases: dict[str, Rows], chosen: Sequence[str] | None) -> str:
    names = chosen or list(dict.fromkeys(name for case in cases.values() for name in case if name != "plain"))
    headings = [f"relative to the plain model{network and f', {network}'}"]
    headings += [case.removeprefix(f"{network}, ") for case in cases]
    rows = [
        [name, *(f"{case[name]['ratio']:.2f}" if name in case else "" for case in cases.values())] for name in names
    ]
    rows.append(["*plain, ms*", *(f"{case['plain']['ms']:.1f}" for case in cases.values())])
    return markdown_table(headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--networks", nargs="+", help="ResNet-20, -18 and -50 on a CPU, ResNet-50 on a GPU")
    parser.add_argument("--variants", nargs="+", help="only these variants")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="on a GPU")
    parser.add_argument("--batches", nargs="+", type=int, default=[100, 500], help="on a GPU")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--markdown", action="store_true", help="print the tables from results/")
    parser.add_argument("--short", action="store_true", help="print the main rows of the CPU from results/")
    options = parser.parse_args()
    if options.markdown or options.short:
        print(markdown("cpu", SHORT) if options.short else markdown())
        return
    torch.set_num_threads(options.threads)
    hardware = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    card = {"torch": torch.__version__, "hardware": hardware, "threads": options.threads, "rounds": options.rounds}
    out = RESULTS / f"inference-{options.device}.json"
    content = read_results(out) if out.exists() else {"cards": {}, "cases": {}}
    with torch.no_grad():
        for case, rows in (gpu_cases if options.device == "cuda" else cpu_cases)(options):
            show(case, rows)
            content["cards"][case], content["cases"][case] = card, rows
            write_results(out, content)


if __name__ == "__main__":
    main()
