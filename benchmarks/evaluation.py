"""Speed of an evaluation.

On a CPU: the overhead of an evaluation over its forward passes. Three variants alternate in one run, and the fastest
round of each counts: the bare forward passes on images that are already corrupted; the whole evaluation (metrics,
bookkeeping, files) on the same images; and the whole evaluation including the corruption. It uses one network and two
strategies: the fewer forward passes there are, the more the overhead shows. CPU time is reported beside wall time,
because other work on the machine disturbs it less.

On a GPU: all 95 splits of CIFAR-10-C, 10,000 images each, corrupted on the fly, under train and batch, for ten networks
and their ensemble, in prediction batches of 500; wall time of everything except the imports and opening the data set.
--sample takes the 2,000 pictures that come with the package five times instead of CIFAR-10, if that is not here.

At 224 pixels, with --pixels 224: one split of ImageNet's size from a decoded cache, clean and under contrast, with
ResNet-50 under train and batch in batches of 100, compared with the bare forward passes of the same two on batches
that are already on the device. Pixels and weights are random; the time does not depend on them.

    python benchmarks/evaluation.py                    # writes results/evaluation-cpu.json
    python benchmarks/evaluation.py --device cuda      # writes results/evaluation-cuda.json; see `predbn data cifar10`
    python benchmarks/evaluation.py --pixels 224 --device cuda          # writes results/evaluation-224-cuda.json
    python benchmarks/evaluation.py --pixels 224 --images 8 --batch 4   # a trial on a CPU
    python benchmarks/evaluation.py --markdown         # measures nothing: the sentences of the README from results/
"""

from __future__ import annotations

import argparse
import importlib
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measurements import RESULTS, read_results, write_results
from predbn import shifts
from predbn.common import each_on_one_core
from predbn.data import Corrupted, ImageBatch, Images, cifar10, sample, wnids
from predbn.data.batch import resolve_order
from predbn.evaluation import InProcess, Job, Plan, Unit, evaluate
from predbn.evaluation.model_cache import PredictorKey
from predbn.evaluation.precision import numerics
from predbn.evaluation.store import Store
from predbn.models import Classifier, ModelInfo
from predbn.models.architectures import find_architecture

NAMES = shifts.names("all")
IMPORTED_LATER = ("pyarrow.dataset", "scipy.special", "triton")
"""What an evaluation imports when it first needs it. Imports are not timed."""


class Cached:
    """Splits that are already corrupted."""

    def __init__(self, clean: Images, severity: int, only: tuple[str, ...]) -> None:
        source = Corrupted(clean)
        self.name, self.classes, self.names = source.name, source.classes, source.names
        self.labels, self.index = source.labels, source.index
        self.splits = {name: torch.cat([b.images for b in source.batches(name, severity, 500)]) for name in only}

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self, name: str, severity: int, size: int, *, order: Any = None, device: Any = None
    ) -> Iterator[ImageBatch]:
        for step in resolve_order(order, len(self)).split(size):
            yield ImageBatch(self.splits[name][step], self.labels[step], self.index[step])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time, and CPU time of all cores together, in seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def on_cpu(images: int, rounds: int, only: tuple[str, ...], severity: int = 3) -> dict[str, Any]:
    """The overhead over the bare forward passes, with cached corruptions and without."""
    clean = sample("test").take(images)
    plan = Plan(models="zoo:resnet20-cifar10/batch/0", shifts=only, severities=severity, orders="official")  # type: ignore[arg-type]
    cached = Cached(clean, severity, only)
    jobs = {"cached": Job(plan, data=cached), "on the fly": Job(plan, data=clean)}
    cache = jobs["cached"].cache
    lanes = [cache.predictor(PredictorKey(plan.models[0].name, s, 500)) for s in plan.settings.values()]

    def bare() -> None:
        for name in only:
            pieces = cached.splits[name].split(500)
            each_on_one_core(lambda job: job[0].logits(job[1]), [(lane, piece) for piece in pieces for lane in lanes])

    def whole(job: Job) -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(folder)
            with store.writing():
                for result in InProcess().run(job, job.split_units([], set())):
                    store.add(result)
                store.merge()

    ways: dict[str, Callable[[], None]] = {"forward passes": bare}
    ways |= {name: (lambda job=job: whole(job)) for name, job in jobs.items()}  # type: ignore[misc]
    best = dict.fromkeys(ways, (float("inf"), float("inf")))
    for turn in range(rounds + 1):
        for name, way in ways.items():
            found = timed(way)
            if turn:
                best[name] = min(best[name][0], found[0]), min(best[name][1], found[1])
                print(f"{name:15s} {found[0]:7.2f} s, {found[1]:7.2f} s CPU time", flush=True)
    result: dict[str, Any] = {"images": images, "splits": len(only), "threads": torch.get_num_threads()}
    for name, (wall, cpu) in best.items():
        base = best["forward passes"]
        result[name] = {"seconds": wall, "cpu_seconds": cpu, "ratio": wall / base[0], "ratio_cpu": cpu / base[1]}
    return result


def repeated_sample(times: int = 5) -> Images:
    """The test pictures that come with the package, several times, each with an index and random draws of its own."""
    once = sample("test")
    images, labels = once.images.repeat(times, 1, 1, 1), once.labels.repeat(times)
    return Images(images, labels, torch.arange(len(labels)), once.classes, f"{once.name}, {times} times")


def on_gpu(data: Images, precision: str, members: int) -> dict[str, Any]:
    """All of CIFAR-10-C, with ten networks and their ensemble."""
    plan = Plan(
        models=f"zoo:resnet20-cifar10/batch/{'*' if members == 10 else f'[0-{members - 1}]'}",  # type: ignore[arg-type]
        methods=("vanilla", "ensemble"),
        shifts=NAMES,
        precision=precision,  # type: ignore[arg-type]
    )
    for name in IMPORTED_LATER:
        importlib.import_module(name)
    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    marks = [time.perf_counter()]

    def mark(done: int, total: int, label: str) -> None:
        marks.append(time.perf_counter())
        print(f"{done:3d} of {total}: {marks[-1] - marks[0]:6.2f} s {label}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        results = evaluate(plan, folder, engine=InProcess("cuda"), data=data, progress=mark)
    seconds = time.perf_counter() - marks[0]
    accuracy = results.filter(metric="accuracy", method="ensemble").frame.groupby("strategy")["value"].mean()
    first, last = marks[2] - marks[0], (marks[-1] - marks[2]) / (len(marks) - 3)
    print(
        f"{seconds:.1f} s in all, {first:.1f} s to the first split, then {last:.3f} s per split; "
        f"{torch.cuda.max_memory_reserved() / 2**30:.1f} GiB; {accuracy.to_dict()}",
        flush=True,
    )
    return {
        "data": data.name,
        "members": members,
        "precision": precision,
        "images": len(data),
        "splits": len(NAMES) * 5,
        "seconds": seconds,
        "first_split_seconds": first,
        "split_seconds": last,
        "ensemble_accuracy": accuracy.to_dict(),
    }


def at_224(device: str, images: int, batch: int, rounds: int, precision: str) -> dict[str, Any]:
    """Images per second of a whole evaluation and of its forward passes alone; the fastest round of each counts."""
    if device == "cpu":
        precision = "fp32"
    plan = Plan(
        models="resnet50-v1",  # type: ignore[arg-type]
        data="imagenet:random",
        shifts=("clean", "contrast"),
        severities=(3,),
        batch_sizes=(batch,),
        precision=precision,  # type: ignore[arg-type]
    )
    entry = find_architecture("resnet50-v1")
    network = Classifier(entry.build(), ModelInfo(entry.name, entry.classes, entry.preprocessing)).eval()
    with tempfile.TemporaryDirectory() as folder:
        data = _cache(Path(folder) / "decoded.npy", images)
        job = Job(plan, device, data, models={entry.name: network})
        clean, contrast = job.split_units([], set())
        cache = job.cache
        lanes = [cache.predictor(PredictorKey(entry.name, s, batch)) for s in plan.settings.values()]
        held = [each.images for each in data.batches(batch, device=device)]

        def bare() -> None:
            with numerics(plan.precision):
                for piece in held:
                    if device == "cpu":
                        each_on_one_core(lambda lane, piece=piece: lane.logits(piece), lanes)
                    else:
                        for lane in lanes:
                            lane.logits(piece)
                        cache.graph_streams.forget_images()
            _wait(device)

        def whole(unit: Unit) -> None:
            with tempfile.TemporaryDirectory() as out:
                store = Store(out)
                with store.writing():
                    store.add(job.worker.do(unit))
            _wait(device)

        ways = {"forward passes": bare, "clean": lambda: whole(clean), "contrast": lambda: whole(contrast)}
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(rounds + 1):
            for name, way in ways.items():
                seconds = timed(way)[0]
                best[name] = min(best[name], seconds) if turn else best[name]
                print(f"{name:15s} {seconds:8.3f} s{'' if turn else ' (warming up)'}", flush=True)
    passes = len(lanes) * images
    found: dict[str, Any] = {"images": images, "batch": batch, "precision": precision, "strategies": plan.strategies}
    for name, seconds in best.items():
        found[name] = {"seconds": seconds, "forward_passes_per_second": passes / seconds}
        found[name]["of_bare"] = best["forward passes"] / seconds
    return found


def _cache(path: Path, images: int) -> Images:
    """Random images in a memory-mapped file, as in the decoded cache."""
    random = np.random.default_rng(0)
    pixels = np.lib.format.open_memmap(path, "w+", np.uint8, (images, 3, 224, 224))
    for start in range(0, images, 100):
        part = pixels[start : start + 100]
        part[:] = random.integers(0, 256, part.shape, dtype=np.uint8)
    pixels.flush()
    labels = torch.arange(images) % 1000
    return Images(torch.from_numpy(np.load(path, mmap_mode="c")), labels, torch.arange(images), wnids(), "random")


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def markdown() -> str:
    """The results in sentences."""
    said = []
    if (path := RESULTS / "evaluation-cpu.json").exists():
        cpu = read_results(path)
        shares = (100 * (cpu[name]["ratio_cpu"] - 1) for name in ("cached", "on the fly"))
        cached, fresh = (f"{share:.1f} %" if share > 0 else f"nothing measurable ({share:.1f} %)" for share in shares)
        said.append(
            f"On {cpu['threads']} CPU cores, an evaluation of one network under two strategies adds {cached} to the "
            f"time of its forward passes if the corruptions are cached, and {fresh} if they are made on the fly."
        )
    if (path := RESULTS / "evaluation-cuda.json").exists():
        gpu = read_results(path)
        said.append(
            f"All {gpu['splits']} splits of CIFAR-10-C ({gpu['images']:,} images each, corrupted on the fly) with "
            f"{gpu['members']} networks and their ensemble under train and batch take {gpu['seconds']:.0f} s on one "
            f"{gpu['card']['gpu']} in {gpu['precision']}."
        )
    if (path := RESULTS / "evaluation-224-cuda.json").exists():
        gpu = read_results(path)
        clean, contrast = (100 * gpu[name]["of_bare"] for name in ("clean", "contrast"))
        said.append(
            f"At 224 pixels, ResNet-50 under train and batch evaluates a split of {gpu['images']:,} images from the "
            f"decoded cache at {clean:.0f} % of the speed of its bare forward passes "
            f"({gpu['forward passes']['forward_passes_per_second']:,.0f} per second on one {gpu['card']['gpu']} in "
            f"{gpu['precision']}), and at {contrast:.0f} % if it is corrupted on the fly."
        )
    return " ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--pixels", type=int, default=32, choices=[32, 224], help="image size: CIFAR-10 or ImageNet")
    parser.add_argument(
        "--images", type=int, help="images per split on a CPU (default 500) or at 224 pixels (default 5,000)"
    )
    parser.add_argument("--batch", type=int, default=100, help="images in a prediction batch, at 224 pixels")
    parser.add_argument("--rounds", type=int, default=2, help="rounds that count, on a CPU; one more warms up")
    parser.add_argument("--only", nargs="*", default=list(NAMES), help="corruptions, on a CPU")
    parser.add_argument("--root", type=Path, help="CIFAR-10 as downloaded (default: the cache)")
    parser.add_argument("--sample", action="store_true", help="the pictures of the package, on a GPU")
    parser.add_argument("--precision", default="fp16", help="on a GPU")
    parser.add_argument("--members", type=int, default=10, help="networks of the ensemble, on a GPU")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print what is in results/")
    options = parser.parse_args()
    if options.markdown:
        print(markdown())
        return
    card = {"torch": torch.__version__, "machine": platform.processor() or platform.machine()}
    if options.device == "cuda":
        card["gpu"] = torch.cuda.get_device_name()
    if options.pixels == 224:
        images = options.images or 5000
        found = at_224(options.device, images, options.batch, options.rounds, options.precision)
    elif options.device == "cuda":
        data = repeated_sample() if options.sample else cifar10("test", options.root)
        found = on_gpu(data, options.precision, options.members)
    else:
        found = on_cpu(options.images or 500, options.rounds, tuple(options.only))
    size = "-224" if options.pixels == 224 else ""
    write_results(options.out or RESULTS / f"evaluation{size}-{options.device}.json", {"card": card, **found})
    print(markdown())


if __name__ == "__main__":
    main()
