"""More streams than fit into memory: how long requests take while streams come and go and checkpoints run.

    python benchmarks/serving_streams.py                # about three minutes on two cores
    python benchmarks/serving_streams.py --markdown     # measures nothing: the table of docs/serving.md from results/

A small network is served with `auto_stream` and a folder for streams. Clients send requests of four pictures, each of
a stream drawn at random. With 400 streams all are in memory; with 5,000 and room for 500, nine requests of ten need a
stream from the folder, and another one has to leave. `in_memory` is the maximum of the gauge `predbn_streams`, which is
read ten times a second; the other figures are medians over the rounds, in each of which a server is started for each
case. Writes results/serving-streams.json. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from measurements import RESULTS, ResultsFile, markdown_table, read_results
from serving import read_answer, request_bytes
from serving_soak import started_server

PATH = RESULTS / "serving-streams.json"


class Case(NamedTuple):
    """So many streams, room for so many, seconds between checkpoints, and connections."""

    streams: int
    max_streams: int
    checkpoint_every: float
    clients: int


CASES = Case(400, 500, 1.0, 64), Case(5000, 500, 1.0, 64), Case(3000, 50, 0.5, 32)


async def client(port: int, number: int, streams: int, deadline: float, taken: list[float]) -> None:
    draw = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (begin := time.perf_counter()) < deadline:
        writer.write(request_bytes("auto_stream", draw.randrange(streams)))
        status = await read_answer(reader)
        if status != 200:
            raise RuntimeError(f"the server answers {status}")
        taken.append(time.perf_counter() - begin)
    writer.close()


async def watch(port: int, deadline: float, in_memory: list[float]) -> None:
    """The number of streams in memory."""
    while time.perf_counter() < deadline:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        in_memory.append(float(re.search(r"^predbn_streams (\S+)", text, re.MULTILINE)[1]))
        await asyncio.sleep(0.1)


async def load(port: int, case: Case, seconds: float) -> dict[str, Any]:
    taken: list[float] = []
    in_memory: list[float] = []
    begin = time.perf_counter()
    clients = (client(port, number, case.streams, begin + seconds, taken) for number in range(case.clients))
    await asyncio.gather(watch(port, begin + seconds, in_memory), *clients)
    elapsed = time.perf_counter() - begin
    p50, p99 = np.percentile(taken, (50, 99))
    figures = {"requests_per_second": len(taken) / elapsed, "p50_s": p50, "p99_s": p99, "max_s": max(taken)}
    return {**case._asdict(), **{k: round(float(v), 3) for k, v in figures.items()}, "in_memory": max(in_memory)}


def run(case: Case, seconds: float) -> dict[str, Any]:
    options = "--max-streams", str(case.max_streams), "--checkpoint-every", str(case.checkpoint_every)
    with started_server(*options) as (_, port):
        return asyncio.run(load(port, case, seconds))


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    medians = {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}
    return {**medians, "in_memory": max(figures["in_memory"] for figures in rounds), "rounds": rounds}


def markdown(path: Path = PATH) -> str:
    """A table for docs/serving.md."""
    headings = ["streams", "`--max-streams`", "clients", "requests/s", "p50, s", "p99, s", "most in memory"]
    keys = {"streams": ",d", "max_streams": "d", "clients": "d", "requests_per_second": ".0f", "p50_s": ".2f"}
    keys |= {"p99_s": ".2f", "in_memory": ".0f"}
    units = read_results(path)["units"].values()
    return markdown_table(
        headings, [[format(unit[key], form) for key, form in keys.items()] for unit in units], left=()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--out", type=Path, default=PATH)
    parser.add_argument("--markdown", action="store_true", help="measure nothing; print the table of the document")
    args = parser.parse_args()
    if args.markdown:
        print(markdown())
        return
    results = ResultsFile(args.out, {"rounds": args.rounds, "seconds": args.seconds}, torch.device("cpu"))
    rounds: dict[Case, list[dict[str, Any]]] = {case: [] for case in CASES}
    for _ in range(args.rounds):
        for case, figures in rounds.items():
            figures.append(run(case, args.seconds))
            print(json.dumps(figures[-1]), flush=True)
    for case, figures in rounds.items():
        results.add(f"{case.streams} streams, {case.max_streams} in memory", summary(figures))
    print(markdown(args.out))


if __name__ == "__main__":
    main()
