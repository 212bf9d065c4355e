"""Averaged weights with statistics from four sources: stale, update_bn, precise_bn and predbn.recompute.

    pip install fvcore
    predbn data cifar10                        # once
    python benchmarks/recompute.py             # a quarter of an hour on one core
    python benchmarks/recompute.py --markdown  # measures nothing: the table of docs/recompute.md from results/

A ResNet-20 of the zoo is trained further for a short time at a high, constant learning rate, as SWA does; its weights
are averaged over snapshots (SWA) and by a moving average (EMA). Batch norm statistics cannot be averaged along: those
of the last snapshot belong to other weights. They are recomputed from training images, in batches of 100, in batches of
500 of which the last has two images, and in batches of 8. Accuracy is that on the first 5,000 test images, `distance`
is how far the statistics are from those of all images as one batch, in standard deviations (root mean square over
channels, in the layer that is farthest off). Times are processor time of one thread. Writes results/recompute.json.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import predbn
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.common import hardware_of, package_versions
from predbn.data import cifar10
from predbn.models import load
from predbn.norm import named_layers
from predbn.norm.statistics import Statistics, distance

RESULT = RESULTS / "recompute.json"
MODEL = "zoo:resnet20-cifar10/batch/0"
STEPS, SNAPSHOT, BATCH, RATE, DECAY = 160, 40, 128, 0.05, 0.98
CASES = [("SWA", 100, 2000), ("EMA", 100, 2000), ("SWA", 500, 2002), ("SWA", 8, 1000)]
"""Which average, in batches of which size, and how many images there are to compute statistics from."""
TEST_IMAGES = 5000

METHODS = {
    "stale": "statistics of the last snapshot",
    "update_bn": "`torch.optim.swa_utils.update_bn`",
    "precise_bn": "`fvcore.nn.update_bn_stats`",
    "one pass": "`predbn.recompute(…, exact=False)`",
    "exact": "`predbn.recompute(…)`",
}


def averaged_models(images: Tensor, labels: Tensor) -> dict[str, nn.Module]:
    """The network after a short training: its weights averaged in two ways. The buffers are those of the end."""
    torch.manual_seed(0)
    model = load(MODEL).train()
    swa = AveragedModel(model)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    for step in range(1, STEPS + 1):
        rows = torch.randint(len(images), (BATCH,))
        batch = images[rows]
        batch = torch.where((torch.rand(BATCH) < 0.5)[:, None, None, None], batch.flip(3), batch)
        loss = F.cross_entropy(model(batch), labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        ema.update_parameters(model)
        if step % SNAPSHOT == 0:
            swa.update_parameters(model)
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    buffers = dict(model.named_buffers())
    for average in (swa, ema):
        for name, buffer in average.module.named_buffers():
            buffer.copy_(buffers[name])
    return {"SWA": swa.module.eval(), "EMA": ema.module.eval()}


def methods() -> dict[str, Callable[[nn.Module, list[Tensor]], object]]:
    from fvcore.nn.precise_bn import update_bn_stats

    return {
        "exact": predbn.recompute,
        "stale": lambda model, batches: None,
        "update_bn": lambda model, batches: update_bn(batches, model),
        "precise_bn": lambda model, batches: update_bn_stats(model.train(), batches, len(batches)),
        "one pass": lambda model, batches: predbn.recompute(model, batches, exact=False),
    }


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """In %."""
    model.eval()
    predicted = torch.cat([model(batch).argmax(1) for batch in images.split(500)])
    return 100 * (predicted == labels).double().mean().item()


def stored(model: nn.Module) -> dict[str, Statistics]:
    return {
        name: Statistics(layer.running_mean.clone(), layer.running_var.clone()) for name, layer in named_layers(model)
    }


def measure() -> dict[str, Any]:
    train, test = cifar10("train"), cifar10("test").take(TEST_IMAGES)
    models = averaged_models(train.images, train.labels)
    order = torch.randperm(len(train.images), generator=torch.Generator().manual_seed(1))
    rows = []
    for average, size, count in CASES:
        batches = list(train.images[order[:count]].split(size))
        exact: dict[str, Statistics] = {}
        for name, method in methods().items():
            model = copy.deepcopy(models[average])
            start = time.process_time()
            method(model, batches)
            seconds = time.process_time() - start
            found = stored(model)
            exact = exact or found
            farthest = max(distance(found[name], exact[name], layer.eps) for name, layer in named_layers(model))
            row = {"average": average, "method": name, "batch": size, "images": count, "last": len(batches[-1])}
            row |= {"accuracy": accuracy(model, test.images, test.labels), "distance": farthest, "seconds": seconds}
            rows.append(row)
            print(row, flush=True)
    return {
        "model": MODEL,
        "training": {"steps": STEPS, "snapshot": SNAPSHOT, "batch": BATCH, "rate": RATE, "decay": DECAY},
        "environment": {**package_versions(), **hardware_of("cpu")},
        "rows": rows,
    }


def markdown() -> str:
    """The table of docs/recompute.md."""
    rows = read_results(RESULT)["rows"]
    found = {(row["average"], row["batch"], row["method"]): row for row in rows}
    heads, columns = [], []
    for average, size, count in CASES:
        last = found[average, size, "exact"]["last"]
        heads.append(
            f"{average}, {count:,} images in batches of {size}" + (f", the last of {last}" if last != size else "")
        )
    for method in METHODS:
        own = [found[average, size, method] for average, size, _ in CASES]
        slower = own[0]["seconds"] / found["SWA", 100, "update_bn"]["seconds"]
        cells = [f"{row['accuracy']:.1f} ({row['distance']:.2g})" for row in own]
        columns.append([METHODS[method], *cells, "–" if method == "stale" else f"{slower:.1f}"])
    return markdown_table(["", *heads, "time"], columns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="print the table from results/, and measure nothing")
    if parser.parse_args().markdown:
        print(markdown())
    else:
        torch.set_num_threads(1)
        write_results(RESULT, measure())
        print(markdown())
