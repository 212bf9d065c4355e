"""What ordinary clients get from a server beside one that takes all it can.

    python benchmarks/serving_fair.py             # about three minutes on two cores
    python benchmarks/serving_fair.py --markdown  # measures nothing: the table of docs/serving.md from results/

The network and the server are those of `benchmarks/serving.py` (`auto_stream`, ResNet-18, 32 pixels, one core). Eight
ordinary clients with a stream each send requests of four pictures, the next as soon as the last is answered. They are
measured beside each of the hogs, which run in a process of their own, and alone before and after:

    one stream    so many connections, all for one stream, from the address of the ordinary clients
    many streams  so many connections with a stream each, from another address than each of the ordinary clients
    retries       the same, and each request goes over a new connection

Whoever is refused tries again at once. Figures are medians over the rounds: answers per second of the ordinary clients,
that number as a share of what they get alone, the answers per second of the hog, and the longest that a health
check took, on the port of the server and on that for health checks. Writes results/serving-fair.json. Linux only:
all addresses are of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

import torch

from measurements import RESULTS, markdown_table, read_results, write_results
from serving import Server, free_port, read_answer, request_bytes

ORDINARY = 8


class Hog(NamedTuple):
    """So many connections at once; what they have in common, and whether each request takes a new one."""

    connections: int
    has_one_stream: bool = False
    reconnects: bool = False


HOGS = {
    "70 connections, one stream": Hog(70, has_one_stream=True),
    "520 connections, one stream": Hog(520, has_one_stream=True),
    "520 connections, a stream each": Hog(520),
    "600 connections that retry at once": Hog(600, reconnects=True),
    "990 connections": Hog(990),
}


async def client(port: int, address: str, request: bytes, reconnects: bool, answers: list[int]) -> None:
    """Send a request again and again; the status of each answer, 0 for none."""
    connection = None
    while True:
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            connection[1].write(request)
            answers.append(await read_answer(connection[0]))
        except (OSError, EOFError):
            answers.append(0)
            connection = None
        if connection and (reconnects or answers[-1] == 0):
            connection[1].close()
            connection = None


async def send_for(seconds: float, *clients: Any) -> None:
    """Run clients for so long."""
    tasks = [asyncio.ensure_future(client) for client in clients]
    done, _ = await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        task.cancel()
    for task in done:
        task.result()


def run_hog(name: str, port: int, seconds: float) -> None:
    """In a process of its own; prints how many answers it got in each second."""
    os.nice(19)  # its place is another machine
    hog, answers = HOGS[name], []
    address = "127.0.0.1" if hog.has_one_stream else "127.0.0.2"
    requests = [request_bytes("auto_stream", 1000 if hog.has_one_stream else 1000 + i) for i in range(hog.connections)]
    asyncio.run(send_for(seconds, *(client(port, address, request, hog.reconnects, answers) for request in requests)))
    print(
        json.dumps({"served": answers.count(200) / seconds, "refused": (len(answers) - answers.count(200)) / seconds})
    )


async def health(ports: list[int], slowest: list[float]) -> None:
    """Ask for the health of the server twice a second; the longest that it took on each port, at most ten seconds."""
    while True:
        for number, port in enumerate(ports):
            begin = time.perf_counter()
            try:
                await asyncio.wait_for(_ask_health(port), 10)
                seconds = time.perf_counter() - begin
            except (OSError, EOFError, asyncio.TimeoutError):
                seconds = 10.0
            slowest[number] = max(slowest[number], seconds)
        await asyncio.sleep(0.5)


async def _ask_health(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0))
    writer.write(b"GET /v2/health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    status = await read_answer(reader)
    writer.close()
    if status != 200:
        raise EOFError


def measure(server: Server, ports: list[int], hog: str | None, seconds: float) -> dict[str, float]:
    process = None
    if hog is not None:
        command = [sys.executable, __file__, "--hog", hog, "--port", str(server.port), "--seconds", str(seconds + 6)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(5)  # until it has begun
    answers: list[int] = []
    slowest = [0.0] * len(ports)
    addresses = [
        "127.0.0.1" if hog is not None and HOGS[hog].has_one_stream else f"127.0.1.{i + 1}" for i in range(ORDINARY)
    ]
    clients = [
        client(server.port, addresses[i], request_bytes("auto_stream", i), False, answers) for i in range(ORDINARY)
    ]
    begin = server.cpu_seconds()
    asyncio.run(send_for(seconds, *clients, health(ports, slowest)))
    result = {"served": answers.count(200) / seconds, "refused": (len(answers) - answers.count(200)) / seconds}
    result |= {"cpu": (server.cpu_seconds() - begin) / seconds}
    result |= {f"health_{number}": value for number, value in enumerate(slowest)}
    if process is not None:
        hogged = json.loads(process.communicate()[0])
        result |= {f"hog_{key}": value for key, value in hogged.items()}
        time.sleep(1)
    return result


def run(rounds: int, seconds: float, hogs: list[str]) -> dict[str, Any]:
    health_port = free_port()
    server = Server("auto_stream", "--health-port", str(health_port))
    ports = [server.port, health_port]
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in ("alone", *hogs)}
    try:
        measure(server, ports, None, seconds)  # streams that begin take longer
        samples["alone"].append(measure(server, ports, None, seconds))
        for _ in range(rounds):
            for name in hogs:
                samples[name].append(measure(server, ports, name, seconds))
                samples["alone"].append(measure(server, ports, None, seconds))
                own, alone = samples[name][-1], samples["alone"][-2:]
                own["share"] = own["served"] / statistics.mean(sample["served"] for sample in alone)
                per_cpu = statistics.mean(sample["served"] / sample["cpu"] for sample in alone)
                own["cpu_share"] = own["served"] / own["cpu"] / per_cpu
                print(json.dumps({"hog": name, "alone": alone[0]["served"], **own}), flush=True)
    finally:
        server.stop()
    return {
        name: {key: round(statistics.median(sample[key] for sample in own), 4) for key in own[0]}
        for name, own in samples.items()
    }


def markdown() -> str:
    """What the ordinary clients get, by hog."""
    rows = [
        [
            name,
            f"{row['served']:.0f}",
            f"{row['share']:.2f} ({row['cpu_share']:.2f})" if "share" in row else "",
            f"{row['hog_served']:.0f}" if "hog_served" in row else "",
            f"{row['hog_refused']:.0f}" if "hog_refused" in row else "",
            f"{1000 * row['health_0']:.0f}, {1000 * row['health_1']:.0f}",
        ]
        for name, row in read_results(RESULTS / "serving-fair.json")["rows"].items()
    ]
    headings = ["hog", "ordinary, requests/s", "of alone", "hog, requests/s", "refused/s", "slowest health check in ms"]
    return markdown_table(headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", action="append", choices=HOGS, help="measure this hog; may be repeated")
    parser.add_argument("--hog", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hog:
        run_hog(args.hog, args.port, args.seconds)
        return
    if not args.markdown:
        rows = run(args.rounds, args.seconds, args.only or list(HOGS))
        card = {"torch": torch.__version__, "machine": platform.machine(), "rounds": args.rounds}
        write_results(RESULTS / "serving-fair.json", {**card, "seconds": args.seconds, "rows": rows})
    print(markdown())


if __name__ == "__main__":
    main()
