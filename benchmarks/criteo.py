"""Preparing Criteo rows, compared with pandas: `read_csv`, then `factorize` for each of the 26 categories.

All start from the same text file, synthetic rows in the layout of `train.txt`, each in its own process. pandas ends
with its columns in memory, predbn with the prepared folder on the disk. pandas reads in two ways: with the types of the
columns inferred, and with the categories declared as text, without which a column of digits would become numbers.
Rounds alternate between them, so that other load on the machine affects all of them, and the fastest round counts.
Then the peak memory of predbn is measured for growing numbers of rows.

    python benchmarks/criteo.py                # writes results/criteo-preparation.json
    python benchmarks/criteo.py --markdown     # only prints the table and the sentence of docs/criteo.md
"""

from __future__ import annotations

import argparse
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

from measurements import RESULTS, markdown_table, read_results, write_results

CATEGORIES = range(14, 40)
ROWS_PER_WRITE = 16_384
RESULT = RESULTS / "criteo-preparation.json"


def with_pandas(path: str, **options: Any) -> int:
    """Without this package."""
    import pandas as pd

    frame = pd.read_csv(path, sep="\t", header=None, **options)
    for column in CATEGORIES:
        frame[column] = pd.factorize(frame[column])[0]
    return len(frame)


def with_pandas_typed(path: str) -> int:
    """The same, with the categories declared as text."""
    return with_pandas(path, dtype=dict.fromkeys(CATEGORIES, "str"))


def with_predbn(path: str) -> int:
    """A folder of prepared rows."""
    from predbn.data.criteo import prepare

    folder = Path(path + ".prepared")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return prepare(path, folder).rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class PeakMemory(Thread):
    """Samples the memory of this process ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mb, self.stopped = 0.0, Event()

    def run(self) -> None:
        while not self.stopped.wait(0.1):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.mb = max(self.mb, pages * resource.getpagesize() / 1e6)


def measure_here(work: Callable[[str], int], path: str, pipe: Connection) -> None:
    """Seconds, CPU seconds and peak memory of the work, without imports."""
    work(path + ".few")
    peak = PeakMemory()
    peak.start()
    start, cpu = time.perf_counter(), time.process_time()
    rows = work(path)
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    peak.stopped.set()
    peak.join()
    pipe.send({"rows": rows, **spent, "peak_mb": peak.mb})


def measure_in_process(work: Callable[[str], int], path: Path) -> dict[str, float]:
    """The same in a new process, so that the peak memory is only that of the work."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure_here, args=(work, str(path), sender))
    process.start()
    sender.close()
    measured: dict[str, float] = receiver.recv()
    process.join()
    return measured


WORK = {"pandas": with_pandas, "pandas, typed": with_pandas_typed, "predbn": with_predbn}


def write_text(folder: Path, rows: int) -> Path:
    """A file of synthetic rows, and a small one beside it for warming up."""
    path = folder / f"{rows}.txt"
    write_rows(path, rows)
    write_rows(path.with_name(path.name + ".few"), 100)
    return path


def write_rows(path: Path, count: int) -> None:
    """Write synthetic rows in the layout of Kaggle's `train.txt`: tab-separated, without a header."""
    import numpy as np

    from predbn.data.criteo import synthetic_rows
    from predbn.data.criteo.columns import MISSING_NUMBER, WIDTH, hex_words

    with path.open("w") as file:
        for first in range(0, count, ROWS_PER_WRITE):
            rows = synthetic_rows(min(ROWS_PER_WRITE, count - first), seed=0, first=first)
            cells = np.empty((len(rows), WIDTH), "U11")
            cells[:, 0] = rows.labels
            cells[:, 1:14] = np.where(rows.numbers == MISSING_NUMBER, "", rows.numbers.astype("U11"))
            digits = hex_words(rows.categories).view("S8").astype("U8").reshape(rows.categories.shape)
            cells[:, 14:] = np.where(rows.missing, "", digits)
            file.writelines("\t".join(row) + "\n" for row in cells.tolist())


def fastest(runs: list[dict[str, float]]) -> dict[str, float]:
    """The fastest round and the largest peak memory."""
    rows, largest = runs[0]["rows"], max(run["peak_mb"] for run in runs)
    best = {name: min(run[name] for run in runs) for name in ("seconds", "cpu_seconds")}
    return {
        "rows_per_second": rows / best["seconds"],
        "rows_per_cpu_second": rows / best["cpu_seconds"],
        "peak_mb": largest,
    }


def measure(rows: int, rounds: int, growth: list[int]) -> dict[str, Any]:
    """All variants on `rows` rows, and the memory of predbn for growing numbers of rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_text(Path(folder), rows)
        size = path.stat().st_size
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in WORK}
        for number in range(rounds):
            for name, work in WORK.items():
                runs[name].append(measure_in_process(work, path))
                done = runs[name][-1]
                print(f"round {number}: {name} {done['seconds']:.2f} s, {done['peak_mb']:.0f} MB", flush=True)
        path.unlink()
        results: dict[str, Any] = {name: fastest(rounds_of) for name, rounds_of in runs.items()}
        for name in ("pandas", "pandas, typed"):
            for rate, ratio in (("rows_per_second", "times"), ("rows_per_cpu_second", "times_by_cpu")):
                results[name][ratio] = results["predbn"][rate] / results[name][rate]
        grown = []
        for count in growth:
            path = write_text(Path(folder), count)
            done = measure_in_process(with_predbn, path)
            grown.append({"rows": count, "peak_mb": done["peak_mb"], "rows_per_second": count / done["seconds"]})
            print(f"{count:,} rows: {done['peak_mb']:.0f} MB, {count / done['seconds']:,.0f} rows/s", flush=True)
            path.unlink()
    return {"rows": rows, "bytes_per_row": size / rows, **results, "growth": grown}


def markdown() -> str:
    """The stored results as a table and a sentence."""
    results = read_results(RESULT)
    card, ours = results["card"], results["predbn"]
    rows = [["predbn", f"{ours['rows_per_second']:,.0f}", f"{ours['peak_mb']:,.0f}", "", ""]]
    for name, what in (("pandas", "types guessed"), ("pandas, typed", "categories as text")):
        row = results[name]
        measured = [f"{row['rows_per_second']:,.0f}", f"{row['peak_mb']:,.0f}"]
        times = [f"{row[name]:.1f} ×" for name in ("times", "times_by_cpu")]
        rows.append([f"pandas {card['pandas']}, {what}", *measured, *times])
    grown = [f"{run['peak_mb']:.0f} MB for {run['rows']:,}" for run in results["growth"]]
    headings = ["", "rows/s", "peak MB", "predbn is faster, by the clock", "by CPU time"]
    said = f"{results['rows']:,} synthetic rows on {card['cores']} cores. Memory of predbn: {', '.join(grown)} rows."
    return f"{markdown_table(headings, rows)}\n\n{said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--growth", nargs="*", type=int, default=[500_000, 1_000_000, 2_000_000, 4_000_000])
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--markdown", action="store_true", help="only print the stored results")
    options = parser.parse_args()
    if options.markdown:
        print(markdown())
        return
    import numpy as np
    import pandas as pd

    versions = {"numpy": np.__version__, "pandas": pd.__version__}
    card = {**versions, "machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    table = measure(options.rows, options.rounds, options.growth)
    write_results(options.out, {"card": card, **table})


if __name__ == "__main__":
    main()
