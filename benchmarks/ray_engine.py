"""The cost of evaluating through Ray instead of in one process, on one machine.

    python benchmarks/ray_engine.py             # a few minutes on a CPU
    python benchmarks/ray_engine.py --markdown  # prints the table from results/, measures nothing

Every round evaluates the same plan once with each engine, in a random order. The Ray cluster of this machine alone
stays up between rounds. Over the rounds, the medians are taken of:

    ratio      Ray / in-process for the wall time from the first result to the last, which grows with the plan
    cpu_ratio  the same for the CPU time of all processes, including those of the cluster; other work on the machine
               disturbs it less
    start_s    how much later than in one process the first result comes: workers start and fetch data and models

The rows of both engines are compared bit for bit. Prints a table and writes results/ray-cpu.json. Linux only.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import ray
import torch

from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.evaluation import Engine, InProcess, Plan, RayEngine, Results, evaluate

TARGET = 1.10
SHIFTS = ("fog", "gaussian_noise", "contrast", "jpeg_compression")


class Sample(NamedTuple):
    """Seconds until the first result, and wall and CPU seconds from there to the last result."""

    start: float
    wall: float
    cpu: float


def timed(plan: Plan, engine: Engine) -> tuple[Sample, Results]:
    """Evaluate the plan. The CPU time of Ray includes all processes that it started."""
    times: list[tuple[float, float]] = []
    cpu_time = time.process_time if isinstance(engine, InProcess) else cpu_time_of_all

    def record(*_: object) -> None:
        times.append((time.perf_counter(), cpu_time()))

    with tempfile.TemporaryDirectory() as out:
        begin = time.perf_counter()
        results = evaluate(plan, out, engine=engine, progress=record)
    (first, first_cpu), (last, last_cpu) = times[1], times[-1]
    return Sample(first - begin, last - first, last_cpu - first_cpu), results


def cpu_time_of_all() -> float:
    """CPU seconds that this process and its descendants have used so far."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    family = {os.getpid()}
    while children := {child for child, parent in parents.items() if parent in family} - family:
        family |= children
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


def measure(plan: Plan, rounds: int, engines: dict[str, Engine]) -> dict[str, float]:
    samples: dict[str, list[Sample]] = {name: [] for name in engines}
    order, shuffle = list(engines), random.Random(0).shuffle
    for number in range(1, rounds + 1):
        shuffle(order)
        frames = {}
        for name in order:
            sample, results = timed(plan, engines[name])
            samples[name].append(sample)
            frames[name] = results.frame
        if not frames["ray"].equals(frames["in-process"]):
            raise SystemExit("the engines computed different values")
        one, ray_sample = samples["in-process"][-1], samples["ray"][-1]
        ratios = f"ratio {ray_sample.wall / one.wall:.3f}, of CPU time {ray_sample.cpu / one.cpu:.3f}"
        print(f"  round {number}: in-process {one.wall:.2f} s, {ratios}", flush=True)
    pairs = list(zip(samples["ray"], samples["in-process"], strict=True))
    ratios = [ray_sample.wall / one.wall for ray_sample, one in pairs]
    return {
        "in_process_s": statistics.median(one.wall for _, one in pairs),
        "ray_s": statistics.median(ray_sample.wall for ray_sample, _ in pairs),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "cpu_ratio": statistics.median(ray_sample.cpu / one.cpu for ray_sample, one in pairs),
        "start_s": statistics.median(ray_sample.start - one.start for ray_sample, one in pairs),
    }


def markdown() -> str:
    """The table of the README."""
    cases = read_results(RESULTS / "ray-cpu.json")["cases"]
    rows = [
        [case, f"{row['in_process_s']:.1f}", f"{row['ratio']:.2f}", f"{row['cpu_ratio']:.2f}", f"{row['start_s']:.1f}"]
        for case, row in cases.items()
    ]
    headings = ["plan", "in-process, s", "Ray / in-process", "of processor time", "Ray starts in, s"]
    return markdown_table(headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=500, help="images per split")
    parser.add_argument("--out", type=Path, default=RESULTS / "ray-cpu.json")
    parser.add_argument("--markdown", action="store_true", help="print the table from results/")
    options = parser.parse_args()
    if options.markdown:
        print(markdown())
        return
    threads = torch.get_num_threads()
    plan = Plan("zoo:resnet20-cifar10/batch/0", shifts=SHIFTS, images=options.images, batch_sizes=(100,))
    case = f"ResNet-20, 20 splits of {options.images} images, train and batch"
    print(f"{case}, {threads} cores", flush=True)
    with RayEngine("local", device="cpu") as engine:
        row = measure(plan, options.rounds, {"in-process": InProcess(), "ray": engine})
    card = {
        "command": f"python benchmarks/ray_engine.py --rounds {options.rounds} --images {options.images}",
        "torch": torch.__version__,
        "ray": ray.__version__,
        "hardware": platform.machine(),
        "threads": threads,
        "rounds": options.rounds,
    }
    write_results(options.out, {"card": card, "cases": {case: row}})
    verdict = "" if row["ratio"] <= TARGET else ", missed"
    print(f"Ray / in-process {row['ratio']:.3f} (target {TARGET:.2f}{verdict}), of CPU time {row['cpu_ratio']:.3f}")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
