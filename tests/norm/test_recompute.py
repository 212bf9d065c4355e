"""Recomputed statistics are those of all data as one batch, are written whole or not at all, and can be undone."""

import copy
import warnings

import pytest
import torch
from torch import nn

import predbn

from .models import Net, images, net, randomise

DATA = torch.cat([images(30, seed=1, shift=2.0), images(11, seed=2, shift=-1.0)]).double()
BATCHINGS = [[41], [40, 1], [7, 13, 1, 20], [1] * 41]


def wide() -> nn.Module:
    return net().double()


def split(sizes):
    return list(DATA.split(sizes))


def buffers(model):
    return {name: value.clone() for name, value in model.named_buffers()}


def assert_same(model, before):
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def statistics_of_one_batch(model, x):
    """Mean and biased variance of each layer's inputs when torch's own batch norm normalises all data as one batch."""
    model = copy.deepcopy(model).train()
    model.drop.eval()
    found = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):

            def record(_, args, name=name):
                values = args[0].transpose(0, 1).flatten(1)
                found[name] = values.mean(1), values.var(1, correction=0)

            layer.register_forward_pre_hook(record)
    with torch.no_grad():
        model(x)
    return found


def assert_statistics_of_one_batch(model, x=DATA, tolerance=1e-6):
    for name, (mean, var) in statistics_of_one_batch(wide(), x).items():
        layer = model.get_submodule(name)
        torch.testing.assert_close(layer.running_mean, mean, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(layer.running_var, var, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sizes", BATCHINGS)
def test_statistics_of_the_whole_data_however_it_is_batched(sizes):
    model = predbn.recompute(wide().train(), split(sizes))
    assert_statistics_of_one_batch(model)
    population = predbn.state_dict(predbn.adapt(wide(), "population", loader=split(sizes)))["streams"]["default"]
    for name, statistics in population.items():
        layer = model.get_submodule(name)
        torch.testing.assert_close((statistics["mean"], statistics["var"]), (layer.running_mean, layer.running_var))
    assert model.training
    assert {int(layer.num_batches_tracked) for layer in (model.bn1, model.bn2, model.bn3)} == {len(sizes)}
    assert all(type(layer) in (nn.BatchNorm2d, nn.BatchNorm1d) for layer in (model.bn1, model.bn2, model.bn3))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_large_maps_in_single_precision(layout):
    """The statistics of a layer that sees the data itself, by `recompute` and by strategy "population"."""
    x = images(16, 160, shift=1.0)
    var, mean = torch.var_mean(x.double(), (0, 2, 3), correction=0)
    batches = list(x.contiguous(memory_format=layout).split(6))
    model = predbn.recompute(nn.Sequential(nn.BatchNorm2d(3)).eval(), batches)
    adapted = predbn.adapt(nn.Sequential(nn.BatchNorm2d(3)).eval(), "population", loader=batches)
    state = predbn.state_dict(adapted)["streams"]["default"]["0"]
    for measured in ((model[0].running_mean, model[0].running_var), (state["mean"], state["var"])):
        torch.testing.assert_close(measured[0].double(), mean, rtol=2e-6, atol=0)
        torch.testing.assert_close(measured[1].double(), var, rtol=2e-6, atol=0)


def test_one_pass_is_exact_in_the_first_layer_and_nearly_so_in_the_others():
    model = predbn.recompute(wide(), split([20, 21]), exact=False)
    wanted = statistics_of_one_batch(wide(), DATA)
    torch.testing.assert_close(model.bn1.running_mean, wanted["bn1"][0], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(model.bn2.running_mean, wanted["bn2"][0], rtol=1e-3)
    whole = predbn.recompute(wide(), [DATA], exact=False)
    assert_statistics_of_one_batch(whole)


def test_restore_gives_back_the_old_statistics_bit_for_bit():
    model = wide()
    model.bn2.momentum = None
    model.bn1.running_var[0] = torch.nan
    before = {name: value.clone() for name, value in model.state_dict().items()}
    keys = list(model.state_dict())
    predbn.recompute(model, [DATA[:20]])
    predbn.recompute(model, [DATA])
    assert list(model.state_dict()) == keys
    copied = copy.deepcopy(model)
    for recomputed in (model, copied):
        predbn.restore(recomputed)
        for name, value in recomputed.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)
        assert "_predbn_overwritten" not in recomputed.bn1.__dict__


def test_restore_undoes_adapt_first_and_then_every_recompute():
    model = wide()
    original = buffers(model)
    predbn.recompute(model, [DATA[:20]])
    predbn.adapt(model, "batch")
    predbn.recompute(model, [DATA])
    predbn.restore(model)
    assert_statistics_of_one_batch(model)
    predbn.restore(model)
    assert_same(model, original)


def test_statistics_that_were_trained_since_are_not_undone():
    model = predbn.recompute(wide(), [DATA])
    model.train()(DATA)
    trained = buffers(model)
    with pytest.warns(UserWarning, match=r"bn1, bn2, bn3 have changed since predbn\.recompute"):
        predbn.restore(model)
    assert_same(model, trained)
    predbn.recompute(model, [DATA])
    predbn.restore(model)
    assert_same(model, trained)


def test_only_some_layers():
    model, before = wide(), buffers(wide())
    predbn.recompute(model, [DATA], layers="bn1")
    assert not torch.equal(model.bn1.running_mean, before["bn1.running_mean"])
    assert torch.equal(model.bn2.running_mean, before["bn2.running_mean"])


class Odd(nn.Module):
    """A layer without statistics, one that is never called, one that is called twice, and no output."""

    def __init__(self) -> None:
        super().__init__()
        self.untracked = nn.BatchNorm1d(3, track_running_stats=False)
        self.unused = nn.BatchNorm1d(3)
        self.twice = nn.BatchNorm1d(3)
        self.again = self.twice

    def forward(self, x):
        self.twice(torch.relu(self.again(self.untracked(x) + 1)) * 2 + 1)


def test_layers_without_statistics_unused_layers_shared_layers_and_a_model_that_returns_nothing():
    model = randomise(Odd()).double().eval()
    unused = model.unused.running_mean.clone()
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predbn.recompute(model, [x])
    messages = [str(warning.message) for warning in caught]
    assert any("untracked store no statistics" in message for message in messages)
    assert any("unused were not called" in message for message in messages)
    assert torch.equal(model.unused.running_mean, unused)
    inputs = []
    with model.twice.register_forward_pre_hook(lambda _, args: inputs.append(args[0])):
        model(x)
    var, mean = torch.var_mean(torch.cat(inputs), 0, correction=0)
    torch.testing.assert_close(model.twice.running_mean, mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.twice.running_var, var, rtol=1e-5, atol=1e-5)


class FrozenBatchNorm2d(nn.Module):
    """As torchvision and detectron2 have it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = 1e-5
        for name in ("weight", "running_var"):
            self.register_buffer(name, torch.ones(channels))
        for name in ("bias", "running_mean"):
            self.register_buffer(name, torch.zeros(channels))

    def forward(self, x):
        return torch.batch_norm(
            x, self.weight, self.bias, self.running_mean, self.running_var, False, 0.1, self.eps, False
        )


def test_frozen_layers_are_left_alone_unless_they_are_asked_for():
    model = nn.Sequential(FrozenBatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)).eval()
    x = images(8, shift=3.0)
    predbn.recompute(model, [x])
    assert torch.equal(model[0].running_mean, torch.zeros(3))
    torch.testing.assert_close(model[2].running_mean, model[1](x).mean((0, 2, 3)).detach(), rtol=1e-4, atol=1e-4)
    predbn.recompute(model, [x], layers="*")
    torch.testing.assert_close(model[0].running_mean, x.mean((0, 2, 3)), rtol=1e-4, atol=1e-4)
    with pytest.raises(predbn.AdaptationError, match=r"select frozen ones, which layers='\*' includes"):
        predbn.recompute(model[:2], [x])


def test_rows_that_are_not_finite_are_left_out():
    spoilt = DATA.clone()
    spoilt[3] = torch.nan
    kept = torch.cat([DATA[:3], DATA[4:]])
    with pytest.warns(UserWarning, match="not finite"):
        model = predbn.recompute(wide(), [*spoilt.split([20, 21]), torch.full_like(DATA[:2], torch.inf)])
    assert_statistics_of_one_batch(model, kept)


def failing():
    yield DATA[:5]
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("loader", "options", "message"),
    [
        ([], {}, "the loader gave no batch"),
        (["a.jpg"], {}, "gave a str without tensors"),
        (5, {}, "the loader is a int"),
        ([torch.full_like(DATA, torch.nan)], {}, "no finite value"),
        (failing(), {}, "the disk is gone"),
        ([DATA], {"layers": "conv*"}, "no batch norm layer matches"),
        ([DATA], {"forward": 3}, "forward is a int"),
        ([DATA], {"forward": lambda model, batch: None}, "call none of the selected"),
        ([DATA], {"exact": False, "checkpoint": "p"}, "cannot be resumed"),
    ],
)
@pytest.mark.filterwarnings("ignore:layer")
def test_what_cannot_be_done_changes_nothing(loader, options, message):
    model, before = wide(), buffers(wide())
    with pytest.raises((predbn.AdaptationError, OSError), match=message):
        predbn.recompute(model, loader, **options)
    assert_same(model, before)
    assert type(model.bn1) is nn.BatchNorm2d


def test_variances_that_a_buffer_cannot_hold():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3)).half().eval()
    before = buffers(model)
    with pytest.raises(predbn.AdaptationError, match=r"do not fit its buffers of torch\.float16"):
        predbn.recompute(model, [1000 * torch.randn(64, 3).half()])
    assert_same(model, before)


def test_what_was_measured_with_the_old_statistics():
    model = predbn.adapt(net(), "ema")
    predbn.recompute(model, [DATA.float()])
    model(images())
    with pytest.raises(predbn.AdaptationError, match=r"'ema.*' remembers batches"):
        predbn.recompute(model, [DATA.float()])
    predbn.recompute(predbn.reset(model), [DATA.float()])
    with pytest.raises(predbn.AdaptationError, match="'bn1' was calibrated with"):
        predbn.recompute(predbn.calibrate(net(), [DATA.float()]), [DATA.float()])


class Killed(Exception):
    pass


def test_a_killed_call_goes_on_where_it_was(tmp_path):
    path, passes = tmp_path / "progress.safetensors", []

    class Loader:
        def __init__(self, last_pass: int) -> None:
            self.last_pass = last_pass

        def __iter__(self):
            passes.append(1)
            if len(passes) > self.last_pass:
                raise Killed
            yield from split([20, 21])

    model, before = wide(), buffers(wide())
    with pytest.raises(Killed):
        predbn.recompute(model, Loader(3), checkpoint=path)
    assert_same(model, before)
    with pytest.raises(predbn.AdaptationError, match="other weights or to other layers: delete it"):
        predbn.recompute(randomise(Net(), seed=5).double().eval(), Loader(9), checkpoint=path)
    with pytest.raises(predbn.AdaptationError, match="gave 1 batches, and 2"):
        predbn.recompute(model, [DATA], checkpoint=path)
    passes.clear()
    predbn.recompute(model, Loader(9), checkpoint=path)
    assert len(passes) == 1, "only the third layer is left"
    assert_statistics_of_one_batch(model)
    assert not path.exists()
