"""Two minutes of full load with streams that come and go: does the memory of the server stay flat?

    python benchmarks/serving_soak.py                # or: make soak
    python benchmarks/serving_soak.py --seconds 600

A small network is served with `auto_stream`, a folder for streams, and room for 200 of them in memory. Sixteen clients
send requests of 1 to 8 pictures for 1,000 streams, some of which are used often and others seldom. Now and then a
sequence ends and its stream begins anew, and some requests are wrong. Linux only: the resident memory of the server is
read from /proc. The soak fails if its median over the last third of the time is more than 5 % above that over the
second third, or if a request is not answered as it deserves. Writes results/serving-soak.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measurements import RESULTS, read_results, write_results
from serving import free_port, read_answer

MODEL = "zoo:resnet20-cifar10/batch/0"
STREAMS, IN_MEMORY, CLIENTS = 1000, 200, 16
WRONG = 0.02
"""The share of requests that are wrong."""
MAX_GROWTH = 1.05


def request(draw: random.Random) -> tuple[bytes, int]:
    """A request, and the status that it deserves."""
    rows = draw.randint(1, 8)
    pixels = draw.randbytes(rows * 3 * 32 * 32)
    stream = f"stream-{int(STREAMS * draw.random() ** 2)}"
    parameters: dict[str, Any] = {"sequence_id": stream, "sequence_end": draw.random() < 0.01}
    entry: dict[str, Any] = {"name": "images", "datatype": "UINT8", "shape": [rows, 3, 32, 32]}
    entry["parameters"] = {"binary_data_size": len(pixels)}
    is_wrong = draw.random() < WRONG
    if is_wrong:
        entry["shape"][3] = 31
    body = {"inputs": [entry], "outputs": [{"name": "probabilities"}], "parameters": parameters}
    text = json.dumps({**body, "id": "soak"}).encode()
    head = f"POST /v2/models/model/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(text) + len(pixels)}\r\n"
    head += f"inference-header-content-length: {len(text)}\r\n\r\n"
    return head.encode() + text + pixels, 400 if is_wrong else 200


async def client(port: int, number: int, deadline: float, answers: Counter[str]) -> None:
    draw = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < deadline:
        content, deserved = request(draw)
        writer.write(content)
        status = await read_answer(reader)
        answers["as deserved" if status == deserved else f"{status} in place of {deserved}"] += 1
    writer.close()


async def watch(pid: int, deadline: float, memory: list[float]) -> None:
    """The resident memory in MiB, twice a second."""
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/status").read_text()
        memory.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024)
        await asyncio.sleep(0.5)


async def load(pid: int, port: int, seconds: float) -> dict[str, Any]:
    answers: Counter[str] = Counter()
    memory: list[float] = []
    deadline = time.monotonic() + seconds
    clients = (client(port, number, deadline, answers) for number in range(CLIENTS))
    await asyncio.gather(watch(pid, deadline, memory), *clients)
    third = len(memory) // 3
    first, second, last = memory[:third], memory[third : 2 * third], memory[2 * third :]
    return {
        "seconds": seconds,
        "streams": STREAMS,
        "in_memory": IN_MEMORY,
        "answers": dict(answers),
        "memory_mib": [round(statistics.median(part), 1) for part in (first, second, last)],
        "growth": round(statistics.median(last) / statistics.median(second), 4),
    }


@contextmanager
def started_server(*options: str) -> Iterator[tuple[int, int]]:
    """Serve the network with a folder for streams, and wait until it answers; the process id and the port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "predbn.cli", "serve", "--model", MODEL, "--device", "cpu"]
        command += ["--strategy", "auto_stream(calibrated=False)", "--port", str(port), "--state", state]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen([*command, "--log-level", "error", *options], env=environment) as server:
            try:
                while not _answers(port):
                    if server.poll() is not None:
                        raise SystemExit("the server has ended")
                    time.sleep(0.2)
                yield server.pid, port
            finally:
                server.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def run(seconds: float) -> dict[str, Any]:
    with started_server("--max-streams", str(IN_MEMORY)) as (pid, port):
        return asyncio.run(load(pid, port, seconds))


def markdown() -> str:
    """The result as a sentence for docs/serving.md."""
    result = read_results(RESULTS / "serving-soak.json")
    right, total = result["answers"].get("as deserved", 0), sum(result["answers"].values())
    first, second, third = result["memory_mib"]
    return (
        f"{total:,} requests for {result['streams']:,} streams, {result['in_memory']} of them in memory at a time: "
        f"{right:,} got the right answer (wrong ones 400). Memory of the server in MiB, in the first, "
        f"second and last third of {result['seconds']:.0f} s: {first:.0f}, {second:.0f}, {third:.0f}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--markdown", action="store_true", help="measure nothing; print the sentence of the document")
    args = parser.parse_args()
    if args.markdown:
        print(markdown())
        return
    result = run(args.seconds)
    print(json.dumps(result, indent=1))
    write_results(RESULTS / "serving-soak.json", result)
    if result["growth"] > MAX_GROWTH or set(result["answers"]) != {"as deserved"}:
        raise SystemExit("the soak has failed")


if __name__ == "__main__":
    main()
