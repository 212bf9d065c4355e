"""Graphs as others may write them: every opset, rank and type, subgraphs, functions, shared and computed inputs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import predbn.onnx

from .graphs import CHANNELS, PARAMETERS, batch_norm_node, expected, make_model, save
from .run import operators, predict

NEWEST = 26
"""The newest opset that onnxruntime 1.31 runs."""


def values(*shape, seed=0, dtype=np.float32):
    return (2 * np.random.default_rng(seed).standard_normal(shape) + 1).astype(dtype)


def adapted(model, tmp_path, strategy="batch", **options):
    predbn.onnx.adapt(save(model, tmp_path / "model.onnx"), tmp_path / "out.onnx", strategy, **options)
    return tmp_path / "out.onnx"


def test_every_opset(tmp_path):
    x = values(5, CHANNELS, 4, 4)
    auto = predict(adapted(make_model([batch_norm_node()], opset=17), tmp_path, "auto"), x)
    for opset in range(7, NEWEST + 1):
        out = adapted(make_model([batch_norm_node()], opset=opset), tmp_path, "prior(N=4)")
        np.testing.assert_allclose(predict(out, x), expected(x, prior=4), rtol=1e-5, atol=1e-5)
        out = adapted(make_model([batch_norm_node()], opset=opset), tmp_path, "auto")
        np.testing.assert_allclose(predict(out, x), auto, rtol=1e-6)


@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "auto"])
@pytest.mark.parametrize("shape", [(6, CHANNELS), (6, CHANNELS, 5), (6, CHANNELS, 2, 2, 3), None])
def test_every_number_of_dimensions_known_or_not(shape, strategy, tmp_path):
    model = make_model([batch_norm_node()], shape=None if shape is None else ("n", *shape[1:]))
    out = adapted(model, tmp_path, strategy)
    x = values(*(shape or (6, CHANNELS, 4, 4)))
    y = predict(out, x)
    assert y.shape == x.shape
    if strategy != "auto":
        np.testing.assert_allclose(y, expected(x, prior=4 * (strategy != "batch")), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 5e-3), (np.float64, 1e-12)])
def test_half_and_double_precision(dtype, tolerance, tmp_path):
    out = adapted(make_model([batch_norm_node(epsilon=1e-3)], dtype=dtype), tmp_path)
    x = 300 * values(5, CHANNELS, 4, 4, dtype=dtype)
    y = predict(out, x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected(x, eps=np.float32(1e-3)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("ratio", [0, 1e3, 1e4])
def test_a_mean_that_is_large_compared_to_the_spread(ratio, tmp_path):
    out = adapted(make_model([batch_norm_node()]), tmp_path)
    x = values(64, CHANNELS, 32, 32) + np.float32(2 * ratio)
    np.testing.assert_allclose(predict(out, x), expected(x), rtol=1e-5, atol=1e-5)


def test_a_layer_in_a_branch(tmp_path):
    branches = [
        helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)])
        for name, node in (("then", batch_norm_node(y="a")), ("else", helper.make_node("Identity", ["x"], ["b"])))
    ]
    nodes = [
        helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", TensorProto.BOOL, [], [True])),
        helper.make_node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    out = adapted(make_model(nodes), tmp_path, "prior(N=4)")
    x = values(5, CHANNELS, 4, 4)
    np.testing.assert_allclose(predict(out, x), expected(x, prior=4), rtol=1e-5, atol=1e-5)
    with pytest.raises(predbn.AdaptationError, match="node 'norm' is in a branch or a loop"):
        predbn.onnx.adapt(tmp_path / "model.onnx", tmp_path / "other.onnx", "auto", loader=[x])


def test_a_layer_in_a_function(tmp_path):
    imports = [helper.make_opsetid("", 17)]
    inputs = ["x", *PARAMETERS]
    function = helper.make_function("mine", "Norm", inputs, ["y"], [batch_norm_node()], imports)
    call = helper.make_node("Norm", inputs, ["y"], domain="mine")
    out = adapted(make_model([call], functions=[function]), tmp_path)
    x = values(5, CHANNELS, 4, 4)
    np.testing.assert_allclose(predict(out, x), expected(x), rtol=1e-5, atol=1e-5)


def test_parameters_that_are_shared_and_nodes_that_have_no_name(tmp_path):
    nodes = [batch_norm_node(y="a"), batch_norm_node("a", "b"), helper.make_node("Mul", ["b", "x"], ["c"])]
    nodes.append(helper.make_node("ReduceSum", ["var"], ["total"], keepdims=0))
    nodes.append(helper.make_node("Add", ["c", "total"], ["y"]))
    for node in nodes:
        node.name = ""
    out = adapted(make_model(nodes), tmp_path)
    x = values(5, CHANNELS, 4, 4)
    wanted = expected(expected(x)) * x + PARAMETERS["var"].sum()
    np.testing.assert_allclose(predict(out, x), wanted, rtol=1e-4, atol=1e-4)
    left = {tensor.name for tensor in onnx.load(out).graph.initializer}
    assert "var" in left
    assert not left & {"scale", "bias", "mean"}


def test_parameters_that_are_computed(tmp_path):
    nodes = [helper.make_node("Neg", [name], [f"minus_{name}"]) for name in PARAMETERS]
    nodes += [helper.make_node("Neg", [f"minus_{name}"], [f"{name}_again"]) for name in PARAMETERS]
    again = [f"{name}_again" for name in PARAMETERS]
    nodes.append(helper.make_node("BatchNormalization", ["x", *again], ["y"], name="norm"))
    out = adapted(make_model(nodes), tmp_path, "prior(N=4)")
    x = values(5, CHANNELS, 4, 4)
    np.testing.assert_allclose(predict(out, x), expected(x, prior=4), rtol=1e-5, atol=1e-5)
    predbn.onnx.adapt(tmp_path / "model.onnx", tmp_path / "auto.onnx", "auto", loader=[x, x])
    assert predict(tmp_path / "auto.onnx", x).shape == x.shape


def test_only_some_layers(tmp_path):
    second = helper.make_node("BatchNormalization", ["a", *PARAMETERS], ["y"], name="other")
    model = make_model([batch_norm_node(y="a"), second])
    out = adapted(model, tmp_path, layers="nor*")
    assert operators(out).count("BatchNormalization") == 1
    with pytest.raises(predbn.AdaptationError, match="no batch norm layer matches 'x'; there are norm, other"):
        adapted(model, tmp_path, layers="x")


def test_the_other_spelling_of_the_domain(tmp_path):
    model = make_model([batch_norm_node()])
    model.opset_import[0].domain = "ai.onnx"
    x = values(5, CHANNELS, 4, 4)
    np.testing.assert_allclose(predict(adapted(model, tmp_path), x), expected(x), rtol=1e-5, atol=1e-5)
