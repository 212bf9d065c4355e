"""How fast a folder of pictures becomes batches: a plain loop, threads, processes, and the decoded cache.

    python benchmarks/decoding.py                            # generated pictures of ImageNet's usual 500 × 375 pixels
    python benchmarks/decoding.py --root ~/imagenet/val      # your pictures; --count says how many of them

All resize the same pictures to 256 pixels and crop 224 × 224, as uint8 [N, 3, 224, 224]; the results are compared.
The loop is plain Pillow and numpy on one core. Processes return the pixels through pipes, like the workers of a data
loader. Rounds alternate, so that other load on the machine affects all of them, and the fastest round counts. `cached`
is the cost for every later split, model and run: batches of 100 in random order from the file in the cache folder.
Writes results/decoding-cpu.json; --markdown prints the table from it.
"""

from __future__ import annotations

import argparse
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

from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.data import Images, from_folder, list_pictures, read_picture, resize_crop

RESULT = RESULTS / "decoding-cpu.json"
TRANSFORM = resize_crop(224, 256)


def make_pictures(root: Path, count: int) -> Path:
    """Generate pictures as detailed as photographs: smooth colours with fine noise, as JPEG (about 100 kB each)."""
    (root / "made").mkdir()
    for number in range(count):
        draws = np.random.default_rng(number)
        smooth = Image.fromarray(draws.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375))
        noisy = np.asarray(smooth) + draws.normal(0, 12, (375, 500, 1))
        picture = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        picture.save(root / "made" / f"{number:05}.JPEG", quality=90)
    return root


def read_channels_first(path: str) -> np.ndarray:
    """One picture, channels first."""
    return np.ascontiguousarray(read_picture(path, TRANSFORM).transpose(2, 0, 1))


def decode_in_loop(paths: list[str]) -> np.ndarray:
    return np.stack([read_channels_first(path) for path in paths])


def decode_in_processes(pool: object, paths: list[str]) -> np.ndarray:
    return np.stack(pool.map(read_channels_first, paths, chunksize=16))  # type: ignore[attr-defined]


def decode_in_threads(root: Path) -> np.ndarray:
    """As the package does it, into an empty cache, including fsync."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PREDBN_CACHE"] = cache
        return from_folder(root, 224, resize=256).images.numpy()


def read_cached(images: Images, order: torch.Tensor) -> int:
    return sum(len(batch.labels) for batch in images.batches(100, order=order))


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def link_subset(root: Path, count: int, target: Path) -> Path:
    """A folder with links to the first pictures of another one, so that all variants read the same ones."""
    listing = list_pictures(root)
    for position, name in enumerate(listing.names[:count]):
        link = target / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(Path(listing.path(position)).resolve())
    return target


def measure(root: Path, rounds: int, cores: int) -> dict[str, object]:
    torch.set_num_threads(cores)
    listing = list_pictures(root)
    paths = [listing.path(k) for k in range(len(listing))]
    expected = decode_in_loop(paths)
    with get_context("fork").Pool(cores) as pool, tempfile.TemporaryDirectory() as cache:
        variants: dict[str, Callable[[], object]] = {
            "loop": lambda: decode_in_loop(paths),
            "processes": lambda: decode_in_processes(pool, paths),
            "threads": lambda: decode_in_threads(root),
        }
        for name, decode in variants.items():
            if not np.array_equal(decode(), expected):
                raise SystemExit(f"{name} gives other pixels than the loop.")
        os.environ["PREDBN_CACHE"] = cache
        images = from_folder(root, 224, resize=256)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        variants["cached"] = lambda: read_cached(images, order)
        best = dict.fromkeys(variants, float("inf"))
        for _ in range(rounds):
            for name, decode in variants.items():
                best[name] = min(best[name], seconds(decode))
    rates = {name: round(len(paths) / time, 1) for name, time in best.items()}
    first = Image.open(paths[0])
    return {
        "machine": f"{platform.processor() or platform.machine()}, {cores} cores",
        "pictures": f"{len(paths)} such as {first.width}×{first.height} {first.format}",
        "images_a_second": rates,
        "times_the_loop": {name: round(rate / rates["loop"], 2) for name, rate in rates.items()},
    }


def table(result: dict) -> str:
    times = result["times_the_loop"]
    rows = [[name, f"{rate:,.0f}", f"{times[name]:.2f}"] for name, rate in result["images_a_second"].items()]
    return markdown_table(["", "images/s", "times the loop"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="folder of class folders; by default, generated pictures")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--markdown", action="store_true", help="only print the table of the last measurement")
    options = parser.parse_args()
    if not options.markdown:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder)
            root = (
                link_subset(options.root, options.count, target)
                if options.root
                else make_pictures(target, options.count)
            )
            result = measure(root, options.rounds, options.cores)
        write_results(RESULT, result)
        print(result["machine"], result["pictures"], sep="; ")
    print(table(read_results(RESULT)))


if __name__ == "__main__":
    main()
