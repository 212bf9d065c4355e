"""Each strategy against its equation."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import predbn
from predbn.norm import Statistics, Strategy, find_strategy

from .models import images, net, randomise


def layer_and_batches(batches: int = 4, n: int = 6):
    layer = randomise(nn.BatchNorm2d(3)).eval()
    return layer, [images(n, seed=s, shift=float(s)) for s in range(batches)]


def moments(x):
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    return mean, var


def normalised(layer, x, mean, var):
    return F.batch_norm(x, mean, var, layer.weight, layer.bias, False, 0.0, layer.eps)


def assert_close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@given(n=st.integers(1, 9), N=st.one_of(st.integers(0, 40), st.floats(0, 1e6)))
def test_prior_is_the_weighted_mean(n, N):
    layer, _ = layer_and_batches()
    x = images(n)
    mean, var = moments(x)
    w = n / (n + N)
    expected = normalised(layer, x, w * mean + (1 - w) * layer.running_mean, w * var + (1 - w) * layer.running_var)
    assert_close(predbn.adapt(layer, "prior", N=N)(x), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64])
def test_the_limits_of_the_prior(n):
    model, x = net(), images(n)
    if n > 1:
        batch = predbn.adapt(net())(x)
        assert torch.equal(predbn.adapt(model, "prior", N=0)(x), batch)
    source = net()(x)
    assert_close(predbn.adapt(model, "prior", N=float("inf"))(x), source)
    assert_close(predbn.adapt(model, "prior", N=1e12)(x), source)


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("start", ["source", "first"])
def test_ema_is_the_recursion(momentum, start):
    layer, batches = layer_and_batches()
    predbn.adapt(layer, "ema", momentum=momentum, start=start)
    state = (layer.running_mean.clone(), layer.running_var.clone()) if start == "source" else None
    for x in batches:
        batch = moments(x)
        if state is None:
            state = batch
        else:
            state = tuple((1 - momentum) * old + momentum * new for old, new in zip(state, batch, strict=True))
        assert_close(layer(x), normalised(layer, x, *state))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_frozen_pools_the_first_batches_and_then_stays(k):
    layer, _ = layer_and_batches()
    batches = [images(n, seed=n, shift=float(n)) for n in (5, 2, 7, 4, 3)]
    predbn.adapt(layer, "frozen", batches=k)
    for number, x in enumerate(batches):
        pooled = torch.cat(batches[: min(number + 1, k)])
        assert_close(layer(x), normalised(layer, x, *moments(pooled)))
    predbn.reset(layer)
    assert_close(layer(batches[-1]), normalised(layer, batches[-1], *moments(batches[-1])))


def test_layers_without_source_statistics():
    x = images()
    own = F.batch_norm(x, None, None, training=True)
    for strategy in ("train", "batch", "auto", "auto_stream", "prior", "ema", "frozen"):
        layer = predbn.adapt(nn.BatchNorm2d(3, track_running_stats=False).eval(), strategy)
        assert_close(layer(x), own)


def test_by_text_by_name_and_as_an_object():
    x = images()
    expected = predbn.adapt(net(), "prior", N=3)(x)
    assert torch.equal(predbn.adapt(net(), "prior(N=3)")(x), expected)
    assert torch.equal(predbn.adapt(net(), predbn.Prior(N=3))(x), expected)
    for text in (
        "train",
        "batch",
        "prior(N=16)",
        "auto(calibrated=True, passes=1)",
        "auto_stream(calibrated=True, momentum=0.1)",
        "ema(momentum=0.1, start='source')",
        "frozen(batches=2)",
    ):
        assert str(find_strategy(text)) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: predbn.adapt(m, "bacth"), "unknown strategy 'bacth' (did you mean 'batch'?)"),
        (lambda m: predbn.adapt(m, "tent"), "population, prior, train"),
        (lambda m: predbn.adapt(m, 3), "not int"),
        (lambda m: predbn.adapt(m, "prior", N=-1), "N=-1"),
        (lambda m: predbn.adapt(m, "prior", N=float("nan")), "N=nan"),
        (lambda m: predbn.adapt(m, "prior", n=3), "no argument 'n'; it takes N"),
        (lambda m: predbn.adapt(m, "batch", N=3), "no argument 'N'; it takes no arguments"),
        (lambda m: predbn.adapt(m, predbn.Prior(), N=3), "beside the strategy object"),
        (lambda m: predbn.adapt(m, "ema", momentum=1.5), "momentum=1.5"),
        (lambda m: predbn.adapt(m, "auto_stream", momentum=-1), "momentum=-1"),
        (lambda m: predbn.adapt(m, "ema", start="zero"), "start='zero'"),
        (lambda m: predbn.adapt(m, "frozen", batches=0), "batches=0"),
        (lambda m: predbn.adapt(m, "prior(16"), "cannot read strategy"),
        (lambda m: predbn.adapt(m, "prior(**{'N': 3})"), "cannot read strategy"),
        (lambda m: predbn.adapt(m, "prior(*[3])"), "cannot read strategy"),
        (lambda m: predbn.adapt(m, "prior(N=3, N=4)"), "cannot read strategy"),
        (lambda m: predbn.adapt(m, eps=-1.0), "eps must be a finite number, 0 or more, got -1.0"),
        (lambda m: predbn.adapt(m, "batch", loader=[]), "takes no loader"),
        (lambda m: predbn.adapt(m, layers="bn9"), "no batch norm layer matches 'bn9'; there are bn1, bn2, bn3"),
        (lambda m: predbn.adapt(m, layers=[]), "layers is empty"),
        (lambda m: predbn.adapt(m, layers=lambda name, layer: False), "chose none of the 3"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(predbn.AdaptationError) as caught:
        call(net())
    assert message in str(caught.value)


def test_one_value_per_channel_names_the_layer_and_a_way_out():
    model = predbn.adapt(net())
    with pytest.raises(predbn.AdaptationError, match=r"layer 'bn3' got a batch of shape \(1, 8\).*'prior'.*'ema'"):
        model(images(1))
    for strategy in ("prior", "ema"):
        assert predbn.adapt(model, strategy)(images(1)).isfinite().all()


@dataclass(frozen=True)
class InstanceMix(Strategy):
    """A user's own strategy, which looks at every example, the source and the calibration."""

    name: ClassVar[str] = "instance-mix"
    share: float = 0.5

    def statistics(self, observation):
        mean, var = observation.example_moments()
        assert mean.shape == (observation.size, 3)
        assert observation.calibration is not None
        source = observation.source
        return Statistics(
            self.share * mean + (1 - self.share) * source.mean, self.share * var + (1 - self.share) * source.var
        )


def test_a_new_strategy_is_one_class():
    layer, batches = layer_and_batches()
    x = batches[0]
    predbn.calibrate(layer, batches)
    predbn.adapt(layer, "instance-mix", share=1.0)
    expected = F.instance_norm(x, weight=layer.weight, bias=layer.bias)
    assert_close(layer(x), expected)
    predbn.adapt(layer, "instance-mix", share=0.0)
    assert_close(layer(x), normalised(layer, x, layer.running_mean, layer.running_var))
