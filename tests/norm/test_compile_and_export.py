"""Compiled and exported models give the adapted outputs, not the source model's."""

import copy
import shutil
import sys

import numpy as np
import pytest
import torch
from torch import nn

import predbn
from predbn.norm import backend

from .models import images, net
from .test_layer import SuperSubclass

SIZES = (8, 5)
STATELESS = ["batch", "prior(N=4)", "auto", "population"]


def assert_close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "strategy", ["batch", "prior", "auto", "auto_stream", "ema(start='first')", "frozen", "population"]
)
@torch.no_grad()
def test_one_graph_without_breaks(strategy):
    options = {"loader": [images()]} if strategy == "population" else {}
    eager = predbn.adapt(net(), strategy, **options)
    compiled = torch.compile(copy.deepcopy(eager), fullgraph=True, backend="eager")
    for seed, n in enumerate((8, 5, 8)):
        x = images(n, seed=seed, shift=float(seed))
        assert_close(compiled(x), eager(x))


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler")
@torch.no_grad()
def test_through_inductor():
    eager = predbn.adapt(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(108, 4)).eval(), "ema")
    compiled = torch.compile(copy.deepcopy(eager), fullgraph=True)
    for seed in range(2):
        assert_close(compiled(images(seed=seed)), eager(images(seed=seed)))


@torch.no_grad()
def test_a_backend_is_imported_outside_of_the_graph(tmp_path, monkeypatch):
    """When a compiled model is the first to see a device; here the CPU, as if nothing were known of it."""
    (tmp_path / "named_backend.py").write_text(
        "from predbn.norm import register\n"
        "class Named:\n"
        "    def moments(self, *_): return None\n"
        "    def normalise(self, x, *_): return x + 7\n"
        "register('cpu', Named())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PREDBN_BACKEND", "named_backend")
    monkeypatch.delitem(backend._backends, "cpu")
    layer = predbn.adapt(nn.BatchNorm2d(3).eval(), "batch")
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    try:
        assert torch.equal(compiled(images()), images() + 7)
    finally:
        sys.modules.pop("named_backend", None)


@torch.no_grad()
def test_adapting_and_restoring_a_compiled_model():
    model = net()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    x = images()
    plain = compiled(x)
    predbn.adapt(compiled, layers="bn1")
    assert_close(compiled(x), predbn.adapt(net(), layers="bn1")(x))
    predbn.adapt(compiled, "population", loader=[x])
    assert_close(compiled(x), predbn.adapt(net())(x))
    predbn.restore(compiled)
    assert torch.equal(compiled(x), plain)


@torch.no_grad()
def test_streams_of_a_compiled_model_share_its_graphs():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    model = predbn.adapt(net(), "ema")
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    alone = {name: predbn.adapt(net(), "ema") for name in "abcde"}
    for step in range(2):
        for i, (name, other) in enumerate(alone.items()):
            x = images(seed=step, shift=float(i))
            with predbn.stream(compiled, name):
                assert_close(compiled(x), other(x))
    assert len(graphs) <= 3


def test_gradients_through_a_compiled_model():
    eager = predbn.adapt(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval())
    compiled = torch.compile(copy.deepcopy(eager), backend="aot_eager", fullgraph=True)
    grads = []
    for model in (eager, compiled):
        x = images().requires_grad_()
        model(x).square().sum().backward()
        grads.append(x.grad)
    assert_close(*grads)


@torch.no_grad()
def test_a_subclass_with_a_forward_of_its_own_compiles():
    eager = predbn.adapt(nn.Sequential(SuperSubclass(3)).eval())
    compiled = torch.compile(copy.deepcopy(eager), backend="eager")
    assert_close(compiled(images()), eager(images()))


@pytest.mark.parametrize("strategy", STATELESS)
@torch.no_grad()
def test_export_gives_the_adapted_outputs(strategy):
    options = {"loader": [images()]} if strategy == "population" else {}
    model = predbn.adapt(net(), strategy, **options)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (images(),), dynamic_shapes=({0: batch},)).module()
    for n in SIZES:
        x = images(n, seed=n, shift=2.0)
        assert_close(program(x), model(x))
        assert not torch.allclose(program(x), net()(x), atol=1e-2)


@torch.no_grad()
def test_onnx_gives_the_adapted_outputs(tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    model = predbn.adapt(net(), "auto")
    path = tmp_path / "model.onnx"
    batch = torch.export.Dim("batch", min=2, max=64)
    torch.onnx.export(model, (images(),), path, dynamo=True, dynamic_shapes=({0: batch},), verbose=False)
    session = runtime.InferenceSession(path)
    name = session.get_inputs()[0].name
    for n in SIZES:
        x = images(n, seed=n, shift=2.0)
        y = session.run(None, {name: x.numpy()})[0]
        np.testing.assert_allclose(y, model(x).numpy(), rtol=1e-4, atol=1e-4)
        assert not np.allclose(y, net()(x).numpy(), atol=1e-2)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced_models_are_the_adapted_ones():
    model = predbn.adapt(net())
    traced = torch.jit.trace(model, images(), check_trace=False)
    for n in SIZES:
        x = images(n, seed=n, shift=2.0)
        assert_close(traced(x), model(x))


@pytest.mark.parametrize("strategy", ["frozen", "ema", "auto_stream"])
@torch.no_grad()
def test_strategies_with_state_refuse_export(strategy, tmp_path):
    model = predbn.adapt(net(), strategy)
    model(images())
    message = f"strategy '{strategy}' keeps state from batch to batch"
    with pytest.raises(predbn.AdaptationError, match=message):
        torch.export.export(model, (images(),))
    if strategy == "ema":
        with pytest.raises(Exception, match=message):
            torch.onnx.export(model, (images(),), tmp_path / "model.onnx", dynamo=True, verbose=False)
        assert not (tmp_path / "model.onnx").exists()
    folded = torch.export.export(predbn.fold(model), (images(),)).module()
    assert_close(folded(images()), predbn.fold(model)(images()))


@pytest.mark.parametrize("part", ["", "bn1"])
def test_scripting_is_refused_with_what_to_do(part):
    model = predbn.adapt(net(), "frozen")
    model(images())
    with pytest.raises(predbn.AdaptationError, match=r"torch\.jit\.script cannot compile layer 'bn1'.* predbn\.fold"):
        torch.jit.script(model.get_submodule(part))
    for plain in (predbn.fold(model), predbn.restore(model)):
        assert_close(torch.jit.script(plain)(images()), plain(images()))
