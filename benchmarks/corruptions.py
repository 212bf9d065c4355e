"""Speed of the 19 corruptions against `imagecorruptions-imaug` 1.1.5 (pip install "predbn[bench]").

Both corrupt the same images at severity 3 with the ImageNet constants, the only ones that the other package has, on
two CPU cores: ours with two threads, the peer with two processes. Rounds alternate between the two, so that other work
on the machine affects both; a round takes equally long on both sides, and the fastest round of each counts. CPU time is
measured as well, because other work disturbs it less.
Columns: images per second of ours, of the peer, their ratio; the same per CPU second.

    python benchmarks/corruptions.py                    # writes results/corruptions-cpu.json
    python benchmarks/corruptions.py --device cuda      # only ours, on a GPU: results/corruptions-cuda.json
    python benchmarks/corruptions.py --markdown         # measures nothing, prints the tables of docs/corruptions.md
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from measurements import RESULTS, markdown_table, read_results, write_results
from predbn import shifts

ROOT = Path(__file__).resolve().parents[1]
SEVERITY = 3
Images = npt.NDArray[np.uint8]


class Seconds(NamedTuple):
    """Wall-clock time, and CPU time of all cores together."""

    wall: float
    cpu: float


def pictures(size: int, count: int) -> Images:
    """CIFAR-10 test images, enlarged if the size is not 32."""
    mosaic = np.asarray(Image.open(ROOT / "tests/shifts/data/cifar10-test-2000.webp").convert("RGB"))
    small = mosaic.reshape(40, 32, 50, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)[:count]
    if size == 32:
        return np.ascontiguousarray(small)
    return np.stack([np.asarray(Image.fromarray(i).resize((size, size), Image.Resampling.BICUBIC)) for i in small])


def peer_process(pipe: Connection, images: dict[int, Images]) -> None:
    """Corrupt this process's share of the images on request: receives (size, name, count), sends CPU seconds."""
    warnings.filterwarnings("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"
    import cv2
    from imagecorruptions import corrupt  # type: ignore[import-not-found]

    cv2.setNumThreads(1)
    while (request := pipe.recv()) is not None:
        size, name, count = request
        start = time.process_time()
        for number in range(count):
            image = images[size][number % len(images[size])]
            corrupt(image, severity=SEVERITY, corruption_name=name)
        pipe.send(time.process_time() - start)


class Peer:
    """The other package, in `cores` processes that live as long as the benchmark."""

    def __init__(self, images: dict[int, Images], cores: int) -> None:
        context = get_context("fork")
        self.pipes: list[Connection] = []
        for part in range(cores):
            parent_end, child_end = context.Pipe()
            share = {size: batch[part::cores] for size, batch in images.items()}
            context.Process(target=peer_process, args=(child_end, share), daemon=True).start()
            self.pipes.append(parent_end)

    def seconds(self, size: int, name: str, count: int) -> Seconds:
        """The time for `count` images, shared between the processes."""
        start = time.perf_counter()
        for pipe in self.pipes:
            pipe.send((size, name, -(-count // len(self.pipes))))
        cpu = sum(pipe.recv() for pipe in self.pipes)
        return Seconds(time.perf_counter() - start, cpu)


def ours(images: Any, name: str) -> Seconds:
    """The time for a batch."""
    start, cpu = time.perf_counter(), time.process_time()
    shifts.corrupt(images, name, SEVERITY, seed=0, index=np.arange(len(images)), constants="imagenet")
    if isinstance(images, torch.Tensor) and images.is_cuda:
        torch.cuda.synchronize()
    return Seconds(time.perf_counter() - start, time.process_time() - cpu)


def against_peer(sizes: dict[int, int], rounds: int, cores: int, window: float, only: list[str]) -> dict[str, Any]:
    """Images per second on both sides for each size and corruption, and the totals.

    The total ratio is the ratio of the times for one image under all corruptions, one after another.
    """
    torch.set_num_threads(cores)
    images = {size: pictures(size, count) for size, count in sizes.items()}
    peer = Peer(images, cores)
    table: dict[str, Any] = {}
    for size, batch in images.items():
        rows: dict[str, Any] = {}
        for name in only:
            for _ in range(2):
                peer_image_seconds = peer.seconds(size, name, cores).wall / cores
                our_batch_seconds = ours(batch, name).wall
            peer_images = cores * max(1, round(window / peer_image_seconds / cores))
            our_batches = max(1, round(window / our_batch_seconds))
            our_rounds, peer_rounds = [], []
            for _ in range(rounds):
                peer_rounds.append([t / peer_images for t in peer.seconds(size, name, peer_images)])
                total = np.sum([ours(batch, name) for _ in range(our_batches)], axis=0)
                our_rounds.append(total / our_batches / len(batch))
            (wall, cpu), (peer_wall, peer_cpu) = np.min(our_rounds, axis=0), np.min(peer_rounds, axis=0)
            row = {"ours": 1 / wall, "theirs": 1 / peer_wall, "ratio": peer_wall / wall}
            row |= {"ours_per_core": 1 / cpu, "theirs_per_core": 1 / peer_cpu, "ratio_cpu": peer_cpu / cpu}
            rows[name] = row
            print(f"{size:4d} px {name:18s}" + "".join(f"{value:10.1f}" for value in row.values()), flush=True)
        seconds = {side: sum(1 / row[side] for row in rows.values()) for side in rows[only[0]]}
        ratio, ratio_cpu = seconds["theirs"] / seconds["ours"], seconds["theirs_per_core"] / seconds["ours_per_core"]
        table[str(size)] = {"corruptions": rows, "total_ratio": ratio, "total_ratio_cpu": ratio_cpu}
        print(f"{size:4d} px total: {ratio:.1f} times faster, {ratio_cpu:.1f} times by CPU time", flush=True)
    return table


def on_gpu(only: list[str]) -> dict[str, Any]:
    """Seconds for all of CIFAR-10-C from 10,000 images in CPU memory, and images per second at 224 px."""
    clean = np.concatenate([pictures(32, 2000)] * 5)
    result: dict[str, Any] = {"cifar10c": {}, "224": {}}

    def timed(function: Callable[[], object]) -> float:
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def all_severities(name: str) -> None:
        for severity in range(1, 6):
            batch = torch.from_numpy(clean).cuda().permute(0, 3, 1, 2).contiguous()
            done = shifts.corrupt(batch, name, severity, seed=0, index=np.arange(len(clean)))
            done.permute(0, 2, 3, 1).contiguous().cpu()

    torch.zeros(1, device="cuda")
    for name in only:
        result["cifar10c"][name] = timed(lambda name=name: all_severities(name))  # type: ignore[misc]
        print(f"CIFAR-10-C {name:18s} {result['cifar10c'][name]:7.3f} s", flush=True)
    result["cifar10c_seconds"] = sum(result["cifar10c"].values())
    batch = torch.from_numpy(pictures(224, 512)).permute(0, 3, 1, 2).contiguous().cuda()
    for name in only:
        ours(batch, name)
        result["224"][name] = len(batch) / min(ours(batch, name).wall for _ in range(3))
        print(f"224 px {name:18s} {result['224'][name]:9.0f} images/s", flush=True)
    rates = list(result["224"].values())
    result["224_harmonic_mean"] = len(rates) / sum(1 / r for r in rates)
    result["224_mean"] = sum(rates) / len(rates)
    print(f"CIFAR-10-C in {result['cifar10c_seconds']:.1f} s; 224 px: mean {result['224_mean']:.0f} images/s,")
    print(f"all 19 one after another {result['224_harmonic_mean']:.0f} images/s")
    return result


def markdown() -> str:
    """The measurements in results/ as a table and a sentence."""
    cpu, gpu = (read_results(RESULTS / f"corruptions-{device}.json") for device in ("cpu", "cuda"))
    small, large = (cpu[size]["corruptions"] for size in ("32", "224"))
    headings = ["", "32 px, images/s", "× peer", "224 px, images/s", "× peer", "224 px on the GPU, images/s"]
    rows = []
    for name in shifts.names("all"):
        rates = [cell for row in (small[name], large[name]) for cell in (f"{row['ours']:,.0f}", f"{row['ratio']:.1f}")]
        rows.append([name, *rates, f"{gpu['224'][name]:,.0f}"])
    totals = [f"{cpu[size]['total_ratio']:.1f} ({cpu[size]['total_ratio_cpu']:.1f})" for size in ("32", "224")]
    said = (
        f"All 19 one after another, against the peer: {totals[0]} times faster at 32 px and {totals[1]} times at "
        f"224 px, by the clock (by CPU time). On the GPU all of CIFAR-10-C, 950,000 images, takes "
        f"{gpu['cifar10c_seconds']:.1f} s, and 224-pixel images go at {gpu['224_mean']:,.0f} a second on average "
        f"over the 19, or {gpu['224_harmonic_mean']:,.0f} with all 19 one after another."
    )
    return f"{markdown_table(headings, rows)}\n\n{said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=float, default=0.4, help="seconds that each side works per round")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(shifts.names("all")))
    parser.add_argument("--sizes", nargs="*", type=int, default=[32, 224])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print the tables for the measurements in results/")
    options = parser.parse_args()
    if options.markdown:
        print(markdown())
        return
    card = {"torch": torch.__version__, "numpy": np.__version__, "machine": platform.processor()}
    if options.device == "cuda":
        card["gpu"] = torch.cuda.get_device_name()
        table = on_gpu(options.only)
    else:
        counts = {32: 1000, 224: 96}
        sizes = {size: counts[size] for size in options.sizes}
        table = against_peer(sizes, options.rounds, options.cores, options.window, options.only)
    out = options.out or RESULTS / f"corruptions-{options.device}.json"
    write_results(out, {"card": card, "severity": SEVERITY, **table})


if __name__ == "__main__":
    main()
