"""Preparation of Criteo rows against pandas: `read_csv`, then `factorize` for each of the 26 categories.

All start from the same text on the disk, synthetic rows in the layout of `train.txt`, each in a process of its own;
pandas ends with its columns in memory, predbn with the prepared folder on the disk. pandas reads in two ways: guessing
the types of the columns, and told that categories are text, as it must be lest a column of digits becomes numbers.
Rounds alternate between them, so that whatever else the machine does meets all, and the fastest of each counts. Then
the growth: the peak memory of a preparation of more and more rows.

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
from threading import Event, Thread
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CATEGORIES = range(14, 40)
RESULT = ROOT / "results" / "criteo-preparation.json"


def with_pandas(path: str, **options: Any) -> int:
    """What one does without this package."""
    import pandas as pd

    frame = pd.read_csv(path, sep="\t", header=None, **options)
    for column in CATEGORIES:
        frame[column] = pd.factorize(frame[column])[0]
    return len(frame)


def with_pandas_typed(path: str) -> int:
    """The same, told that categories are text."""
    return with_pandas(path, dtype=dict.fromkeys(CATEGORIES, "str"))


def with_predbn(path: str) -> int:
    """The same rows as a prepared folder."""
    from predbn.data.criteo import prepare

    folder = Path(path + ".prepared")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return sum(shard.rows for shard in prepare(path, folder).done)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Peak(Thread):
    """Looks ten times a second at the memory of this process and its children, shared pages counted once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mb, self.ended = 0.0, Event()

    def run(self) -> None:
        while not self.ended.wait(0.1):
            self.mb = max(self.mb, sum(map(self.resident, ["self", *self.children()])))

    @staticmethod
    def children() -> list[str]:
        return [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]

    @staticmethod
    def resident(process: str) -> float:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            return 0.0
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def measured(work: Callable[[str], int], path: str, pipe: Connection) -> None:
    """Seconds, CPU seconds and peak memory of the work, imports not counted."""
    work(path + ".few")
    peak = Peak()
    peak.start()
    start, cpu = time.perf_counter(), cpu_seconds()
    rows = work(path)
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds() - cpu}
    peak.ended.set()
    peak.join()
    pipe.send({"rows": rows, **spent, "peak_mb": peak.mb})


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


WORK = {"pandas": with_pandas, "pandas, typed": with_pandas_typed, "predbn": with_predbn}


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
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in WORK}
        for number in range(rounds):
            for name, work in WORK.items():
                runs[name].append(apart(work, path))
                done = runs[name][-1]
                print(f"round {number}: {name} {done['seconds']:.2f} s, {done['peak_mb']:.0f} MB", flush=True)
        path.unlink()
        found: dict[str, Any] = {name: fastest(each) for name, each in runs.items()}
        for name in ("pandas", "pandas, typed"):
            for what, ratio in (("rows_per_second", "times"), ("rows_per_cpu_second", "times_by_cpu")):
                found[name][ratio] = found["predbn"][what] / found[name][what]
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
    card, ours = found["card"], found["predbn"]
    lines = ["| | rows/s | peak MB | predbn is faster, by the clock | by CPU time |", "|---|--:|--:|--:|--:|"]
    lines.append(f"| predbn | {ours['rows_per_second']:,.0f} | {ours['peak_mb']:,.0f} | | |")
    for name, what in (("pandas", "types guessed"), ("pandas, typed", "categories as text")):
        row = found[name]
        lines.append(
            f"| pandas {card['pandas']}, {what} | {row['rows_per_second']:,.0f} | {row['peak_mb']:,.0f} "
            f"| {row['times']:.1f} × | {row['times_by_cpu']:.1f} × |"
        )
    grown = [f"{each['peak_mb']:.0f} MB for {each['rows']:,}" for each in found["growth"]]
    lines += [
        "",
        f"{found['rows']:,} synthetic rows on {card['cores']} cores. Memory of predbn: {', '.join(grown)} rows.",
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
