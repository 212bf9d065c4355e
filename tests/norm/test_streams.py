"""Streams do not mix, and their state can be saved, loaded and reset."""

from __future__ import annotations

import io
import threading

import pytest
import torch

import predbn
from predbn.norm.joined_states import JoinedStates
from predbn.norm.passes import Stream

from .models import images, net

STATEFUL = ["frozen", "auto_stream", "ema", "ema(momentum=0.5, start='first')", "frozen(batches=2)"]


def feed(camera: int) -> list[torch.Tensor]:
    return [images(seed=10 * camera + i, shift=2.0 * camera) for i in range(4)]


@pytest.mark.parametrize("strategy", STATEFUL)
@torch.no_grad()
def test_interleaved_streams_equal_separate_models(strategy):
    model = predbn.adapt(net(), strategy)
    alone = [predbn.adapt(net(), strategy) for _ in range(3)]
    for step in range(4):
        for camera in range(3):
            x = feed(camera)[step]
            with predbn.stream(model, f"camera-{camera}"):
                y = model(x)
            assert torch.equal(y, alone[camera](x))


@torch.no_grad()
def test_streams_nest_and_return_to_the_default():
    model, alone = predbn.adapt(net(), "ema"), predbn.adapt(net(), "ema")
    a, b, c = feed(1)[:3]
    expected = [alone(a), alone(b)]
    assert torch.equal(model(a), expected[0])
    with pytest.raises(KeyError), predbn.stream(model, "one"):
        model(c)
        with predbn.stream(model, "two"):
            model(c)
        raise KeyError
    assert torch.equal(model(b), expected[1])


@torch.no_grad()
def test_threads_with_their_own_streams_do_not_mix():
    model = predbn.adapt(net(), "ema")
    expected = []
    for camera in range(4):
        alone = predbn.adapt(net(), "ema")
        expected.append([alone(x) for x in feed(camera)])
    results: dict[int, list[torch.Tensor]] = {}

    def watch(camera: int) -> None:
        results[camera] = []
        for x in feed(camera):
            with torch.no_grad(), predbn.stream(model, str(camera)):
                results[camera].append(model(x))

    threads = [threading.Thread(target=watch, args=(c,)) for c in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for camera in range(4):
        for a, b in zip(results[camera], expected[camera], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", STATEFUL)
@torch.no_grad()
def test_a_saved_state_is_continued(strategy):
    model = predbn.adapt(net(), strategy)
    first, second, third = feed(1)[:3]
    model(first)
    with predbn.stream(model, "b"):
        model(second)
    buffer = io.BytesIO()
    torch.save(predbn.state_dict(model), buffer)
    buffer.seek(0)
    other = predbn.load_state_dict(predbn.adapt(net(), strategy), torch.load(buffer, weights_only=True))
    for stream in ("default", "b"):
        for x in (third, first):
            with predbn.stream(model, stream), predbn.stream(other, stream):
                assert torch.equal(model(x), other(x))


@torch.no_grad()
def test_population_statistics_and_calibration_are_saved_too():
    batches = feed(1)
    model = predbn.adapt(predbn.calibrate(net(), batches), "population", loader=batches)
    other = predbn.load_state_dict(predbn.adapt(net(), "population"), predbn.state_dict(model))
    assert torch.equal(model(batches[0]), other(batches[0]))
    assert predbn.state_dict(other)["calibration"].keys() == {"bn1", "bn2", "bn3"}
    state = predbn.state_dict(model)
    del state["calibration"]["bn2"]["weight"]
    with pytest.raises(predbn.AdaptationError, match="calibration of layer 'bn2' was saved by another version"):
        predbn.load_state_dict(predbn.adapt(net(), "population"), state)


@torch.no_grad()
def test_reset_forgets_one_stream_or_all():
    model, fresh = predbn.adapt(net(), "frozen"), predbn.adapt(net(), "frozen")
    a, b = feed(0)[0], feed(2)[0]
    model(a)
    with predbn.stream(model, "x"):
        model(a)
    kept = model(b)
    predbn.reset(model, "x")
    assert torch.equal(model(b), kept)
    with predbn.stream(model, "x"):
        assert torch.equal(model(b), fresh(b))
    predbn.reset(model)
    assert torch.equal(model(b), predbn.adapt(net(), "frozen")(b))


def test_bad_states_are_refused_and_change_nothing():
    model = predbn.adapt(net(), "ema")
    model(images())
    state = predbn.state_dict(model)
    with pytest.raises(predbn.AdaptationError, match="'bn1' is 'frozen"):
        predbn.load_state_dict(predbn.adapt(net(), "frozen"), state)
    with pytest.raises(predbn.AdaptationError, match="'bn1' is 'not adapted' in this model"):
        predbn.load_state_dict(predbn.adapt(net(), "ema", layers="bn3"), state)
    with pytest.raises(predbn.AdaptationError, match="4 channels, the saved state has 8"):
        predbn.load_state_dict(predbn.adapt(net(width=4), "ema"), state)
    with pytest.raises(predbn.AdaptationError, match="not a state saved by"):
        predbn.load_state_dict(model, model.state_dict())
    with pytest.raises(predbn.AdaptationError, match="no stream 'y'"):
        predbn.reset(model, "y")
    for call in (predbn.state_dict, predbn.reset, lambda m: predbn.stream(m, "x").__enter__()):
        with pytest.raises(predbn.AdaptationError, match="not adapted"):
            call(net())


def test_a_stream_that_is_read_while_it_is_kept_anew():
    """Readers take no lock: what they make of the old states must not replace the new ones."""
    stream = Stream()

    class Slow(JoinedStates):
        def states(self):
            stream.keep({"layer": {"mean": torch.ones(1)}}, {})  # as another thread does meanwhile
            return {"layer": {"mean": torch.zeros(1)}}

    stream.keep(Slow(None, torch.zeros(1)), {})
    assert float(stream.states["layer"]["mean"]) == 0
    assert float(stream.states["layer"]["mean"]) == 1
