"""Small graphs written by hand, and batch norm in NumPy with double precision."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

CHANNELS = 3
PARAMETERS = {
    "scale": np.array([1.5, -0.5, 2.0]),
    "bias": np.array([0.1, 0.2, -0.3]),
    "mean": np.array([0.3, -1.0, 2.0]),
    "var": np.array([0.5, 2.0, 1.0]),
}


def batch_norm_node(x="x", y="y", **attributes):
    return helper.make_node("BatchNormalization", [x, *PARAMETERS], [y], name="norm", **attributes)


def make_model(nodes, *, opset=17, dtype=np.float32, shape=("n", CHANNELS, "h", "w"), functions=(), initializers=None):
    """A model from x to y with the parameters of one batch norm."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = PARAMETERS if initializers is None else initializers
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
        [numpy_helper.from_array(values.astype(dtype), name) for name, values in values.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def expected(x, *, prior=0.0, eps=1e-5):
    """What `prior` computes; `batch` with prior=0."""
    x = x.astype(np.float64)
    axes, shape = (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    share = len(x) / (len(x) + prior)
    mean = share * x.mean(axes) + (1 - share) * PARAMETERS["mean"]
    var = share * x.var(axes) + (1 - share) * PARAMETERS["var"]
    factor = PARAMETERS["scale"] / np.sqrt(var + eps)
    return (x - mean.reshape(shape)) * factor.reshape(shape) + PARAMETERS["bias"].reshape(shape)


def save(model, path):
    onnx.save(model, path)
    return path
