"""Strategies that keep state: onnxruntime, with outputs fed back, predicts a stream as PyTorch does."""

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import predbn
import predbn.onnx

from .graphs import CHANNELS, PARAMETERS, batch_norm_node, make_model, save
from .networks import export, images, network
from .test_parity import draw, layer_and_file


class Stream:
    """Predicts batches of one stream with a file."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (state,) = (value for value in self.session.get_inputs() if value.name == "predbn_state")
        self.state = np.zeros(state.shape, np.float32)

    def __call__(self, x):
        outputs = self.session.run(["y", "predbn_next_state"], {"x": x, "predbn_state": self.state})
        self.state = outputs[1]
        return outputs[0]


@pytest.mark.parametrize(
    ("strategy", "robust", "calibrated"),
    [
        ("ema", False, False),
        ("ema(momentum=0.3)", True, True),
        ("ema(momentum=0.3, start='first')", True, False),
        ("frozen", False, False),
        ("frozen(batches=3)", True, True),
    ],
)
@torch.no_grad()
def test_nodes_equal_pytorch_on_a_random_stream(strategy, robust, calibrated, tmp_path):
    random = np.random.default_rng(0)
    layer, path = layer_and_file(random, tmp_path)
    source = [draw(random, 30) for _ in range(2)]
    options = {"loader": source} if calibrated else {}
    written = predbn.onnx.adapt(path, tmp_path / "out.onnx", strategy, robust=robust, **options)
    model = nn.Sequential(layer)
    if calibrated:
        predbn.calibrate(model, source)
    predbn.adapt(model, strategy, robust=robust)
    stream = Stream(tmp_path / "out.onnx")
    assert written.state == len(stream.state)
    assert "'predbn_state'" in str(predbn.onnx.describe(tmp_path / "out.onnx"))
    for n in (3, 1, 9, 40, 2, 7):
        x = draw(random, n, outliers=n // 8)
        x = x[:, :, :2] if n == 9 else x  # batches count by their number of values
        np.testing.assert_allclose(stream(x.numpy()), model(x).numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float16, 0.02)])
@torch.no_grad()
def test_a_network_on_a_stream(dtype, tolerance, tmp_path):
    model = network("mobilenet").to(dtype)
    path = export(model, tmp_path / "model.onnx", example=images(4).to(dtype), opset_version=12, output_names=["y"])
    predbn.onnx.adapt(path, tmp_path / "out.onnx", "ema", momentum=0.3)
    predbn.adapt(model, "ema", momentum=0.3)
    stream = Stream(tmp_path / "out.onnx")
    for seed in range(3):
        x = images(8, seed=seed, shifted=True).to(dtype)
        np.testing.assert_allclose(stream(x.numpy()), model(x).numpy(), rtol=tolerance, atol=tolerance)


def test_a_batch_that_is_not_finite_leaves_the_state_alone(tmp_path):
    predbn.onnx.adapt(save(make_model([batch_norm_node()]), tmp_path / "model.onnx"), tmp_path / "out.onnx", "ema")
    stream, x = Stream(tmp_path / "out.onnx"), np.random.default_rng(0).standard_normal((4, CHANNELS, 2, 2), np.float32)
    stream(x)
    before = stream.state
    for bad in (np.nan, np.inf):
        x[0, 0, 0, 0] = bad
        stream(x)
        np.testing.assert_array_equal(stream.state, before)


def test_layers_that_cannot_keep_a_state(tmp_path):
    computed = [helper.make_node("Neg", ["bias"], ["minus"]), batch_norm_node()]
    computed[1].input[2] = "minus"
    value = helper.make_tensor_value_info("a", TensorProto.FLOAT, None)
    branch = helper.make_graph([batch_norm_node(y="a")], "branch", [], [value])
    flag = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    inside = [
        helper.make_node("Constant", [], ["yes"], value=flag),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
    ]
    for nodes, match in ((computed, "'norm' has a computed bias"), (inside, "'norm' is in a branch or a loop")):
        path = save(make_model(nodes, initializers=PARAMETERS), tmp_path / "model.onnx")
        with pytest.raises(predbn.AdaptationError, match=match):
            predbn.onnx.adapt(path, tmp_path / "out.onnx", "ema")
