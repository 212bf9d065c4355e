"""What adapted ONNX files cost in onnxruntime, and how far they are from PyTorch: four networks at 224 pixels.

Times are processor time, and those of predictions are relative to the unadapted file in the same run. That file has
its batch norm folded into convolutions by onnxruntime itself when it is loaded, which an adapted file gives up.

    python benchmarks/onnx_files.py               writes results/onnx.json
    python benchmarks/onnx_files.py --markdown    prints the table of docs/onnx.md from it
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

import cpu_torchvision  # noqa: F401
import predbn
import predbn.onnx
from measurements import RESULTS, markdown_table, read_results, write_results
from predbn.common import hardware_of, package_versions

RESULT = RESULTS / "onnx.json"
NETWORKS = ["resnet50", "mobilenet_v2", "densenet121", "efficientnet_b0"]
STRATEGIES = ["batch", "prior(N=16)", "auto"]
BATCH, PIXELS, ROUNDS = 8, 224, 5


class Session:
    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        begin = time.process_time()
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.load_seconds = time.process_time() - begin
        self.times: list[float] = []

    def run(self, x: Tensor) -> np.ndarray[Any, Any]:
        begin = time.process_time()
        (y,) = self.session.run(None, {"x": x.numpy()})
        self.times.append(time.process_time() - begin)
        return np.asarray(y)


def network(name: str) -> nn.Module:
    """Random weights with statistics of their own."""
    torch.manual_seed(0)
    model: nn.Module = getattr(importlib.import_module("torchvision.models"), name)(weights=None)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # the statistics of the batch that follows
    with torch.no_grad():
        model.train()(torch.randn(BATCH, 3, PIXELS, PIXELS))
    return model.eval()


def measure(name: str, folder: Path) -> dict[str, Any]:
    model = network(name)
    source = [torch.randn(BATCH, 3, PIXELS, PIXELS) for _ in range(2)]
    x = 1.5 * torch.randn(BATCH, 3, PIXELS, PIXELS) + 0.5
    path = folder / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (x,), path, dynamo=False, opset_version=17, input_names=["x"], dynamic_axes={"x": {0: "n"}},
            training=torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip
    sessions, errors = {"unadapted": Session(path)}, {}
    for strategy in STRATEGIES:
        out, adapted = folder / "out.onnx", copy.deepcopy(model)
        loader = source if "auto" in strategy else None
        predbn.onnx.adapt(path, out, strategy, loader=loader)
        if loader is not None:
            predbn.calibrate(adapted, loader)
        sessions[strategy] = Session(out)
        with torch.no_grad():
            wanted = predbn.adapt(adapted, strategy)(x).numpy()
        difference = np.abs(sessions[strategy].run(x) - wanted).max()
        errors[strategy] = float(difference / np.abs(wanted).max())
    for _ in range(ROUNDS):
        for session in sessions.values():
            session.run(x)
    seconds = {key: median(session.times[-ROUNDS:]) for key, session in sessions.items()}
    return {
        "seconds": seconds["unadapted"],
        "ratio": {key: value / seconds["unadapted"] for key, value in seconds.items() if key != "unadapted"},
        "error": errors,
        "load_seconds": {key: session.load_seconds for key, session in sessions.items()},
    }


def markdown() -> str:
    """The table of docs/onnx.md."""
    result = read_results(RESULT)
    headings = ["", "unadapted, ms", *STRATEGIES, "it loads in, s", "with auto, s", "largest difference from PyTorch"]
    rows = []
    for name, row in result["networks"].items():
        ratios = [f"{row['ratio'][strategy]:.2f}" for strategy in STRATEGIES]
        loading = [f"{row['load_seconds'][key]:.1f}" for key in ("unadapted", STRATEGIES[-1])]
        rows.append([name, f"{1000 * row['seconds']:.0f}", *ratios, *loading, f"{max(row['error'].values()):.0e}"])
    return markdown_table(headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print the table")
    if parser.parse_args().markdown:
        print(markdown())
        return
    torch.set_num_threads(1)
    networks = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            networks[name] = measure(name, Path(folder))
            print(name, json.dumps(networks[name]), flush=True)
    settings = {"batch": BATCH, "pixels": PIXELS, "rounds": ROUNDS, "threads": 1, "opset": 17}
    versions = {**package_versions(), "onnxruntime": onnxruntime.__version__}
    content = {"settings": settings, "hardware": hardware_of("cpu"), "versions": versions}
    write_results(RESULT, {**content, "networks": networks})


if __name__ == "__main__":
    main()
