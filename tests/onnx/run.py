"""Predictions of files by onnxruntime."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime


def load(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """From one input to the first output, of a file that also passes the checker of onnx. A stream begins each time."""
    if onnx.load(path, load_external_data=False).graph.input[0].type.tensor_type.HasField("shape"):
        onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name, *others = session.get_inputs()
    zeros = {state.name: np.zeros(state.shape, np.float32) for state in others}
    return lambda x: session.run(None, {name.name: x, **zeros})[0]


def predict(path: Path, x: np.ndarray) -> np.ndarray:
    return load(path)(x)


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]
