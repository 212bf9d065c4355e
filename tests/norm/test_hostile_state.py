"""What may get into the state of a strategy, and what may not: rows that are not finite, states of other models."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import predbn

from .models import images, net, randomise


@pytest.fixture(scope="module")
def calibrated() -> nn.Module:
    return predbn.calibrate(net(), [images(32, seed=9)])


BAD = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "ema", "auto", "auto_stream", "frozen", "population"])
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_a_bad_row_changes_its_own_prediction_only(calibrated, strategy, robust, bad, gradients):
    x = images(8)
    x[3] = BAD[bad]
    rest = [i for i in range(8) if i != 3]
    options = {"loader": list(images(64, seed=4).split(16))} if strategy == "population" else {}
    model, clean = (predbn.adapt(copy.deepcopy(calibrated), strategy, robust=robust, **options) for _ in range(2))
    with warnings.catch_warnings(), torch.set_grad_enabled(gradients):
        warnings.simplefilter("ignore")
        found = model(x)
        torch.testing.assert_close(found[rest], clean(x[rest]), rtol=1e-5, atol=2e-5)
        later = images(8, seed=4)
        torch.testing.assert_close(model(later), clean(later), rtol=1e-5, atol=2e-5)
    counts = {row.bad_rows for row in predbn.describe(model)}
    assert counts == {0} if strategy == "population" else counts == {1}


@pytest.mark.parametrize("strategy", ["auto_stream", "ema", "frozen(batches=3)"])
@pytest.mark.parametrize("calibration", [True, False])
def test_a_bad_frame_of_a_stream_that_is_predicted_with_gradients(calibrated, strategy, calibration):
    base = calibrated if calibration else net()
    model, clean = (predbn.adapt(copy.deepcopy(base), strategy, robust=True) for _ in range(2))
    model(images(8)), clean(images(8))
    frame = images(1)
    frame[0, 0, 0, 0] = float("nan")
    with pytest.warns(UserWarning, match="got 1 examples that are not finite"):
        model(frame)
    for seed in range(2):
        assert torch.equal(model(images(8, seed=seed)), clean(images(8, seed=seed)))
    assert {row.bad_rows for row in predbn.describe(model)} == {1}


@torch.no_grad()
def test_a_bad_row_is_warned_about_once_and_counted():
    x = images(8)
    x[3, 0, 0, 0] = float("nan")
    model = predbn.adapt(net(), "ema")
    with pytest.warns(UserWarning, match="not finite"):
        model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x)
    assert {row.bad_rows for row in predbn.describe(model)} == {2}
    assert "bad rows" in str(predbn.describe(model))


@settings(max_examples=40, deadline=None)
@given(
    strategy=st.sampled_from(["batch", "prior(N=4)", "auto(calibrated=False)"]),
    bad=st.lists(st.integers(0, 11), min_size=1, max_size=8),
    value=st.sampled_from(list(BAD.values())),
    everywhere=st.booleans(),
    last=st.booleans(),
)
@torch.no_grad()
def test_bad_rows_of_groups(strategy, bad, value, everywhere, last):
    """Wherever they are, the other rows of their group are predicted as if they were alone."""
    x = images(12)
    for row in bad:
        x[row, ..., :] = value if everywhere else x[row]
        x[row, 1, -1, -1] = value
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    good = [[i for i in range(start, start + 6) if i not in bad] for start in (0, 6)]
    layer = nn.Sequential(randomise(nn.BatchNorm2d(3)).eval())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = predbn.adapt(copy.deepcopy(layer), strategy, group=6)(x)
    for rows in good:
        if not rows or (strategy != "batch" and len(rows) < 6):
            continue
        wanted = predbn.adapt(copy.deepcopy(layer), strategy)(x[rows])
        torch.testing.assert_close(found[rows], wanted, rtol=1e-4, atol=1e-4)
    is_bad = torch.zeros(12, dtype=torch.bool).index_fill_(0, torch.tensor(bad), True)
    groups_left = [bool(rows) for rows in good for _ in range(6)]
    finite = found.isfinite().flatten(1).all(1)
    assert torch.equal(finite[~is_bad], torch.tensor(groups_left)[~is_bad])


@pytest.mark.parametrize(
    "strategy", ["ema", "auto_stream(calibrated=False)", "frozen(batches=3)", "ema(start='first')"]
)
@pytest.mark.parametrize("value", [float("nan"), 1e30])
@torch.no_grad()
def test_a_batch_without_a_usable_row_leaves_no_trace(strategy, value):
    model, clean = predbn.adapt(net(), strategy), predbn.adapt(net(), strategy)
    for seed in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(torch.full((4, 3, 6, 6), value) * images(4))
        assert torch.equal(model(images(4, seed=seed)), clean(images(4, seed=seed)))


@pytest.mark.parametrize("strategy", ["auto", "auto_stream"])
def test_gradients_at_low_contrast(strategy):
    def loss(x: Tensor) -> Tensor:
        model = predbn.adapt(predbn.calibrate(net().double(), [images(32).double()]), strategy)
        return model(x).square().sum()

    x = (images(4, seed=3).double() * 0.3).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x), x)
    direction = torch.randn_like(x)
    step = 1e-6
    with torch.no_grad():
        slope = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_eps_as_a_numpy_number():
    wanted = predbn.adapt(net(), "batch", eps=float(np.float32(0.1)))(images(4))
    assert torch.equal(predbn.adapt(net(), "batch", eps=np.float32(0.1))(images(4)), wanted)
