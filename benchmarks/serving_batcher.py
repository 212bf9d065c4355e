"""What statistics per stream cost a server without HTTP: requests go straight to its batcher.

    python benchmarks/serving_batcher.py                # ResNet-18 at 32 pixels, one CPU core: a minute
    python benchmarks/serving_batcher.py --device cuda  # ResNet-50 at 224 pixels, fp16, channels_last
    python benchmarks/serving_batcher.py --markdown     # measures nothing: the table of docs/serving.md from results/

So many clients (64) each send requests of four pictures, the next as soon as the last is answered, for 1, 16 or 256
streams in turn, to `Service.infer` of a server with the plain network (`train`), `batch` and `auto_stream`. Every round
loads each of them once, in a random order; figures are medians over the rounds of pictures per second relative to the
plain network in the same round. On a CPU these are pictures per second of processor time. Before, each server is loaded
until its streams have begun and, on a GPU, nearly all of its passes are replayed as CUDA graphs; `replayed` is the
share of such passes while it was timed. Writes results/serving-batcher-<device>.json.

The last row is the plain network by itself, without a server, in batches of one request: the most that a server with a
batch for each stream can reach.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import predbn
from inference import build
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.common import parse_device
from predbn.models import Classifier, ModelInfo, Preprocessing
from predbn.norm import find_strategy
from predbn.serving.model_spec import spec_of
from predbn.serving.service import Service
from predbn.serving.settings import Settings
from predbn.serving.work import Work

STRATEGIES = {"plain": "train", "batch": "batch", "auto_stream": "auto_stream"}
STREAMS, CLIENTS, ROWS = (1, 16, 256), 64, 4
ALONE = "plain, one request at a time"
_MOST_LOADS, _REPLAYED = 10, 0.9
"""How often a server is loaded before it is timed, unless this share of its passes is replayed earlier."""


def network(device: torch.device) -> tuple[Classifier, str]:
    """The network and what it is called."""
    is_small = device.type == "cpu"
    name, size, classes = ("resnet18", 32, 10) if is_small else ("resnet50", 224, 1000)
    preprocessing = Preprocessing((size, size), (127.5, 127.5, 127.5), (64.0, 64.0, 64.0))
    model = Classifier(build(name, num_classes=classes), ModelInfo(name, classes, preprocessing)).eval()
    if is_small:
        return model, f"{name} {size} px"
    return model.to(device).half().to(memory_format=torch.channels_last), f"{name} {size} px fp16"


def service(strategy: str, device: torch.device) -> Service:
    model, _ = network(device)
    if strategy == "auto_stream":
        size = model.info.preprocessing.size
        generator = torch.Generator().manual_seed(0)
        clean = (torch.randint(256, (64, 3, *size), generator=generator, dtype=torch.uint8) for _ in range(4))
        predbn.calibrate(model, (batch.to(device) for batch in clean))
    spec = spec_of(model, "model")
    return Service(model, find_strategy(strategy), spec, Settings(max_streams=10_000, timeout=600))


async def warm_up(server: Service, pictures: np.ndarray[Any, Any], streams: int, seconds: float) -> None:
    """Streams that begin take longer, and so do batches of a new shape; a load ends with a few small batches."""
    for _ in range(_MOST_LOADS):
        before = passes_of(server)
        await load(server, pictures, streams, seconds)
        if server.device is None or server.device.type == "cpu" or replayed_since(server, before) > _REPLAYED:
            return


def passes_of(server: Service) -> tuple[int, int]:
    return server.predictor.replays, server.predictor.passes


def replayed_since(server: Service, before: tuple[int, int]) -> float:
    """The share of passes that were replayed."""
    replays, passes = (now - then for now, then in zip(passes_of(server), before, strict=True))
    return replays / max(1, passes)


async def load(server: Service, pictures: np.ndarray[Any, Any], streams: int, seconds: float) -> int:
    """Send requests from all clients for so long; how many pictures were predicted."""
    deadline, predicted = time.perf_counter() + seconds, 0

    async def client(number: int) -> None:
        nonlocal predicted
        turn = number
        while time.perf_counter() < deadline:
            await server.infer(Work(pictures, str(turn % streams)))
            turn += CLIENTS
            predicted += ROWS

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return predicted


def alone(model: Classifier, pictures: np.ndarray[Any, Any], device: torch.device, seconds: float) -> int:
    """Predict one request after another with the bare network; how many pictures were predicted."""
    deadline, predicted = time.perf_counter() + seconds, 0
    with torch.inference_mode():
        while time.perf_counter() < deadline:
            model(torch.tensor(pictures, device=device)).float().softmax(1).cpu()
            predicted += ROWS
    return predicted


async def measure(device: torch.device, rounds: int, seconds: float) -> list[dict[str, Any]]:
    clock: Callable[[], float] = time.process_time if device.type == "cpu" else time.perf_counter
    servers = {name: service(strategy, device) for name, strategy in STRATEGIES.items()}
    plain, _ = network(device)
    height, width = plain.info.preprocessing.size
    pictures = np.random.default_rng(0).integers(0, 256, (ROWS, 3, height, width), np.uint8)
    for server in servers.values():
        await server.start()
    rows = []
    shuffle = random.Random(0).shuffle
    for streams in STREAMS:
        for server in servers.values():
            await warm_up(server, pictures, streams, seconds)
        before = {name: passes_of(server) for name, server in servers.items()}
        speeds: dict[str, list[float]] = {name: [] for name in (*servers, ALONE)}
        for _ in range(rounds):
            order = list(speeds)
            shuffle(order)
            for name in order:
                begin = clock()
                if name == ALONE:
                    predicted = alone(plain, pictures, device, seconds)
                else:
                    predicted = await load(servers[name], pictures, streams, seconds)
                speeds[name].append(predicted / (clock() - begin))
        for name, own in speeds.items():
            ratio = statistics.median(a / b for a, b in zip(own, speeds["plain"], strict=True))
            rows.append({"server": name, "streams": streams, "per_second": statistics.median(own), "ratio": ratio})
            if name in servers and device.type == "cuda":
                rows[-1]["replayed"] = replayed_since(servers[name], before[name])
            print(json.dumps(rows[-1]), flush=True)
    for server in servers.values():
        await server.stop()
    return rows


def markdown() -> str:
    """Pictures per second of the plain network, and of the others relative to it, by number of streams."""
    results = [read_results(path) for path in sorted(RESULTS.glob("serving-batcher-*.json"))]
    names = (*STRATEGIES, ALONE)
    rows = []
    for result in results:
        for streams in STREAMS:
            own = {row["server"]: row for row in result["rows"] if row["streams"] == streams}
            ratios = [f"{own[name]['ratio']:.2f}" for name in names[1:]]
            rows.append([result["network"], str(streams), f"{own['plain']['per_second']:.0f}", *ratios])
    return markdown_table(["", "streams", "plain, pictures/s", *names[1:]], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--markdown", action="store_true", help="print the table, measure nothing")
    options = parser.parse_args()
    if not options.markdown:
        device = parse_device(options.device)
        torch.set_num_threads(1)
        card = {"network": network(device)[1], "torch": torch.__version__, "rounds": options.rounds}
        card |= {"seconds": options.seconds, "clients": CLIENTS, "pictures_per_request": ROWS}
        if device.type == "cuda":
            card["gpu"] = torch.cuda.get_device_name(device)
        rows = asyncio.run(measure(device, options.rounds, options.seconds))
        path = RESULTS / f"serving-batcher-{device.type}.json"
        write_results(path, {**card, "rows": rows})
    print(markdown())


if __name__ == "__main__":
    main()
