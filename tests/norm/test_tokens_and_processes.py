"""Layers that see tokens or windows in place of images, and statistics over processes."""

import copy

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import predbn

from .models import images, net


class Windows(nn.Module):
    """Batch norm on windows: an image gives four rows, as in attention over windows."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(width)
        nn.init.normal_(self.bn.running_mean)

    def forward(self, x: Tensor) -> Tensor:
        n, c, height, width = x.shape
        tokens = x.permute(0, 2, 3, 1).reshape(n * height * width, c)
        return self.bn(tokens).view(n, height, width, c)


@given(
    strategy=st.sampled_from(["batch", "prior(N=4)", "auto(calibrated=False)"]),
    group=st.integers(1, 5),
    groups=st.integers(1, 3),
    size=st.integers(2, 5),
)
def test_groups_where_batch_norm_sees_tokens(strategy, group, groups, size):
    model = Windows().eval()
    x = torch.cat([images(group, size=size, seed=i, shift=3.0 * i) for i in range(groups)])
    single = predbn.adapt(copy.deepcopy(model), strategy)
    grouped = predbn.adapt(model, strategy, group=group, consecutive_rows=True)
    with torch.no_grad():
        wanted = torch.cat([single(part) for part in x.split(group)])
        torch.testing.assert_close(grouped(x), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["compiled", "exported"])
@torch.no_grad()
def test_tokens_in_a_graph(kind):
    model = predbn.adapt(Windows().eval(), "prior(N=4)", group=4, consecutive_rows=True)
    if kind == "compiled":
        graph = torch.compile(model, backend="eager", fullgraph=True)
    else:
        size = torch.export.Dim("groups", min=1, max=64)
        graph = torch.export.export(model, (images(8),), dynamic_shapes=({0: 4 * size},)).module()
    for n in (4, 8, 16):
        torch.testing.assert_close(graph(images(n)), model(images(n)), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_calibration_of_tokens_is_per_example():
    model = predbn.calibrate(Windows().eval(), [images(8)])
    calibration = predbn.state_dict(model)["calibration"]["bn"]
    assert calibration["size"] == 8
    torch.testing.assert_close(calibration["mean"], images(8).mean((0, 2, 3)), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_an_error_inside_the_model_does_not_leave_its_examples_behind():
    model = predbn.adapt(Windows().eval(), "prior(N=4)")
    with pytest.raises(RuntimeError):
        model(torch.zeros(6, 5, 2, 2))
    tokens = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
    wanted = predbn.adapt(copy.deepcopy(predbn.restore(copy.deepcopy(model)).bn), "prior(N=4)")(tokens)
    assert torch.equal(model.bn(tokens), wanted)


@torch.no_grad()
def test_prior_counts_examples_and_not_tokens():
    model, x = Windows().eval(), images(4)
    found = predbn.adapt(model, "prior(N=4)")(x)
    tokens = x.permute(0, 2, 3, 1).reshape(-1, 3)
    var, mean = torch.var_mean(tokens, 0, correction=0)
    mean, var = (mean + model.bn.running_mean) / 2, (var + model.bn.running_var) / 2
    wanted = (tokens - mean) / (var + model.bn.eps).sqrt()
    torch.testing.assert_close(found.reshape(-1, 3), wanted, rtol=1e-5, atol=1e-5)


@given(
    strategy=st.sampled_from(["batch", "prior(N=4)", "auto(calibrated=False)", "ema"]),
    bad=st.sets(st.integers(0, 5), min_size=1, max_size=4),
    value=st.sampled_from([float("nan"), float("inf")]),
    size=st.integers(2, 4),
)
def test_one_token_that_is_not_finite_leaves_out_its_example(strategy, bad, value, size):
    x, good = images(6, size=size), [i for i in range(6) if i not in bad]
    x[list(bad), 1, -1, 0] = value
    model, clean = (predbn.adapt(Windows().eval(), strategy) for _ in range(2))
    clean.load_state_dict(model.state_dict())
    with torch.no_grad():
        with pytest.warns(UserWarning, match=f"got {len(bad)} examples that are not finite"):
            found = model(x)
        torch.testing.assert_close(found[good], clean(x[good]), rtol=1e-4, atol=1e-4)
        later = images(6, size=size, seed=1)
        torch.testing.assert_close(model(later), clean(later), rtol=1e-4, atol=1e-4)
    assert [row.bad_rows for row in predbn.describe(model)] == [len(bad)]


@torch.no_grad()
@pytest.mark.parametrize("strategy", ["batch", "auto(calibrated=False)"])
def test_one_token_that_is_not_finite_leaves_out_its_example_of_a_group(strategy):
    model = Windows().eval()
    clean = predbn.adapt(copy.deepcopy(model), "batch")
    grouped = predbn.adapt(model, strategy, group=4, consecutive_rows=True)
    x = images(8)
    wanted = grouped(x)[:4]
    x[5, 1, -1, 0] = float("nan")
    with pytest.warns(UserWarning, match="not finite"):
        found = grouped(x)
    torch.testing.assert_close(found[:4], wanted, rtol=1e-4, atol=1e-4)
    assert found[[4, 6, 7]].isfinite().all()
    if strategy == "batch":
        torch.testing.assert_close(found[[4, 6, 7]], clean(x[[4, 6, 7]]), rtol=1e-4, atol=1e-4)


def test_gradients_through_synchronised_statistics(world_of_one):
    x = images(4).requires_grad_()
    wanted = torch.autograd.grad(predbn.adapt(net(), "batch")(x).square().sum(), x)[0]
    found = torch.autograd.grad(predbn.adapt(net(), "batch", sync=True)(x).square().sum(), x)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_uncalibrated_auto_on_one_synchronised_example(world_of_one):
    model = predbn.adapt(net(), "auto", calibrated=False, sync=True)
    assert torch.isfinite(model(images(1))).all()


@torch.no_grad()
def test_a_copy_keeps_its_process_group(world_of_one):
    group = dist.new_group([0])
    model = predbn.adapt(net(), "batch", sync=True, process_group=group)
    slots = [module.__dict__["_predbn"] for module in copy.deepcopy(model).modules() if "_predbn" in module.__dict__]
    assert slots
    assert all(slot.shared.process_group is group for slot in slots)
