"""How much a server pays for giving every stream its own statistics.

    python benchmarks/serving.py             # about ten minutes on two cores
    python benchmarks/serving.py --markdown  # measures nothing: the table of docs/serving.md from results/

The same network (ResNet-18, 32 pixels, one core) is served by

    plain        predbn serve --strategy train, which is the network as it was trained
    batch        predbn serve --strategy batch
    auto_stream  predbn serve --strategy auto_stream
    litserve     LitServe with the plain network (pip install "predbn[bench]")
    ray          Ray Serve's @serve.batch with one batch per stream, and `batch` (pip install ray[serve])

A client with so many connections (concurrency) sends requests of four pictures each, the next as soon as the last is
answered, for so many streams in turn. All servers are up, and every stream has had three requests. Then every round
loads each server once for some seconds, in a random order. Figures are medians over the rounds: pictures per second,
the percentiles of the time that a request takes, and the ratio of pictures per second to those of the plain network in
the same round. `cpu_ratio` is the same for pictures per second of processor time of all processes of a server, which
other work on the machine disturbs less; it is not known for Ray, whose processes are detached. Writes
results/serving-cpu.json. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import multiprocessing
import os
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import predbn
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.models import Classifier, ModelInfo, Preprocessing

OURS = {"plain": "train", "batch": "batch", "auto_stream": "auto_stream"}
SERVERS = (*OURS, "litserve", "ray")
CONCURRENCIES, STREAMS = (1, 4, 16, 64), (1, 16, 256)
ROWS = 4
"""Pictures of a request. A single one of 32 pixels leaves one value per channel in the last layers of ResNet-18, whose
variance `batch` cannot tell."""
PERCENTILES = (50, 90, 95, 99)


def network() -> Classifier:
    from inference import build

    model = build("resnet18", num_classes=10)
    preprocessing = Preprocessing((32, 32), (127.5, 127.5, 127.5), (64.0, 64.0, 64.0))
    return Classifier(model, ModelInfo("resnet18", 10, preprocessing)).eval()


def run_server(name: str, port: int, health_port: int | None) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    if name not in OURS:
        import serving_peers

        start = serving_peers.litserve if name == "litserve" else serving_peers.ray_serve
        return start(network, port)
    model = network()
    if name == "auto_stream":
        generator = torch.Generator().manual_seed(0)
        clean = (torch.randint(256, (64, 3, 32, 32), generator=generator, dtype=torch.uint8) for _ in range(4))
        predbn.calibrate(model, clean)
    predbn.serve(model, OURS[name], port=port, health_port=health_port, max_streams=10_000, log_level="warning")
    return None


def request_bytes(server: str, stream: int) -> bytes:
    """One HTTP request, as short as each server allows."""
    pixels = np.random.default_rng(stream).integers(0, 255, (ROWS, 3, 32, 32), np.uint8).tobytes()
    headers = {"host": "127.0.0.1"}
    if server in OURS:
        entry = {"name": "images", "datatype": "UINT8", "shape": [ROWS, 3, 32, 32]}
        entry["parameters"] = {"binary_data_size": len(pixels)}
        parameters = {"stream": str(stream), "binary_data_output": True}
        text = json.dumps({"inputs": [entry], "outputs": [{"name": "logits"}], "parameters": parameters}).encode()
        path, body = "/v2/models/model/infer", text + pixels
        headers["inference-header-content-length"] = str(len(text))
    else:
        path = "/predict" if server == "litserve" else "/"
        body = json.dumps({"data": base64.b64encode(pixels).decode()}).encode()
        headers |= {"content-type": "application/json", "serve_multiplexed_model_id": str(stream)}
    headers["content-length"] = str(len(body))
    lines = [f"POST {path} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


async def load(
    port: int, requests: list[bytes], concurrency: int, seconds: float, most: float = math.inf
) -> list[float]:
    """Send requests over so many connections for so long, but no more than `most`; the seconds that each took."""
    taken: list[float] = []
    deadline = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        turn = number
        while (begin := time.perf_counter()) < deadline and turn < most:
            writer.write(requests[turn % len(requests)])
            turn += concurrency
            if await read_answer(reader) != 200:
                raise RuntimeError(f"a server answers with an error; request {turn}")
            taken.append(time.perf_counter() - begin)
        writer.close()

    await asyncio.gather(*(client(number) for number in range(concurrency)))
    return taken


async def read_answer(reader: asyncio.StreamReader) -> int:
    """Read a whole answer; its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = re.search(rb"\r\ncontent-length: (\d+)", head)
    if length:
        await reader.readexactly(int(length[1]))
    elif b"chunked" in head:
        await reader.readuntil(b"\r\n0\r\n\r\n")
    return int(head.split(b" ", 2)[1])


def measure(server: Server, streams: int, concurrency: int, seconds: float) -> dict[str, float]:
    requests = [request_bytes(server.name, stream) for stream in range(streams)]
    asyncio.run(load(server.port, requests, concurrency, 0.25 * seconds))
    begin, cpu = time.perf_counter(), server.cpu_seconds()
    taken = asyncio.run(load(server.port, requests, concurrency, seconds))
    elapsed, cpu = time.perf_counter() - begin, server.cpu_seconds() - cpu
    latencies = dict(zip(PERCENTILES, np.percentile(taken, PERCENTILES), strict=True))
    speeds = {"per_second": ROWS * len(taken) / elapsed, "per_cpu_second": ROWS * len(taken) / cpu}
    return {**speeds, **{f"p{p}_ms": 1e3 * float(v) for p, v in latencies.items()}}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Server:
    """A server in a process of its own, up when it is made."""

    def __init__(self, name: str, *options: str) -> None:
        self.name, self.port = name, free_port()
        command = [sys.executable, __file__, "--server", name, "--port", str(self.port), *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"the server {name} ended")
            try:
                asyncio.run(asyncio.wait_for(load(self.port, [request_bytes(name, 0)], 1, 0.01), 10))
                return
            except (OSError, RuntimeError, EOFError, asyncio.TimeoutError):
                time.sleep(0.2)
        raise RuntimeError(f"the server {name} does not answer")

    def cpu_seconds(self) -> float:
        """The processor time of all processes of the server; NaN for Ray."""
        if self.name == "ray":
            return math.nan
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            if int(fields[3]) == self.process.pid:  # its session, which begins with the server
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


def run(names: list[str], rounds: int, seconds: float) -> list[dict[str, Any]]:
    servers: dict[str, Server] = {}
    rows = []
    try:
        for name in names:
            servers[name] = Server(name)
        shuffle = random.Random(0).shuffle
        for streams in STREAMS:
            for name, server in servers.items():  # streams that begin take longer
                requests = [request_bytes(name, stream) for stream in range(streams)]
                asyncio.run(load(server.port, requests, 16, 60, most=3 * streams))
            for concurrency in CONCURRENCIES:
                samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
                for _ in range(rounds):
                    order = list(names)
                    shuffle(order)
                    for name in order:
                        samples[name].append(measure(servers[name], streams, concurrency, seconds))
                for name, own in samples.items():
                    figures = {key: statistics.median(sample[key] for sample in own) for key in own[0]}
                    for key, speed in (("ratio", "per_second"), ("cpu_ratio", "per_cpu_second")):
                        pairs = zip(own, samples["plain"], strict=True)
                        figures[key] = statistics.median(a[speed] / b[speed] for a, b in pairs)
                    known = {key: None if math.isnan(value) else value for key, value in figures.items()}
                    rows.append({"server": name, "streams": streams, "concurrency": concurrency, **known})
                    print(json.dumps(rows[-1]), flush=True)
    finally:
        for server in servers.values():
            server.stop()
    return rows


def markdown() -> str:
    """Pictures per second relative to the plain network, in brackets per second of processor time, and latencies."""
    result = read_results(RESULTS / "serving-cpu.json")
    by_key = {(row["server"], row["streams"], row["concurrency"]): row for row in result["rows"]}
    names = list(dict.fromkeys(row["server"] for row in result["rows"]))
    others = [name for name in names if name != "plain"]
    headings = ["streams", "concurrency", "plain, pictures/s", *others, f"p50 / p99 in ms: {', '.join(names)}"]
    rows = []
    for streams in STREAMS:
        for concurrency in CONCURRENCIES:
            own = {name: by_key[name, streams, concurrency] for name in names}
            ratios = [_ratio(own[name]) for name in others]
            times = ", ".join(f"{row['p50_ms']:.0f} / {row['p99_ms']:.0f}" for row in own.values())
            cells = [str(streams), str(concurrency), f"{own['plain']['per_second']:.0f}", *ratios, times]
            rows.append(cells)
    return markdown_table(headings, rows, left=(3 + len(others),))


def _ratio(row: dict[str, Any]) -> str:
    by_cpu = "" if row["cpu_ratio"] is None else f" ({row['cpu_ratio']:.2f})"
    return f"{row['ratio']:.2f}{by_cpu}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--servers", default=",".join(SERVERS), help="some of them, with plain")
    parser.add_argument("--server", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--health-port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.server:
        run_server(args.server, args.port, args.health_port)
    elif args.markdown:
        print(markdown())
    else:
        rows = run(args.servers.split(","), args.rounds, args.seconds)
        card = {
            "torch": torch.__version__,
            "machine": platform.machine(),
            "cores": multiprocessing.cpu_count(),
            "rounds": args.rounds,
            "seconds": args.seconds,
            "pictures_per_request": ROWS,
        }
        write_results(RESULTS / "serving-cpu.json", {**card, "rows": rows})
        print(markdown())


if __name__ == "__main__":
    main()
