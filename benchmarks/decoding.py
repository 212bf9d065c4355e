"""How fast a folder of pictures becomes batches: a plain loop, threads, processes, and the decoded cache.

    python benchmarks/decoding.py                            # made pictures of ImageNet's usual 500 × 375 pixels
    python benchmarks/decoding.py --root ~/imagenet/val      # yours; --count says how many of them

All bring the same pictures to 224 × 224 pixels from 256 and leave them as uint8 [N, 3, 224, 224]; that they agree is
checked. The loop is Pillow and numpy on one core, as one writes it first. Processes hand the pixels back through
pipes, as the workers of a data loader do. Rounds alternate, so that whatever else the machine does meets all of them,
and the fastest of each counts. `cached` is what every later split, model and run pays: batches of 100 in a random
order from the file in the cache folder. Writes results/decoding-cpu.json; --markdown prints the table from it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from predbn.data.framing import Framing, read_picture
from predbn.data.listing import Listing, list_pictures

from predbn.data import Images, from_folder

RESULT = Path(__file__).resolve().parents[1] / "results" / "decoding-cpu.json"
FRAMING = Framing((224, 224), 256)


def make_pictures(root: Path, count: int) -> Path:
    """Photographs' worth of detail: smooth colours under fine noise, as JPEG of quality 90 (about 100 kB)."""
    (root / "made").mkdir()
    for number in range(count):
        draws = np.random.default_rng(number)
        smooth = Image.fromarray(draws.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375))
        noisy = np.asarray(smooth) + draws.normal(0, 12, (375, 500, 1))
        picture = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        picture.save(root / "made" / f"{number:05}.JPEG", quality=90)
    return root


def turned(path: str) -> np.ndarray:
    """One picture, channels first."""
    return np.ascontiguousarray(read_picture(path, FRAMING).transpose(2, 0, 1))


def in_a_loop(paths: list[str]) -> np.ndarray:
    return np.stack([turned(path) for path in paths])


def in_processes(pool: object, paths: list[str]) -> np.ndarray:
    return np.stack(pool.map(turned, paths, chunksize=16))  # type: ignore[attr-defined]


def in_threads(root: Path) -> np.ndarray:
    """As the package does it, into an empty cache: file, fsync and all."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PREDBN_CACHE"] = cache
        return from_folder(root, 224, resize=256).images.numpy()


def from_cache(images: Images, order: torch.Tensor) -> int:
    return sum(len(batch.labels) for batch in images.batches(100, order=order))


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def subset(root: Path, count: int, place: Path) -> Path:
    """Links to the first pictures of a folder, so that all sides read the same ones."""
    listing: Listing = list_pictures(root)
    for position, name in enumerate(listing.names[:count]):
        link = place / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(Path(listing.path(position)).resolve())
    return place


def measure(root: Path, rounds: int, cores: int) -> dict[str, object]:
    torch.set_num_threads(cores)
    listing = list_pictures(root)
    paths = [listing.path(k) for k in range(len(listing))]
    wanted = in_a_loop(paths)
    with get_context("fork").Pool(cores) as pool, tempfile.TemporaryDirectory() as cache:
        ways: dict[str, Callable[[], object]] = {
            "loop": lambda: in_a_loop(paths),
            "processes": lambda: in_processes(pool, paths),
            "threads": lambda: in_threads(root),
        }
        for name, way in ways.items():
            if not np.array_equal(way(), wanted):
                raise SystemExit(f"{name} gives other pixels than the loop.")
        os.environ["PREDBN_CACHE"] = cache
        images = from_folder(root, 224, resize=256)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        ways["cached"] = lambda: from_cache(images, order)
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(rounds):
            for name, way in ways.items():
                best[name] = min(best[name], seconds(way))
    rates = {name: round(len(paths) / time, 1) for name, time in best.items()}
    head = Image.open(paths[0])
    return {
        "machine": f"{platform.processor() or platform.machine()}, {cores} cores",
        "pictures": f"{len(paths)} such as {head.width}×{head.height} {head.format}",
        "images_a_second": rates,
        "times_the_loop": {name: round(rate / rates["loop"], 2) for name, rate in rates.items()},
    }


def table(result: dict) -> str:
    rows = ["| | images/s | times the loop |", "|---|--:|--:|"]
    for name, rate in result["images_a_second"].items():
        rows.append(f"| {name} | {rate:,.0f} | {result['times_the_loop'][name]:.2f} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="folder of class folders; made pictures unless given")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--markdown", action="store_true", help="measure nothing: print the table")
    chosen = parser.parse_args()
    if not chosen.markdown:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            root = subset(chosen.root, chosen.count, place) if chosen.root else make_pictures(place, chosen.count)
            result = measure(root, chosen.rounds, chosen.cores)
        RESULT.write_text(json.dumps(result, indent=2) + "\n")
        print(result["machine"], result["pictures"], sep="; ")
    print(table(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()
