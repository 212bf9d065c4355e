"""`predbn onnx`."""

import json

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner

from predbn.cli import app

from ..onnx.graphs import CHANNELS, batch_norm_node, expected, make_model, save
from ..onnx.run import predict

X = np.random.default_rng(0).standard_normal((6, CHANNELS, 8, 8)).astype(np.float32)


def run(*arguments):
    return CliRunner().invoke(app, ["onnx", *map(str, arguments)])


def test_adapt_and_describe(tmp_path):
    path, out = save(make_model([batch_norm_node()]), tmp_path / "model.onnx"), tmp_path / "out.onnx"
    done = run("adapt", path, out)
    assert done.exit_code == 0, done.output
    assert "The statistics of 1 batch norm layer come from batch (opset 17)" in done.output
    np.testing.assert_allclose(predict(out, X), expected(X), rtol=1e-5, atol=1e-5)
    assert "norm (BatchNormalization, 3 channels)" in run("describe", out).output
    assert json.loads(run("describe", out, "--json").output)["strategy"] == "batch"


def test_source_data_as_arrays_and_as_pictures(tmp_path):
    path, out = save(make_model([batch_norm_node()]), tmp_path / "model.onnx"), tmp_path / "out.onnx"
    np.save(tmp_path / "inputs.npy", X)
    done = run("adapt", path, out, "--strategy", "auto", "--data", tmp_path / "inputs.npy", "--json")
    assert json.loads(done.output)["examples"] == 6
    pictures = np.random.default_rng(0).integers(0, 255, (7, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "pictures.npy", pictures)
    arguments = ["adapt", path, out, "--strategy", "auto", "--data", tmp_path / "pictures.npy"]
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "pictures need to be prepared as in training" in " ".join(refused.output.replace("│", "").split())
    done = run(*arguments, "--size", "8", "--mean", "0.5", "--std", "0.25", "--json")
    assert json.loads(done.output)["examples"] == 7


@pytest.mark.parametrize("options", [["--size", "8"], ["--strategy", "auto", "--data", "inputs.npy"]])
def test_options_without_data_and_data_that_is_no_array_are_usage_errors(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    path = save(make_model([batch_norm_node()]), tmp_path / "model.onnx")
    (tmp_path / "inputs.npy").write_text("no array")
    assert run("adapt", path, "out.onnx", *options).exit_code == 2
    assert not (tmp_path / "out.onnx").exists()


def test_messages_name_options(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    folded = save(make_model(nodes), tmp_path / "folded.onnx")
    path = save(make_model([batch_norm_node()]), tmp_path / "model.onnx")
    np.save(tmp_path / "inputs.npy", X)
    for arguments, wanted in (
        ([path, "--convolutions"], "--convolutions needs source data for their statistics: give --data"),
        ([path, "--data", tmp_path / "inputs.npy"], "does not use source data: leave out --data"),
        ([folded, "--layers", "x"], "has no BatchNormalization nodes"),
    ):
        done = run("adapt", arguments[0], tmp_path / "out.onnx", *arguments[1:])
        assert done.exit_code == 1
        message = " ".join(str(done.exception).split())
        assert wanted in message
        assert "=" not in message
