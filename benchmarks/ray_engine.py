"""What it costs to evaluate through Ray rather than in one process, on one machine.

    python benchmarks/ray_engine.py             # a few minutes on a CPU
    python benchmarks/ray_engine.py --markdown  # measures nothing: the table from results/

Every round carries out the same plan once with each engine, in a new random order, against a Ray cluster of this
machine alone that stays up. `ratio` is the median over the rounds of (Ray / in-process in the same round) for the
time on the clock from the first result to the last, which is what grows with the plan; `cpu_ratio` is the same for
the processor time of all processes, the cluster's own included, which other work on the machine disturbs less;
`start` is what Ray takes once before its first result over what one process takes: workers that start and fetch data
and models. The rows of both are compared bit for bit. Prints a table and writes results/ray-cpu.json. Linux only.
"""

from __future__ import annotations

import argparse
import json
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

from predbn.evaluation import Engine, InProcess, Plan, RayEngine, Results, evaluate

RESULTS = Path(__file__).resolve().parent.parent / "results"
TARGET = 1.10
SHIFTS = ("fog", "gaussian_noise", "contrast", "jpeg_compression")


class Sample(NamedTuple):
    """Seconds on the clock to the first result, on the clock and of processors from there to the last."""

    start: float
    clock: float
    cpu: float


def timed(plan: Plan, engine: Engine) -> tuple[Sample, Results]:
    """Carry out the plan; an engine in this process is charged with this process, Ray with all that it started."""
    moments: list[tuple[float, float]] = []
    used = time.process_time if isinstance(engine, InProcess) else processor_time

    def note(*_: object) -> None:
        moments.append((time.perf_counter(), used()))

    with tempfile.TemporaryDirectory() as out:
        begin = time.perf_counter()
        results = evaluate(plan, out, engine=engine, progress=note)
    (first, cpu), (last, cpu_then) = moments[1], moments[-1]
    return Sample(first - begin, last - first, cpu_then - cpu), results


def processor_time() -> float:
    """Seconds of processors that this process and all below it have used so far."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks.get(process, 0) for process in below) / os.sysconf("SC_CLK_TCK")


def measure(plan: Plan, rounds: int, engines: dict[str, Engine]) -> dict[str, float]:
    samples: dict[str, list[Sample]] = {name: [] for name in engines}
    order, shuffle = list(engines), random.Random(0).shuffle
    for done in range(rounds):
        shuffle(order)
        frames = {}
        for name in order:
            sample, results = timed(plan, engines[name])
            samples[name].append(sample)
            frames[name] = results.frame
        if not frames["ray"].equals(frames["in-process"]):
            raise SystemExit("the engines came to different values")
        here, there = samples["in-process"][-1], samples["ray"][-1]
        ratios = f"ratio {there.clock / here.clock:.3f}, of processor time {there.cpu / here.cpu:.3f}"
        print(f"  round {done + 1}: in-process {here.clock:.2f} s, {ratios}", flush=True)
    pairs = list(zip(samples["ray"], samples["in-process"], strict=True))
    ratios = [there.clock / here.clock for there, here in pairs]
    return {
        "in_process_s": statistics.median(here.clock for _, here in pairs),
        "ray_s": statistics.median(there.clock for there, _ in pairs),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "cpu_ratio": statistics.median(there.cpu / here.cpu for there, here in pairs),
        "start_s": statistics.median(there.start - here.start for there, here in pairs),
    }


def markdown() -> str:
    """The results as a table."""
    written = json.loads((RESULTS / "ray-cpu.json").read_text(encoding="utf-8"))
    lines = [
        "| plan | in-process, s | Ray / in-process | of processor time | Ray starts in, s |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {case} | {row['in_process_s']:.1f} | {row['ratio']:.2f} | {row['cpu_ratio']:.2f} | {row['start_s']:.1f} |"
        for case, row in written["cases"].items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=500, help="of each split")
    parser.add_argument("--out", type=Path, default=RESULTS / "ray-cpu.json")
    parser.add_argument("--markdown", action="store_true", help="print the table of what is in results/")
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
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"card": card, "cases": {case: row}}, indent=1) + "\n", encoding="utf-8")
    verdict = "" if row["ratio"] <= TARGET else ", missed"
    print(
        f"Ray / in-process {row['ratio']:.3f} (target {TARGET:.2f}{verdict}), of processor time {row['cpu_ratio']:.3f}"
    )
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
