"""What prediction-time batch normalisation costs, relative to the plain model.

    python benchmarks/inference.py                # CPU, one thread: a few minutes
    python benchmarks/inference.py --device cuda  # GPU: ResNet-50, fp16, channels_last, eager, captured and compiled
    python benchmarks/inference.py --device cuda --modes networks  # other networks, captured
    python benchmarks/inference.py --device cuda --kernels  # single kernels of layers and convolutions
    python benchmarks/inference.py --device cuda --kernels --small  # without 1×1 convolutions: a few seconds
    python benchmarks/inference.py --streams      # a batch of rows of 1, 16 and 64 streams, in one pass and one by one
    python benchmarks/inference.py --markdown     # measures nothing: the table of docs/performance.md from results/
    python benchmarks/inference.py --passes       # the same: the kernels of one pass of ResNet-50
    python benchmarks/inference.py --short        # the same: the table of the README

Every round runs every variant once, in a new random order; the reported figure is the median over the rounds of
(variant / plain in the same round), so that other load on the machine disturbs all variants alike. With one thread CPU
time is measured, otherwise wall time. Two rows are for comparison: `train mode` sets the batch norm layers to
`.train()`, `naive` is torch.var_mean and F.batch_norm. Prints a table and writes results/inference-<device>.json with a
card for each case; cases that are not measured again are kept. `--streams` prints its table and writes nothing.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import predbn
from predbn.models import declare_torchvision_operators

Rows: TypeAlias = dict[str, dict[str, float]]

RESULTS = Path(__file__).resolve().parent.parent / "results"
FOLDED = {f"{name}, folded": 1.02 for name in ("frozen", "ema", "population")}
AS_FUSED = {f"{name}, fused": 1.05 for name in ("batch", "prior(N=16)", "auto, one pass")}
AS_COMPILED = {**dict.fromkeys(("batch", "prior(N=16)", "auto, one pass"), 1.15), **AS_FUSED}
TARGETS = {
    "resnet18 32 px, batch 64": {"batch": 1.10, "prior(N=16)": 1.15, "ema": 1.15, **FOLDED},
    "resnet50 224 px, batch 4": {"batch": 1.25, "prior(N=16)": 1.30, "ema": 1.30, **FOLDED},
    "batch 100, eager": {
        "batch": 1.05,
        **dict.fromkeys(("prior(N=16)", "ema", "auto, one pass", "auto_stream"), 1.15),
    },
    "batch 500, eager": dict.fromkeys(("batch", "prior(N=16)", "ema", "auto, one pass", "auto_stream"), 1.08),
    "batch 8, captured": {"auto, one pass": 1.3},
    "compiled": AS_COMPILED,
}
"""By a part of the name of a case."""


def build(name: str, **options: object) -> nn.Module:
    declare_torchvision_operators()
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, **options).eval()


def batch_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]


def train_mode(model: nn.Module) -> nn.Module:
    for layer in batch_norms(model):
        layer.train()
    return model


def naive(model: nn.Module) -> nn.Module:
    class Naive(nn.Module):
        def __init__(self, layer: nn.BatchNorm2d) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            return F.batch_norm(x, mean, var, self.layer.weight, self.layer.bias, False, 0.0, self.layer.eps)

    for module in list(model.modules()):
        for key, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, key, Naive(child))
    return model


def variants(plain: nn.Module, x: Tensor, names: Sequence[str] | None = None) -> dict[str, nn.Module]:
    """All variants of a model, or those with these names."""

    def strategy(name: str, **options: object) -> nn.Module:
        model = predbn.adapt(copy.deepcopy(plain), name, **options)
        model(x)
        return model

    @cache
    def calibrated_model() -> nn.Module:
        enough = [x] * (1 + 64 // len(x))  # to tell classes apart
        return predbn.calibrate(copy.deepcopy(plain), enough)

    def calibrated(name: str, **options: object) -> nn.Module:
        return predbn.adapt(copy.deepcopy(calibrated_model()), name, **options)

    ways: dict[str, Callable[[], nn.Module]] = {
        "plain": lambda: plain,
        "train mode": lambda: train_mode(copy.deepcopy(plain)),
        "naive": lambda: naive(copy.deepcopy(plain)),
        "train": lambda: strategy("train"),
        "batch": lambda: strategy("batch"),
        "prior(N=16)": lambda: strategy("prior", N=16),
        "auto, one pass, not robust": lambda: calibrated("auto(passes=1)", robust=False),
        "auto, one pass": lambda: calibrated("auto(passes=1)"),
        "auto": lambda: calibrated("auto"),
        "auto_stream": lambda: calibrated("auto_stream"),
        "ema": lambda: strategy("ema"),
        "frozen": lambda: strategy("frozen"),
        "population": lambda: strategy("population", loader=[x], exact=False),
        "frozen, folded": lambda: predbn.fold(strategy("frozen")),
        "ema, folded": lambda: predbn.fold(strategy("ema")),
        "population, folded": lambda: predbn.fold(strategy("population", loader=[x], exact=False)),
    }
    return {name: make() for name, make in ways.items() if names is None or name in names}


def stream_cases(rounds: int) -> Iterator[tuple[str, Rows]]:
    """Rows of several streams in one batch, and the same with a batch for each stream."""
    plain, x = build("resnet18", num_classes=10), torch.randn(64, 3, 32, 32)
    calibrated = predbn.calibrate(copy.deepcopy(plain), list(torch.randn(256, 3, 32, 32).split(64)))

    def together(strategy: str, count: int) -> Callable[[Tensor], None]:
        model, ids = predbn.adapt(copy.deepcopy(calibrated), strategy), [row % count for row in range(len(x))]

        def predict(x: Tensor) -> None:
            with predbn.streams(model, ids):
                model(x)

        return predict

    def one_by_one(strategy: str, count: int) -> Callable[[Tensor], None]:
        model = predbn.adapt(copy.deepcopy(calibrated), strategy)

        def predict(x: Tensor) -> None:
            for stream in range(count):
                with predbn.stream(model, stream):
                    model(x[stream::count])

        return predict

    for count in (1, 16, 64):
        models: dict[str, Callable[[Tensor], object]] = {"plain": plain}
        for strategy in ("batch", "prior", "ema", "auto_stream"):
            if strategy == "batch" and count == len(x):
                continue  # the last maps have one value, and a single one has no variance
            models[f"{strategy}, together"] = together(strategy, count)
            models[f"{strategy}, one by one"] = one_by_one(strategy, count)
        yield f"resnet18 32 px, batch 64 of {count} streams", measure(models, x, rounds, "cpu")


def clock(device: str) -> Callable[[Callable[[Tensor], object], Tensor], float]:
    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def on_cpu(model: Callable[[Tensor], object], x: Tensor) -> float:
        begin = now()
        model(x)
        return now() - begin

    def on_gpu(model: Callable[[Tensor], object], x: Tensor) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        model(x)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    return on_cpu if device == "cpu" else on_gpu


@torch.inference_mode()
def measure(models: dict[str, Callable[[Tensor], object]], x: Tensor, rounds: int, device: str) -> Rows:
    run, times = clock(device), {name: [] for name in models}
    for model in models.values():
        for _ in range(2):
            run(model, x)
    order = list(models)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            times[name].append(run(models[name], x))
    return {
        name: {
            "ms": 1e3 * statistics.median(own),
            "ratio": statistics.median(a / b for a, b in zip(own, times["plain"], strict=True)),
        }
        for name, own in times.items()
    }


@torch.inference_mode()
def peak_memory(models: dict[str, nn.Module], x: Tensor) -> dict[str, float]:
    """Peak GPU memory of a forward pass beyond what was allocated before it, in MiB."""
    peaks = {}
    for name, model in models.items():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        model(x)
        peaks[name] = (torch.cuda.max_memory_allocated() - held) / 2**20
    return peaks


def cpu_cases(rounds: int) -> Iterator[tuple[str, Rows]]:
    for model, size, batch in (("resnet18", 32, 64), ("resnet50", 224, 4)):
        plain, x = build(model), torch.randn(batch, 3, size, size)
        yield f"{model} {size} px, batch {batch}", measure(variants(plain, x), x, rounds, "cpu")


CAPTURED = ("plain", "batch", "prior(N=16)", "auto, one pass", "auto", "auto_stream", "ema")
COMPILED = ("batch", "prior(N=16)", "auto, one pass")
FUSED = ("batch", "auto, one pass", "prior(N=16)")
MORE_COMPILED, MORE_FUSED = ("train mode", "frozen, folded", "auto"), ("auto",)
"""Only with --all: each takes most of a minute, and four passes of `auto` in one graph take minutes to compile."""


NETWORKS = (
    ("mobilenetv2_100", torch.half),
    ("efficientnet_b0", torch.half),
    ("densenet121", torch.half),
    ("resnet50", torch.float32),
)
"""Others than ResNet-50 in half precision: depthwise convolutions, many small layers, single precision."""
OF_NETWORKS = ("plain", "train mode", "batch", "prior(N=16)", "auto, one pass", "ema")


def network_case(name: str, dtype: torch.dtype) -> str:
    """The name of a case of `networks`."""
    return f"{name} 224 px {'fp16' if dtype == torch.half else 'fp32'}, batch 100, captured"


def gpu_cases(rounds: int, modes: Sequence[str], everything: bool) -> Iterator[tuple[str, Rows]]:
    """Eager, as CUDA graphs (`predbn.capture`), compiled, and compiled with a CUDA graph of the result.

    Everything is relative to plain in the same mode. `networks` are others than ResNet-50 in half precision.
    """
    for batch in (100, 500) if "eager" in modes else ():
        models = gpu_variants(None, batch)
        yield gpu_case(models, batch, "eager", rounds)
    for batch in (8, 100, 500) if "captured" in modes else ():
        models = {name: predbn.capture(model) for name, model in gpu_variants(CAPTURED, batch).items()}
        with torch.inference_mode():
            for model in models.values():
                for _ in range(6):  # a stream's first passes are not recorded
                    model(gpu_images(batch))
        yield gpu_case(models, batch, "captured", rounds)
    if "compiled" in modes:
        yield from compiled_cases(rounds, everything)
    for name, dtype in NETWORKS if "networks" in modes else ():
        x = gpu_images(100, dtype)
        plain = build(name).to(dtype=dtype, device="cuda", memory_format=torch.channels_last)
        models = {key: predbn.capture(model) for key, model in variants(plain, x, OF_NETWORKS).items()}
        with torch.inference_mode():
            for model in models.values():
                for _ in range(6):
                    model(x)
        yield network_case(name, dtype), measure(models, x, rounds, "cuda")


def compiled_cases(rounds: int, everything: bool) -> Iterator[tuple[str, Rows]]:
    """Compiled models, each in a process of its own together with the compiled plain model.

    They are measured one after the other: others that only wait have doubled the time of the host.
    """
    names = [*COMPILED, *MORE_COMPILED * everything]
    names += [f"{name}, fused" for name in (*FUSED, *MORE_FUSED * everything)]
    command = sys.executable, __file__, "--device", "cuda", "--rounds", str(rounds), "--compiled"
    found: dict[str, Rows] = {}
    for name in names:
        begin = time.perf_counter()
        process = subprocess.run((*command, name), stdout=subprocess.PIPE, text=True)
        print(f"{name}: {'failed' if process.returncode else 'measured'} in {time.perf_counter() - begin:.0f} s")
        for line in process.stdout.splitlines():
            if not line.startswith("{"):
                print(f"{name}: {line}", flush=True)
                continue
            for case, rows in json.loads(line).items():
                found.setdefault(case, {"plain": rows["plain"]})[name] = rows[name]
    yield from found.items()


def compiled_model(name: str, rounds: int) -> None:
    """One process of `compiled_cases`: compile a model, and print what was measured.

    It is compiled once, for all batch sizes. In a fused one (`predbn.compile`) statistics and normalisation are part
    of convolutions where that is faster.
    """
    begin = time.perf_counter()
    own = name.removesuffix(", fused")
    found = gpu_variants(("plain", own), 100)
    torch._dynamo.config.recompile_limit = 64  # both models share the code of one forward method
    compiler = torch.compile if own == name else predbn.compile
    models = {"plain": torch.compile(found["plain"], fullgraph=True), name: compiler(found[own], fullgraph=True)}
    inputs = [gpu_images(batch) for batch in (100, 500)]  # outside of inference mode, which would be another graph
    with torch.inference_mode():
        for model in models.values():
            for x in inputs:
                model(x)
    torch.cuda.synchronize()
    print(f"compiled in {time.perf_counter() - begin:.0f} s", flush=True)
    for batch in (100, 500):
        cases = gpu_case(models, batch, "compiled", rounds)
        graphs = {name: graphed(model, batch) for name, model in models.items()}
        print(json.dumps(dict([cases, gpu_case(graphs, batch, "compiled, graph", rounds)])), flush=True)
    if own != name:
        fused = Counter(layer.fused for layer in predbn.describe(models[name]))
        print("; ".join(f"{count} layers: {text}" for text, count in fused.most_common()), flush=True)


def graphed(model: nn.Module, batch: int) -> Callable[[Tensor], object]:
    """A compiled model as one CUDA graph of fixed images."""
    x, graph, side = gpu_images(batch), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.inference_mode():
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(x)

    def replay(_: Tensor, images: Tensor = x) -> None:  # the graph reads these images, so they have to stay
        graph.replay()

    return replay


def gpu_images(batch: int, dtype: torch.dtype = torch.half) -> Tensor:
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return x


def gpu_variants(names: Sequence[str] | None, batch: int) -> dict[str, nn.Module]:
    plain = build("resnet50").half().cuda().to(memory_format=torch.channels_last)
    return variants(plain, gpu_images(batch), names)


def gpu_case(models: dict[str, Callable[[Tensor], object]], batch: int, mode: str, rounds: int) -> tuple[str, Rows]:
    x = gpu_images(batch)
    begin = time.perf_counter()
    rows = measure(models, x, rounds, "cuda")
    print(f"batch {batch}, {mode}: {time.perf_counter() - begin:.0f} s for {rounds} rounds", flush=True)
    if mode != "compiled, graph":  # which has its memory already
        for name, peak in peak_memory(models, x).items():
            rows[name]["peak_mib"] = peak
    if batch == 100 and mode in ("captured", "compiled, graph"):
        for name, model in models.items():
            rows[name]["kernels"] = kernels_of_pass(model, x)
    return f"resnet50 224 px fp16, batch {batch}, {mode}", rows


KERNELS = {
    "Inductor": ("triton_",),
    "*sums*": ("_sums",),
    "*statistics*": ("_statistics", "_of_sums", "_of_totals", "_moments"),
    "*mixture*": ("_mixture",),
    "*follow*": ("_follow", "_classes", "_predictions", "_means"),
    "*normalise*": ("_normalise",),
    "memory set to zero": ("Memset",),
    "batch norm of PyTorch": ("void at::native::batch_norm", "void cudnn::bn"),
}
"""Kinds of kernels, by how their names begin."""


def kind_of(name: str) -> str:
    """Which of `KERNELS` it is; convolutions are among those that are none."""
    return next((kind for kind, parts in KERNELS.items() if name.startswith(parts)), "others")


@torch.inference_mode()
def kernels_of_pass(model: Callable[[Tensor], object], x: Tensor, passes: int = 5) -> dict[str, list[float]]:
    """Microseconds and launches of each kind of kernel in a pass, as the profiler of PyTorch sees them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(passes):
            model(x)
        torch.cuda.synchronize()
    found: dict[str, list[float]] = {}
    for event in profiler.events():
        total = found.setdefault(kind_of(event.name), [0.0, 0])
        total[0] += event.device_time / passes
        total[1] += 1 / passes
    return found


def pass_table() -> str:
    """The kernels of one pass, captured and compiled, from results/: two tables of docs/performance.md."""
    cases = json.loads((RESULTS / "inference-cuda.json").read_text())["cases"]
    tables = []
    for mode in ("captured", "compiled"):
        rows = {name: row for case in cases if mode in case for name, row in cases[case].items() if "kernels" in row}
        tables.append(kernel_columns(mode, {name: row["kernels"] for name, row in rows.items() if name != "auto"}))
    return "\n\n".join(tables)


def kernel_columns(mode: str, columns: dict[str, dict[str, list[float]]]) -> str:
    """A column for each model, and a row for each kind of kernel."""
    kinds = [kind for kind in (*KERNELS, "others") if any(kind in column for column in columns.values())]
    lines = [f"| {mode}, µs (launches) | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]

    def cell(pairs: Sequence[Sequence[float]]) -> str:
        return f"{sum(p[0] for p in pairs):,.0f} ({sum(p[1] for p in pairs):.0f})" if pairs else ""

    for kind in kinds:
        cells = [cell([column[kind]] if kind in column else []) for column in columns.values()]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    lines.append("| all | " + " | ".join(cell(list(column.values())) for column in columns.values()) + " |")
    return "\n".join(lines)


def microseconds(run: Callable[[], object], count: int = 20) -> float:
    """How long a call takes on the GPU, launched from a CUDA graph."""
    for _ in range(3):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count * 1e3


def layer_kernels(x: Tensor) -> list[Callable[[], object]]:
    """The kernels of a layer: plain batch norm, PyTorch's for training, ours for sums, for normalising, and all ours
    for `batch`; then normalising with shortcut and ReLU, PyTorch's (with stored statistics) and ours."""
    from predbn.norm.gpu.normalise import normalise
    from predbn.norm.gpu.sums import moments, sums, tiling_of

    found, (weight, bias) = moments(x), torch.rand(2, x.shape[1], device="cuda")
    own = [t.to(x.dtype) for t in (found[0][0], found[1][0], weight, bias)]
    return [
        lambda: F.batch_norm(x, *own, False, 0.0, 1e-5),
        lambda: torch._batch_norm_impl_index(x, weight, bias, None, None, True, 0.0, 1e-5, True),
        lambda: sums(x, tiling_of(x, 1)),
        lambda: normalise(x, found, weight, bias, 1e-5),
        lambda: normalise(x, moments(x), weight, bias, 1e-5),
        lambda: F.relu(F.batch_norm(x, *own, False, 0.0, 1e-5) + x, inplace=True),
        lambda: normalise(x, found, weight, bias, 1e-5, shortcut=x, relu=True),
    ]


def maps(batch: int, channels: int, size: int) -> Tensor:
    """What a layer gets, in half precision and channels_last."""
    x = torch.randn(batch, channels, size, size, device="cuda", dtype=torch.half)
    return x.contiguous(memory_format=torch.channels_last)


NAMES = (
    "channels, map", "plain batch norm", "PyTorch's training kernel", "ours: sums", "ours: normalise", "ours: batch",
    "plain, shortcut, ReLU", "ours: the same",
)  # fmt: skip


def kernel_table() -> Iterator[str]:
    """What the kernels of a layer of a ResNet-50 take, and PyTorch's, in µs: a table of docs/performance.md."""
    yield f"| {' | '.join(NAMES[:5])} |\n|---|--:|--:|--:|--:|"
    shapes = ((64, 112), (64, 56), (256, 56), (128, 28), (512, 28), (256, 14), (1024, 14), (512, 7), (2048, 7))
    for channels, size in shapes:
        runs = layer_kernels(maps(100, channels, size))[:4]
        yield f"| {channels}, {size}² | " + " | ".join(f"{microseconds(run):.0f}" for run in runs) + " |"


SMALL_LAYERS = (16, 32), (32, 16), (64, 8)
"""Channels and map of the layers of a ResNet-20."""


def small_kernel_table() -> Iterator[str]:
    """The same for a ResNet-20 in batches of 500, in both layouts. `kernels.batch_norm` takes ours for `batch` where
    they are faster than the training kernel."""
    yield f"| {' | '.join(NAMES)} |\n|---|" + "--:|" * (len(NAMES) - 1)
    for dtype in (torch.half, torch.float32):
        for layout in (torch.channels_last, torch.contiguous_format):
            for channels, size in SMALL_LAYERS:
                x = torch.randn(500, channels, size, size, device="cuda", dtype=dtype).contiguous(memory_format=layout)
                name = f"{channels}, {size}², {dtype}, {layout}".replace("torch.", "")
                cells = (f"{microseconds(run):.1f}" for run in layer_kernels(x))
                yield f"| {name} | " + " | ".join(cells) + " |"


def small_convolution_table() -> Iterator[str]:
    """The 3×3 convolutions of a ResNet-20 in batches of 500, in µs: cuDNN's, and ours."""
    from predbn.models.kernels.conv import conv3x3

    yield "| channels, map | cuDNN | ours |\n|---|--:|--:|"
    for channels, size in SMALL_LAYERS:
        x = maps(500, channels, size)
        weight = torch.randn(channels, channels, 3, 3, device="cuda", dtype=torch.half) / channels**0.5 / 3
        runs = partial(F.conv2d, x, weight, padding=1), partial(conv3x3, x, weight)
        yield f"| {channels}, {size}² | " + " | ".join(f"{microseconds(run):.1f}" for run in runs) + " |"


CONVOLUTIONS = (
    (64, 64, 56, 1), (64, 256, 56, 1), (256, 64, 56, 1), (256, 128, 56, 1), (256, 512, 56, 2), (128, 512, 28, 1),
    (512, 128, 28, 1), (512, 256, 28, 1), (512, 1024, 28, 2), (256, 1024, 14, 1), (1024, 256, 14, 1),
    (1024, 512, 14, 1), (1024, 2048, 14, 2), (512, 2048, 7, 1), (2048, 512, 7, 1),
)  # fmt: skip
"""The 1×1 convolutions of a ResNet-50: channels of input and output, input map, stride."""


def convolution_table(batch: int = 100) -> Iterator[str]:
    """What 1×1 convolutions take in µs: alone, and with sums of the batch or of each example, separate and fused;
    the same with normalisation and ReLU of the input. A table of docs/performance.md."""
    from predbn.norm.gpu.conv import BATCH, EXAMPLES, Prologue
    from predbn.norm.gpu.conv_choice import SEPARATE, fastest, run

    def row(depth: int, channels: int, size: int, stride: int) -> str:
        x = maps(batch, depth, size)
        weight = torch.randn(channels, depth, 1, 1, device="cuda", dtype=torch.half) / depth**0.5
        rows = torch.rand(2, depth, device="cuda")
        cells = [f"{microseconds(lambda: F.conv2d(x, weight, stride=stride)):.0f}"]
        for prologue in (None, Prologue(*rows, relu=True)):
            for wanted in (BATCH, EXAMPLES):
                arguments = x, weight, stride, prologue, wanted
                best = fastest(*arguments, with_separate=False)
                separate, fused = (microseconds(partial(run, way, *arguments)) for way in (SEPARATE, best))
                note = "" if prologue is None or best.is_normalised else ", normalised before"
                cells += [f"{separate:.0f}", f"{fused:.0f} ({best.config.rows}×{best.config.columns}{note})"]
        step = f", stride {stride}" if stride > 1 else ""
        return f"| {depth}→{channels}, {size}²{step} | " + " | ".join(cells) + " |"

    names = ["convolution", "alone"]
    for before in ("", "normalise, "):
        names += [f"{before}{sums}: {how}" for sums in ("sums", "sums of examples") for how in ("separate", "fused")]
    yield f"| {' | '.join(names)} |\n|---|" + "--:|" * (len(names) - 1)
    with torch.inference_mode():
        for shape in CONVOLUTIONS:
            yield row(*shape)


def show(case: str, rows: Rows, targets: dict[str, float]) -> None:
    print(f"\n{case}: plain {rows['plain']['ms']:.2f} ms", flush=True)
    for name, row in rows.items():
        wanted = f"   (target {targets[name]:.2f})" if name in targets else ""
        memory = f"   peak {row['peak_mib']:.0f} MiB" if "peak_mib" in row else ""
        print(f"  {name:20s} {row['ratio']:.3f}{wanted}{memory}", flush=True)


MODES = ("eager", "captured", "compiled", "networks")
SHORT = ("batch", "prior(N=16)", "ema", "auto, one pass", "auto", "frozen, folded")
"""The rows of the README's table."""


def markdown(device: str = "*", chosen: Sequence[str] | None = None) -> str:
    """The ratios of all results, or of one device and some variants, in a table for each kind of cases."""
    files = sorted(RESULTS.glob(f"inference-{device}.json"))
    cases = {k: v for f in files for k, v in json.loads(f.read_text())["cases"].items()}
    groups: dict[str, dict[str, Rows]] = {}
    others = [network_case(*network) for network in NETWORKS]
    for case, rows in cases.items():
        kind = next((kind for kind in ("compiled", "captured", "eager") if kind in case), "cpu")
        if case in others:
            kind = "networks"
        groups.setdefault({"captured": "gpu", "eager": "gpu"}.get(kind, kind), {})[case] = rows
    return "\n\n".join(table(own, chosen) for own in groups.values())


def table(cases: dict[str, Rows], chosen: Sequence[str] | None) -> str:
    """One of these tables. What all columns have in common is in the first one."""
    names = chosen or list(dict.fromkeys(name for rows in cases.values() for name in rows if name != "plain"))
    networks = {case.partition(", ")[0] for case in cases}
    corner, columns = "relative to the plain model", list(cases)
    if len(networks) == 1:
        corner += f", {networks.pop()}"
        columns = [case.partition(", ")[2] for case in cases]
    lines = [f"| {corner} | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(cases)]
    for name in names:
        cells = (f"{rows[name]['ratio']:.2f}" if name in rows else "" for rows in cases.values())
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("| *plain, ms* | " + " | ".join(f"{rows['plain']['ms']:.1f}" for rows in cases.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES[:3], help="on a GPU: what to measure")
    parser.add_argument("--all", action="store_true", help="on a GPU: more compiled models, which takes much longer")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--streams", action="store_true", help="batches of several streams, on the CPU")
    parser.add_argument("--compiled", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--kernels", action="store_true", help="on a GPU: single kernels, printed only")
    parser.add_argument("--small", action="store_true", help="with --kernels: without 1×1 convolutions, a few seconds")
    parser.add_argument("--markdown", action="store_true", help="print the table from results/")
    parser.add_argument("--passes", action="store_true", help="print the kernels of one pass from results/")
    parser.add_argument("--short", action="store_true", help="print the main rows of the CPU from results/")
    options = parser.parse_args()
    if options.markdown or options.short:
        print(markdown("cpu", SHORT) if options.short else markdown())
        return
    if options.passes:
        print(pass_table())
        return
    if options.compiled:
        with torch.no_grad():
            compiled_model(options.compiled, options.rounds)
        return
    if options.kernels:
        tables = [small_kernel_table, small_convolution_table, kernel_table]
        if not options.small:
            tables.append(convolution_table)
        for table in tables:
            for line in table():
                print(line, flush=True)
            print()
        return
    torch.set_num_threads(options.threads)
    if options.streams:
        for case, rows in stream_cases(options.rounds):
            show(case, rows, {})
        return
    card = {
        "command": f"python benchmarks/inference.py --device {options.device} --rounds {options.rounds}",
        "torch": torch.__version__,
        "hardware": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
        "threads": options.threads,
        "rounds": options.rounds,
    }
    out = options.out or RESULTS / f"inference-{options.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(out.read_text()) if out.exists() else {"cards": {}, "cases": {}}
    with torch.no_grad():
        gpu = options.device == "cuda"
        measured = gpu_cases(options.rounds, options.modes, options.all) if gpu else cpu_cases(options.rounds)
        for case, rows in measured:
            show(case, rows, next((targets for part, targets in TARGETS.items() if part in case), {}))
            found["cards"][case], found["cases"][case] = card, rows
            out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nWrote {out}")


if __name__ == "__main__":
    main()
