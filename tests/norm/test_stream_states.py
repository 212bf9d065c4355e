"""One stream is taken out of a model and brought back."""

from __future__ import annotations

import pytest
import torch

import predbn
from predbn.norm import load_stream_state, stream_state

from .models import images, net

STRATEGIES = ("ema", "frozen(batches=2)", "auto_stream")


def adapted(strategy: str) -> torch.nn.Module:
    model = net()
    if "auto" in strategy:
        predbn.calibrate(model, [images(32, seed=seed) for seed in (7, 8)])
    return predbn.adapt(model, strategy)


def predict(model: torch.nn.Module, name: str, seed: int) -> torch.Tensor:
    with predbn.stream(model, name), torch.inference_mode():
        return model(images(seed=seed, shift=0.5))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stream_goes_on_in_another_model(strategy):
    here, there = adapted(strategy), adapted(strategy)
    for seed in range(3):
        predict(here, "a", seed)
        predict(there, "b", seed + 10)
    load_stream_state(there, "a", stream_state(here, "a"))
    uninterrupted = adapted(strategy)
    for seed in range(3):
        predict(uninterrupted, "b", seed + 10)
    for seed in range(3, 6):
        torch.testing.assert_close(predict(there, "a", seed), predict(here, "a", seed), rtol=0, atol=0)
        torch.testing.assert_close(predict(there, "b", seed), predict(uninterrupted, "b", seed), rtol=0, atol=0)


def test_later_passes_do_not_change_a_state_that_was_taken_out():
    model = adapted("auto_stream")
    predict(model, "a", 0)
    state = stream_state(model, "a")
    before = {layer: {key: torch.as_tensor(v).clone() for key, v in values.items()} for layer, values in state.items()}
    for seed in range(1, 4):
        predict(model, "a", seed)
    for layer, values in before.items():
        for key, value in values.items():
            torch.testing.assert_close(torch.as_tensor(state[layer][key]), value, rtol=0, atol=0)


def test_nothing_is_known_about_an_unknown_stream():
    assert stream_state(adapted("ema"), "z") == {}


def test_a_state_of_another_model_is_refused_and_changes_nothing():
    narrow, wide = adapted("ema"), predbn.adapt(net(width=12), "ema")
    predict(narrow, "a", 0)
    with pytest.raises(predbn.AdaptationError, match="layer 'bn1' has 12 channels, the saved state has 8"):
        load_stream_state(wide, "a", stream_state(narrow, "a"))
    assert stream_state(wide, "a") == {}
