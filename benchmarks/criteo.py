"""Preparation of Criteo rows against pandas: `read_csv`, then `factorize` for each of the 26 categories.

Both sides start from the same text on the disk, synthetic rows in the layout of `train.txt`, each in a process of its
own; pandas ends with its columns in memory, predbn with the prepared folder on the disk. Rounds alternate between the
two, so that whatever else the machine does meets both, and the fastest of each counts. Then the growth: the peak memory
of a preparation of more and more rows.

    python benchmarks/criteo.py                # writes results/criteo-preparation.json
    python benchmarks/criteo.py --markdown     # measures nothing: the table and the sentence of docs/criteo.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "criteo-preparation.json"


def with_pandas(path: str) -> int:
    """What one does without this package."""
    import pandas as pd

    frame = pd.read_csv(path, sep="\t", header=None)
    for column in range(14, 40):
        frame[column] = pd.factorize(frame[column])[0]
    return len(frame)


def with_predbn(path: str) -> int:
    """The same rows as a prepared folder."""
    from predbn.data.criteo import prepare

    folder = Path(path + ".prepared")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return sum(shard.rows for shard in prepare(path, folder).done)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(work: Callable[[str], int], path: str, pipe: Connection) -> None:
    """Seconds, CPU seconds and peak memory of the work, imports not counted."""
    work(path + ".few")
    start, cpu = time.perf_counter(), time.process_time()
    rows = work(path)
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    pipe.send({"rows": rows, **spent, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3})


def apart(work: Callable[[str], int], path: Path) -> dict[str, float]:
    """The same in a process of its own, so that its peak memory is its own."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measured, args=(work, str(path), there))
    process.start()
    there.close()
    found: dict[str, float] = here.recv()
    process.join()
    return found


def text(folder: Path, rows: int) -> Path:
    """A file of synthetic rows, and a small one beside it to warm up with."""
    from predbn.data.criteo import write_synthetic_text

    path = folder / f"{rows}.txt"
    write_synthetic_text(path, rows)
    write_synthetic_text(path.with_name(path.name + ".few"), 100)
    return path


def fastest(runs: list[dict[str, float]]) -> dict[str, float]:
    """The best of each over the rounds; the largest peak."""
    rows, largest = runs[0]["rows"], max(run["peak_mb"] for run in runs)
    best = {name: min(run[name] for run in runs) for name in ("seconds", "cpu_seconds")}
    return {
        "rows_per_second": rows / best["seconds"],
        "rows_per_cpu_second": rows / best["cpu_seconds"],
        "peak_mb": largest,
    }


def measure(rows: int, rounds: int, growth: list[int]) -> dict[str, Any]:
    """Both sides on `rows` rows, and the growth of ours."""
    with tempfile.TemporaryDirectory() as place:
        path = text(Path(place), rows)
        size = path.stat().st_size
        runs: dict[str, list[dict[str, float]]] = {"pandas": [], "predbn": []}
        for number in range(rounds):
            for name, work in (("pandas", with_pandas), ("predbn", with_predbn)):
                runs[name].append(apart(work, path))
                done = runs[name][-1]
                print(f"round {number}: {name} {done['seconds']:.2f} s, {done['peak_mb']:.0f} MB", flush=True)
        path.unlink()
        found: dict[str, Any] = {name: fastest(each) for name, each in runs.items()}
        pairs = zip(runs["pandas"], runs["predbn"], strict=True)
        ratios = sorted(theirs["seconds"] / ours["seconds"] for theirs, ours in pairs)
        for name in ("rows_per_second", "rows_per_cpu_second"):
            found[f"ratio_{name}"] = found["predbn"][name] / found["pandas"][name]
        found["median_ratio_of_rounds"] = ratios[len(ratios) // 2]
        grown = []
        for count in growth:
            path = text(Path(place), count)
            done = apart(with_predbn, path)
            grown.append({"rows": count, "peak_mb": done["peak_mb"], "rows_per_second": count / done["seconds"]})
            print(f"{count:,} rows: {done['peak_mb']:.0f} MB, {count / done['seconds']:,.0f} rows/s", flush=True)
            path.unlink()
    return {"rows": rows, "bytes_per_row": size / rows, **found, "growth": grown}


def markdown() -> str:
    """What is in results/ as a table and a sentence."""
    found = json.loads(RESULT.read_text())
    lines = ["| rows | predbn, peak MB | predbn, rows/s |", "|--:|--:|--:|"]
    lines += [f"| {g['rows']:,} | {g['peak_mb']:.0f} | {g['rows_per_second']:,.0f} |" for g in found["growth"]]
    (fast, peak), (slow, most) = ((found[n]["rows_per_second"], found[n]["peak_mb"]) for n in ("predbn", "pandas"))
    lines += [
        "",
        f"{found['rows']:,} synthetic rows on {found['card']['cores']} cores: {fast:,.0f} rows a second with "
        f"{peak:,.0f} MB, against {slow:,.0f} with {most:,.0f} MB for pandas {found['card']['pandas']}: "
        f"{found['ratio_rows_per_second']:.1f} times as fast by the clock, "
        f"{found['ratio_rows_per_cpu_second']:.1f} times by CPU time.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--growth", nargs="*", type=int, default=[500_000, 1_000_000, 2_000_000, 4_000_000])
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--markdown", action="store_true", help="print what is in results/")
    options = parser.parse_args()
    if options.markdown:
        print(markdown())
        return
    import numpy as np
    import pandas as pd

    versions = {"numpy": np.__version__, "pandas": pd.__version__}
    card = {**versions, "machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    table = measure(options.rows, options.rounds, options.growth)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps({"card": card, **table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
