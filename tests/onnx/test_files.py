"""Files that cannot be used are refused in one sentence, and nothing is written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import predbn
import predbn.onnx
from predbn.common import ModelError
from predbn.onnx import model_files

from .graphs import CHANNELS, PARAMETERS, batch_norm_node, expected, make_model, save
from .run import predict

X = np.random.default_rng(0).standard_normal((6, CHANNELS, 4, 4)).astype(np.float32)


def refused(path, match, strategy="batch", error=predbn.PredbnError, **options):
    folder = path.parent
    before = sorted(folder.iterdir())
    with pytest.raises(error, match=match):
        predbn.onnx.adapt(path, folder / "out.onnx", strategy, **options)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"hello, this is not a model", b"\x08\x07", bytes(100)])
def test_what_is_no_model(content, tmp_path):
    (tmp_path / "model.onnx").write_bytes(content)
    refused(tmp_path / "model.onnx", "is not an ONNX model", error=ModelError)


def test_a_file_that_does_not_exist(tmp_path):
    refused(tmp_path / "model.onnx", "No such file", error=FileNotFoundError)


def test_weights_in_another_file(tmp_path):
    model = make_model([batch_norm_node()])
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    predbn.onnx.adapt(tmp_path / "model.onnx", tmp_path / "out.onnx")
    weights = (tmp_path / "w.data").read_bytes()
    (tmp_path / "w.data").write_bytes(weights[:-1])
    refused(tmp_path / "model.onnx", r"weights in w\.data, which is too short")
    (tmp_path / "w.data").unlink()
    refused(tmp_path / "model.onnx", r"weights in w\.data, which is missing")
    np.testing.assert_allclose(predict(tmp_path / "out.onnx", X), expected(X), rtol=1e-5, atol=1e-5)


def test_weights_are_not_read_from_elsewhere(tmp_path):
    (tmp_path / "models").mkdir()
    model = make_model([batch_norm_node()])
    path = tmp_path / "models" / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    (tmp_path / "models" / "w.data").rename(tmp_path / "w.data")
    path.write_bytes(path.read_bytes().replace(b"w.data", b"../w.d"))
    (tmp_path / "w.data").rename(tmp_path / "w.d")
    refused(path, r"w\.d, outside of its own folder")


def test_a_model_that_is_too_large_for_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(model_files, "MAX_BYTES", 10)
    path = save(make_model([batch_norm_node()]), tmp_path / "model.onnx")
    refused(path, "take more than 2 GB, the limit of an ONNX file", error=ModelError)


def test_an_earlier_file_is_kept_if_writing_fails(tmp_path, monkeypatch):
    path = save(make_model([batch_norm_node()]), tmp_path / "model.onnx")
    (tmp_path / "out.onnx").write_text("earlier")
    monkeypatch.setattr(model_files.ir, "save", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        predbn.onnx.adapt(path, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_text() == "earlier"


def test_the_original_is_never_overwritten(tmp_path):
    path = save(make_model([batch_norm_node()]), tmp_path / "model.onnx")
    with pytest.raises(predbn.AdaptationError, match="is the input file: choose another name"):
        predbn.onnx.adapt(path, tmp_path / "." / "model.onnx")


def test_an_opset_that_is_too_old(tmp_path):
    path = save(make_model([batch_norm_node()], opset=11), tmp_path / "model.onnx")
    refused(path, "has opset 11, but at least 13 is needed")


def test_no_batch_norm_at_all(tmp_path):
    path = save(make_model([helper.make_node("Relu", ["x"], ["y"])]), tmp_path / "model.onnx")
    refused(path, "has no BatchNormalization nodes and no convolutions with a bias")


def test_a_file_that_was_adapted_before(tmp_path):
    path = save(make_model([batch_norm_node()]), tmp_path / "model.onnx")
    predbn.onnx.adapt(path, tmp_path / "once.onnx")
    refused(tmp_path / "once.onnx", "is already adapted: adapt the original file")


def test_models_in_training_mode(tmp_path):
    flag = helper.make_tensor("flag", TensorProto.BOOL, [], [True])
    ratio = helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.5])
    nodes = [
        helper.make_node("Constant", [], ["flag"], value=flag),
        helper.make_node("Constant", [], ["ratio"], value=ratio),
        helper.make_node("Dropout", ["x", "ratio", "flag"], ["dropped"], name="drop"),
        batch_norm_node("dropped", training_mode=1),
    ]
    refused(save(make_model(nodes), tmp_path / "model.onnx"), "node 'drop' is an active dropout")
    node = helper.make_node("BatchNormalization", ["x", *PARAMETERS], ["a", "m", "v"], name="norm", training_mode=1)
    nodes = [node, helper.make_node("ReduceSum", ["m"], ["total"], keepdims=0)]
    nodes.append(helper.make_node("Add", ["a", "total"], ["y"]))
    refused(save(make_model(nodes), tmp_path / "model.onnx"), "node 'norm' updates its statistics")


@pytest.mark.parametrize(
    ("strategy", "match"),
    [
        ("ema", "'ema' is not supported in ONNX files: use batch, prior or auto"),
        ("auto_stream", "'auto_stream' is not supported"),
        ("auto(passes=4)", "makes 4 passes, and an ONNX file makes one"),
        ("prior(N=1e999)", "N must be finite"),
        ("bath", "bath"),
    ],
)
def test_strategies_that_a_file_cannot_hold(strategy, match, tmp_path):
    refused(save(make_model([batch_norm_node()]), tmp_path / "model.onnx"), match, strategy)


@pytest.mark.parametrize(
    ("loader", "match"),
    [
        ([], "the loader gave no batch"),
        ([X[:1]], "at least two finite examples"),
        ([[1, 2]], "expected NumPy arrays or tensors from the loader, got int"),
        ([{"z": X}], "one array for each input of the model: x"),
        ([X[:, :2]], "onnxruntime cannot predict a batch of the loader"),
    ],
)
def test_source_data_that_cannot_be_used(loader, match, tmp_path):
    refused(save(make_model([batch_norm_node()]), tmp_path / "model.onnx"), match, "auto", loader=loader)


def test_source_data_without_use(tmp_path):
    path = save(make_model([batch_norm_node()]), tmp_path / "model.onnx")
    refused(path, "'batch' does not use source data", loader=[X])


def test_what_describe_says(tmp_path):
    path = save(make_model([batch_norm_node()], shape=(6, CHANNELS, 4, 4)), tmp_path / "model.onnx")
    before = predbn.onnx.describe(path)
    assert (before.strategy, before.opset, before.batch) == (None, 17, 6)
    assert "1 batch norm layer in opset 17, and is not adapted" in str(before)
    assert "batches of 6 only" in str(before)
    written = predbn.onnx.adapt(path, tmp_path / "out.onnx", "prior", N=8)
    assert predbn.onnx.describe(tmp_path / "out.onnx") == written
    assert written.strategy == "prior(N=8)"
    assert [(layer.name, layer.channels) for layer in written.layers] == [("norm", 3)]
    assert predbn.onnx.adapt(path, tmp_path / "auto.onnx", "auto", loader=[X]).examples == 6
