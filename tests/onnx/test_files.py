"""Files that cannot be used are refused in one sentence, and nothing is written."""

import random
from functools import partial

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


@pytest.fixture
def path(tmp_path):
    """A file with one batch norm layer."""
    return save(make_model([batch_norm_node()]), tmp_path / "model.onnx")


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


def test_a_model_that_is_too_large_for_a_file(path, monkeypatch):
    monkeypatch.setattr(model_files, "MAX_BYTES", 10)
    refused(path, "take more than 2 GB, the limit of an ONNX file", error=ModelError)


def test_an_earlier_file_is_kept_if_writing_fails(path, tmp_path, monkeypatch):
    (tmp_path / "out.onnx").write_text("earlier")
    monkeypatch.setattr(model_files.ir, "save", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        predbn.onnx.adapt(path, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_text() == "earlier"


def test_the_original_is_never_overwritten(path, tmp_path):
    with pytest.raises(predbn.AdaptationError, match="is the input file: choose another name"):
        predbn.onnx.adapt(path, tmp_path / "." / "model.onnx")


def test_a_file_that_was_adapted_before(path, tmp_path):
    predbn.onnx.adapt(path, tmp_path / "once.onnx")
    refused(tmp_path / "once.onnx", "is already adapted: adapt the original file")


def test_random_predictions_and_updated_statistics(tmp_path):
    flag = helper.make_tensor("flag", TensorProto.BOOL, [], [True])
    ratio = helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.5])
    nodes = [
        helper.make_node("Constant", [], ["flag"], value=flag),
        helper.make_node("Constant", [], ["ratio"], value=ratio),
        helper.make_node("Dropout", ["x", "ratio", "flag"], ["dropped"], name="drop"),
        batch_norm_node("dropped"),
    ]
    refused(save(make_model(nodes), tmp_path / "model.onnx"), "node 'drop' is an active dropout")
    node = helper.make_node("BatchNormalization", ["x", *PARAMETERS], ["a", "m", "v"], name="norm", training_mode=1)
    nodes = [node, helper.make_node("ReduceSum", ["m"], ["total"], keepdims=0)]
    nodes.append(helper.make_node("Add", ["a", "total"], ["y"]))
    refused(save(make_model(nodes), tmp_path / "model.onnx"), "the updated statistics of node 'norm' are used")


NORM_FUNCTION = helper.make_function(
    "mine", "Norm", ["x", *PARAMETERS], ["y"], [batch_norm_node()], [helper.make_opsetid("", 16)]
)


@pytest.mark.parametrize(
    ("nodes", "options", "match"),
    [
        ([batch_norm_node("z")], {}, "uses a value 'z' that nothing computes"),
        ([batch_norm_node(y="z")], {}, "uses a value 'y' that nothing computes"),
        (
            [helper.make_node("Norm", ["x", *PARAMETERS], ["y"], domain="mine")],
            {"functions": [NORM_FUNCTION]},
            "is not a valid ONNX model",
        ),
        ([batch_norm_node()], {"opset": 6}, "has opset 6, but at least 7 is needed"),
        (
            [
                helper.make_node("Clip", ["x"], ["a"], min=0.0),
                helper.make_node("What", ["a"], ["b"]),
                batch_norm_node(),
            ],
            {"opset": 9},
            "has opset 9 and cannot be converted to 13",
        ),
        (
            [helper.make_node("Relu", ["x"], ["y"])],
            {},
            "has no BatchNormalization nodes and no convolutions with a bias",
        ),
        *(
            (
                [batch_norm_node()],
                {"initializers": {**PARAMETERS, name: np.zeros(size)}},
                f"has {size} values of its {name}",
            )
            for name, size in (("mean", 2), ("var", 0))
        ),
    ],
)
def test_models_that_cannot_be_adapted(nodes, options, match, tmp_path):
    refused(save(make_model(nodes, **options), tmp_path / "model.onnx"), match)


@pytest.mark.parametrize(
    ("strategy", "options", "match"),
    [
        ("auto_stream", {}, "'auto_stream' is not supported in ONNX files: use batch, prior, ema, frozen or auto"),
        ("auto(passes=4)", {}, "makes 4 passes, and an ONNX file makes one"),
        ("prior(N=1e999)", {}, "N must be finite"),
        ("bath", {}, "bath"),
        ("batch", {"loader": [X]}, "'batch' does not use source data"),
        ("auto", {"loader": []}, "there is no batch of source data"),
        ("auto", {"loader": [X[:1]]}, "at least two finite examples"),
        ("auto", {"loader": [[1, 2]]}, "source data must be NumPy arrays or tensors, but got int"),
        ("auto", {"loader": [{"z": X}]}, "one array for each input of the model: x"),
        ("auto", {"loader": [X[:, :2]]}, "onnxruntime cannot predict a batch of source data"),
    ],
)
def test_strategies_and_source_data_that_cannot_be_used(strategy, options, match, path):
    refused(path, match, strategy, **options)


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


def test_flipped_bits_are_refused_in_one_sentence_or_harmless(tmp_path):
    """No other error, and nothing is left of a file that could not be adapted."""
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    content = save(make_model([batch_norm_node()]), path).read_bytes()
    messages = []
    for bit in random.Random(0).sample(range(8 * len(content)), 300):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        out.unlink(missing_ok=True)
        for use in (predbn.onnx.describe, partial(predbn.onnx.adapt, out=out)):
            try:
                use(path)
            except predbn.PredbnError as error:
                messages.append(str(error))
                if out.exists():
                    messages.append("there is a file")
    assert len(messages) > 50
    assert not [message for message in messages if "\n" in message or message == "there is a file"]


def test_a_damaged_file_is_told_from_a_loader_that_fails(path):
    def loader():
        yield X
        raise LookupError("the disk is gone")

    refused(path, "gone", "auto", error=LookupError, loader=loader())
