"""Profiles: one pass, constant memory, and parts that merge to the whole."""

import gc
import weakref

import pytest
import torch
from torch import nn

from predbn.common import DiagnosticError, PredbnError
from predbn.diagnostics import profile, profiles

from ..norm.models import images, net
from .models import normal, one_layer


def batches(count: int = 3, size: int = 8, **options) -> list[torch.Tensor]:
    return [images(size, seed=seed, **options) for seed in range(count)]


def test_the_outputs_of_a_known_layer():
    """x̄ ~ N(5, 4/16) on maps of 16 positions: the outputs are N(w·3/σ + b, w²·(4/16)/σ²), σ² = 9.001."""
    model, x = one_layer(), normal(20_000, 3, 16, mean=5.0, sd=2.0)
    result = profile(model, x.split(2_000)).layers["bn"]
    weight, bias, sigma = model.bn.weight.detach(), model.bn.bias.detach(), 9.001**0.5
    torch.testing.assert_close(result.mean, weight * 3 / sigma + bias, rtol=0, atol=5e-3)
    torch.testing.assert_close(result.var, weight.square() * 0.25 / sigma**2, rtol=0.05, atol=0)


@pytest.mark.parametrize("strategy", ["train", "prior(N=inf)"])
def test_parts_merge_to_the_whole_however_it_is_cut(strategy):
    model, data = net(), torch.cat(batches())
    first = profile(model, [data])
    whole = profile(model, data.split(24), strategy, like=first)
    left = profile(model, data[:13].split(5), strategy, like=first)
    right = profile(model, data[13:].split(4), strategy, like=first)
    merged = left.merge(right)
    assert merged.count == whole.count == 24
    assert list(merged.distributions) == list(whole.distributions) == ["bn1", "bn2", "bn3", "embeddings", "logits"]
    for name, distribution in whole.distributions.items():
        other = merged.distributions[name]
        torch.testing.assert_close(other.var, distribution.var)
        assert (other.counts - distribution.counts).abs().sum() <= 4
        assert other.counts.sum() == distribution.counts.sum()


def test_strategies_in_one_pass_do_not_affect_each_other():
    model, data = net(), batches()
    first = profile(model, data)
    together = profiles(model, iter(data), ["train", "batch", "ema", "frozen"], like=first)
    assert list(together) == ["train", "batch", "ema", "frozen"]
    for strategy, result in together.items():
        alone = profile(model, data, strategy, like=first)
        for name, distribution in alone.distributions.items():
            torch.testing.assert_close(result.distributions[name].mean, distribution.mean)
            assert result.distributions[name].counts.equal(distribution.counts)


def test_options_apply_to_the_strategy_and_not_to_the_baseline():
    model, data = net(), batches(shift=3.0)
    result = profiles(model, data, ["train", "batch"], layers="bn1", eps=0.5)
    plain = profile(model, data)
    torch.testing.assert_close(result["train"].layers["bn1"].var, plain.layers["bn1"].var)
    bias = model.bn1.bias.detach().double()
    torch.testing.assert_close(result["batch"].layers["bn1"].mean, bias, rtol=1e-4, atol=1e-5)


class Shared(nn.Module):
    """A layer that is called once, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = nn.BatchNorm1d(3), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.twice(self.twice(self.once(x)))


def test_layers_with_different_numbers_of_rows():
    result = profile(Shared().eval(), [torch.randn(5, 3), torch.randn(2, 3)])
    assert {name: d.count for name, d in result.layers.items()} == {"once": 7, "twice": 14}


def test_no_activation_is_kept():
    """Of all maps that the layers gave in earlier batches, none is alive when the next batch comes."""
    model, alive = net(), []
    for layer in (model.conv1, model.conv2):
        layer.register_forward_hook(lambda _, __, y: alive.append(weakref.ref(y)))

    def stream():
        for x in batches(4):
            gc.collect()
            assert not [ref for ref in alive if ref() is not None]
            yield x

    result = profiles(model, stream(), ["train", "batch"], like=profile(model, batches(1)))
    assert len(alive) == 2 * (1 + 4 * 2)
    assert result["batch"].count == 32


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no batch"),
        ([{"x": 1}], "a dict"),
        ([("a", 1)], "a str"),
        ([torch.full((2, 3, 6, 6), torch.nan)], "finite"),
    ],
)
def test_data_that_cannot_be_used(data, message):
    with pytest.raises(PredbnError, match=message):
        _ = profile(net(), data).distributions


def test_the_reference_of_another_model_is_refused():
    other = profile(one_layer(), [torch.randn(4, 3, 5, dtype=torch.float64)])
    with pytest.raises(DiagnosticError, match="no 'bn1'"):
        profile(net(), batches(1), like=other)
