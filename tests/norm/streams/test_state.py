"""What streams remember can be saved, loaded, reset, copied and removed."""

import copy
import io

import pytest
import torch

import predbn

from ..models import images, net

STATEFUL = ["frozen", "auto_stream", "ema", "ema(momentum=0.5, start='first')", "frozen(batches=2)"]
A, B, C = (images(seed=10 + i, shift=2.0) for i in range(3))


@pytest.mark.parametrize("strategy", STATEFUL)
@torch.no_grad()
def test_a_saved_state_is_continued(strategy):
    model = predbn.adapt(net(), strategy)
    model(A)
    with predbn.stream(model, "b"):
        model(B)
    buffer = io.BytesIO()
    torch.save(predbn.state_dict(model), buffer)
    buffer.seek(0)
    other = predbn.adapt(net(), strategy)
    with predbn.stream(other, "c"):
        predbn.load_state_dict(other, torch.load(buffer, weights_only=True))
    for stream in ("default", "b"):
        for x in (C, A):
            with predbn.stream(model, stream), predbn.stream(other, stream):
                assert torch.equal(model(x), other(x))


@torch.no_grad()
def test_population_statistics_and_calibration_are_saved_too():
    model = predbn.adapt(predbn.calibrate(net(), [A, B]), "population", loader=[A, B])
    other = predbn.load_state_dict(predbn.adapt(net(), "population"), predbn.state_dict(model))
    assert torch.equal(model(A), other(A))
    assert predbn.state_dict(other)["calibration"].keys() == {"bn1", "bn2", "bn3"}
    state = predbn.state_dict(model)
    del state["calibration"]["bn2"]["weight"]
    with pytest.raises(predbn.AdaptationError, match="calibration of layer 'bn2' does not have the entries"):
        predbn.load_state_dict(predbn.adapt(net(), "population"), state)


@torch.no_grad()
def test_reset_forgets_one_stream_or_all():
    model, fresh = predbn.adapt(net(), "frozen"), predbn.adapt(net(), "frozen")
    model(A)
    with predbn.stream(model, "x"):
        model(A)
    kept = model(B)
    predbn.reset(model, "x")
    assert torch.equal(model(B), kept)
    with predbn.stream(model, "x"):
        assert torch.equal(model(B), fresh(B))
    predbn.reset(model)
    assert torch.equal(model(B), predbn.adapt(net(), "frozen")(B))


def test_states_that_do_not_fit_are_refused():
    model = predbn.adapt(net(), "ema")
    model(images())
    state = predbn.state_dict(model)
    for other, message in [
        (predbn.adapt(net(), "frozen"), "'bn1' is 'frozen"),
        (predbn.adapt(net(), "ema", layers="bn3"), "'bn1' is 'not adapted' in this model"),
        (predbn.adapt(net(width=4), "ema"), r"4 channels, and 'mean' in the saved state has the shape \(8,\)"),
    ]:
        with pytest.raises(predbn.AdaptationError, match=message):
            predbn.load_state_dict(other, state)
    with pytest.raises(predbn.AdaptationError, match="not a state saved by"):
        predbn.load_state_dict(model, model.state_dict())
    calibrated = predbn.state_dict(predbn.calibrate(net(), [images(8)]))
    with pytest.raises(predbn.AdaptationError, match="channels"):
        predbn.load_state_dict(predbn.calibrate(net(width=4), [images(8)]), calibrated)
    for call in (predbn.state_dict, predbn.reset, lambda m: predbn.stream(m, "x").__enter__()):
        with pytest.raises(predbn.AdaptationError, match="not adapted"):
            call(net())


@torch.no_grad()
def test_a_copy_made_inside_a_block_is_on_the_default_stream():
    model = predbn.adapt(net(), "ema")
    with predbn.stream(model, "camera-1"):
        model(A)
        copied = copy.deepcopy(model)
    assert torch.equal(copied(B), predbn.adapt(net(), "ema")(B))


@torch.no_grad()
def test_streams_can_be_removed_and_named_by_numbers():
    model = predbn.adapt(net(), "ema")
    for name in (7, "camera"):
        with predbn.stream(model, name):
            model(A)
    predbn.reset(model, 7)
    assert set(predbn.state_dict(model)["streams"]) == {"default", 7, "camera"}
    for name in ("default", "nowhere"):
        with pytest.raises(predbn.AdaptationError, match="stream"):
            predbn.remove_stream(model, name)
    with predbn.stream(model, "camera"), pytest.raises(predbn.AdaptationError, match="is open here"):
        predbn.remove_stream(model, "camera")
    predbn.remove_stream(model, "camera")
    for name in (8, "camera"):
        with pytest.raises(predbn.AdaptationError, match=f"there is no stream '{name}'"):
            predbn.reset(model, name)
