"""When the kernels are used, and as operators in graphs of torch.compile."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from predbn.gpu import launch
from predbn.gpu.backend import TritonBackend
from predbn.norm import Bounds, Statistics, StreamSegments
from predbn.norm.backend import backend_of
from predbn.norm.segments import Groups

from .test_kernels import EPS, batch

BACKEND = TritonBackend()


def one(device, *channels):
    return torch.ones(channels, device=device)


def test_it_is_registered(device):
    assert isinstance(backend_of(device.type), TritonBackend)


@pytest.mark.parametrize(("setting", "is_registered"), [(None, True), ("predbn.gpu", True), ("", False), ("x", False)])
def test_importing_it_registers_it_unless_another_backend_is_chosen(setting, is_registered, monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed")
    import predbn.gpu
    from predbn.norm import backend

    monkeypatch.setattr(backend, "_backends", {})
    monkeypatch.delenv("PREDBN_BACKEND", raising=False)
    if setting is not None:
        monkeypatch.setenv("PREDBN_BACKEND", setting)
    predbn.gpu._register()
    assert ("cuda" in backend._backends) == is_registered


def test_it_can_be_imported_without_triton():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import predbn.gpu\n"
        "from predbn.norm.backend import backend_of\n"
        "print(backend_of('cuda'), predbn.gpu.CudaGraphRecorder.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "CudaGraphRecorder"]


def unsupported(device):
    """Inputs that PyTorch has to normalise, by why."""
    x = batch(device, (6, 5, 4, 4))
    yield "double precision", x.double()
    yield "gaps", x[:, ::2]
    yield "gradients", x.clone().requires_grad_()
    yield "no examples", x[:0]
    yield "a subclass", torch.nn.Parameter(x, requires_grad=False)


@pytest.mark.parametrize("number", range(5))
def test_inputs_that_are_left_to_pytorch(device, number):
    reason, x = list(unsupported(device))[number]
    statistics = Statistics(one(device, x.shape[1]), one(device, x.shape[1]))
    assert BACKEND.moments(x, EPS, None, None) is None, reason
    assert BACKEND.normalise(x, statistics, None, None, EPS, None) is None, reason


def test_moments_that_are_left_to_pytorch(device):
    bounds = Bounds(0.5, one(device, 5), 0.1, None)
    assert BACKEND.moments(one(device, 1, 5), EPS, None, None) is None, "a single value has no variance"
    assert BACKEND.moments(one(device, 4, 5, 1), EPS, Groups(4, 1), None) is None
    assert BACKEND.moments(one(device, 1025, 5), EPS, None, bounds) is None, "more examples than can be bounded"
    assert BACKEND.moments(one(device, 1030, 5), EPS, StreamSegments([0] * 1025 + [1] * 5, 2), bounds) is None
    with_gradients = bounds._replace(clean_var=one(device, 5).requires_grad_())
    assert BACKEND.moments(one(device, 6, 5), EPS, None, with_gradients) is None
    seen = []
    torch.vmap(lambda t: seen.append(BACKEND.moments(t, EPS, None, None)) or t)(one(device, 2, 6, 5))
    assert seen == [None]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"eps": 0.0}, "a channel without variance gives the bias"),
        ({"weight": torch.ones(5, requires_grad=True)}, "gradients"),
        ({"statistics": Statistics(torch.ones(5).double(), torch.ones(5).double())}, "double precision"),
        ({"segments": StreamSegments([0, 1, 0], 2)}, "two rows per example"),
        ({"segments": Groups(12, 2)}, "half a row per example"),
    ],
)
def test_normalisations_that_are_left_to_pytorch(device, changes, reason):
    segments = changes.get("segments")
    shape = (5,) if segments is None else (segments.count, 5)
    statistics = changes.get("statistics", Statistics(torch.ones(shape), torch.ones(shape)))
    weight = changes.get("weight", torch.ones(5)).to(device)
    given = Statistics(*(t.to(device) for t in statistics)), weight, None, changes.get("eps", EPS), segments
    assert BACKEND.normalise(batch(device, (6, 5, 3)), *given) is None, reason


def test_statistics_of_the_batch_are_for_several_rows_per_example_too(device):
    x, ones = batch(device, (6, 5, 3)), one(device, 5)
    y = BACKEND.normalise(x, Statistics(ones, ones), None, None, EPS, StreamSegments([0, 1, 0], 2))
    torch.testing.assert_close(y, (x - 1) / (1 + EPS) ** 0.5)


def test_parameters_and_statistics_that_are_not_contiguous(device):
    x, numbers = batch(device, (6, 5, 3)), (torch.arange(20.0) + 1).to(device).view(10, 2)
    mean, weight, expanded = numbers[::2, 0], numbers[::2, 1], numbers[:1, :1].expand(6, 5)
    y = BACKEND.normalise(x, Statistics(mean, expanded[0]), weight, mean, EPS, None)
    expected = (x - mean[:, None]) * weight[:, None] / (1 + EPS) ** 0.5 + mean[:, None]
    torch.testing.assert_close(y, expected)
    y = BACKEND.normalise(x, Statistics(expanded, expanded), None, None, EPS, StreamSegments([0, 2, 1, 3, 5, 4], 6))
    torch.testing.assert_close(y, (x - 1) / (1 + EPS) ** 0.5)


def test_kernels_that_cannot_be_built_are_not_used_and_that_is_said_once(device, monkeypatch):
    def fail(*_):
        raise RuntimeError("no C compiler was found\nand more")

    launch.can_be_built.cache_clear()
    monkeypatch.setattr(launch, "launch_smallest_kernel", fail)
    x = batch(device, (6, 5))
    try:
        with pytest.warns(UserWarning, match=r"cannot be built here \(no C compiler was found\).*PREDBN_BACKEND="):
            assert BACKEND.moments(x, EPS, None, None) is None
        assert BACKEND.moments(x, EPS, None, None) is None
        assert launch.broken_devices == {x.device}
    finally:
        launch.can_be_built.cache_clear()
        launch.broken_devices.clear()


@pytest.mark.parametrize(("group", "is_bounded"), [(None, False), (3, True)])
def test_a_compiled_graph_calls_operators_for_any_batch_size(device, group, is_bounded):
    bounds = Bounds(0.5, one(device, 5), 0.1, torch.rand(3, 5, device=device)) if is_bounded else None

    def moments(x):
        return BACKEND.moments(x, EPS, None if group is None else Groups(len(x), group), bounds)

    graphs = []

    def record(graph, inputs):
        graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    compiled = torch.compile(moments, fullgraph=True, dynamic=True, backend=record)
    x = batch(device, (9, 5, 4, 3), layout=torch.channels_last)
    for size in (6, 9):
        ours, expected = compiled(x[:size]), moments(x[:size])
        torch.testing.assert_close([ours.mean, ours.var], [expected.mean, expected.var])
        assert torch.equal(torch.as_tensor(ours.size), torch.as_tensor(expected.size))
    assert len(graphs) == 1
    name = "moments" if group is None and not is_bounded else "pooled_moments"
    assert getattr(torch.ops.predbn, name).default in graphs[0]


def test_a_compiled_graph_normalises_in_pytorch(device):
    def normalise(x):
        y = BACKEND.normalise(x, Statistics(x[0, :, 0], x[1, :, 0]), None, None, EPS, None)
        return x if y is None else y

    x = batch(device, (6, 5, 4))
    assert torch.equal(torch.compile(normalise, fullgraph=True, backend="eager")(x), x)


def test_operators_have_the_properties_that_graphs_rely_on(device):
    x = batch(device, (6, 5, 4, 3))
    bounds = one(device, 5), one(device, 5), None
    tests = "test_schema", "test_faketensor"
    torch.library.opcheck(torch.ops.predbn.moments.default, (x,), test_utils=tests)
    torch.library.opcheck(torch.ops.predbn.pooled_moments.default, (x, 2, EPS, 0.5, *bounds), test_utils=tests)
    gaps = x[:, ::2]
    torch.testing.assert_close(torch.ops.predbn.moments(gaps), torch.ops.predbn.moments(gaps.contiguous()))


def test_exported_graphs_and_gradients_in_a_graph_use_pytorch(device):
    class Module(torch.nn.Module):
        def forward(self, x):
            return x + (BACKEND.moments(x, EPS, None, None) is None)

    x = batch(device, (6, 5, 4, 3))
    assert torch.equal(torch.export.export(Module(), (x,)).module()(x), x + 1)
    with_gradients = x.clone().requires_grad_()
    assert torch.equal(torch.compile(Module(), fullgraph=True, backend="eager")(with_gradients), x + 1)
    assert torch.equal(torch.compile(Module(), fullgraph=True, backend="eager")(x), x)
