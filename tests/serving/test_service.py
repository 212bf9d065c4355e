"""What is kept about streams: in memory, on the disk, and over a restart."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import pickle
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import predbn
from predbn.common import AdaptationError
from predbn.norm import DirectoryStore
from predbn.serving import Prediction, RequestError, Service, ServingError, Settings, Work, prepare_service
from predbn.serving.serve import service_parts

from ..norm.models import net
from .running import asynchronous, calibrated, classifier, close, metrics, pixels, started, tiny_service

STRATEGIES = ("ema", "frozen(batches=2)", "auto_stream")


def send(service: Service, *requests: tuple[str | None, int]) -> list[torch.Tensor]:
    """Start a service, send requests (stream, seed) one after another, and stop it."""

    async def run() -> list[torch.Tensor]:
        async with started(service):
            return [await infer(service, stream, seed) for stream, seed in requests]

    return asyncio.run(run())


async def infer(service: Service, stream: str | None, seed: int = 0, **options: bool) -> torch.Tensor:
    return torch.from_numpy((await service.infer(Work(pixels(seed=seed).numpy(), stream, **options))).logits)


def service(strategy: str = "ema", **settings) -> Service:
    return tiny_service(strategy, calibrated(strategy), **settings)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restart_goes_on_where_the_server_has_stopped(tmp_path, strategy):
    sent = [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("a", 4)]
    uninterrupted = send(service(strategy), *sent)
    restarted = [send(service(strategy, state=tmp_path), request)[0] for request in sent]
    for one, other in zip(uninterrupted, restarted, strict=True):
        close(one, other)
    again = service(strategy, state=str(tmp_path))  # the records are kept too

    async def details():
        await again.start()
        known, unknown = await again.details("a"), await again.details("z")
        await again.stop()
        return known, unknown

    known, unknown = asyncio.run(details())
    assert (known["requests"], known["examples"]) == (3, 12)
    assert strategy.startswith("frozen") or known["distance"] > 0
    assert unknown is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_streams_that_do_not_fit_into_memory_come_back_from_the_folder(tmp_path, strategy):
    sent = [(name, seed) for seed in range(3) for name in "abcd"]
    small = service(strategy, state=tmp_path, max_streams=2)
    for one, other in zip(send(service(strategy), *sent), send(small, *sent), strict=True):
        close(one, other)
    assert len(small.predictor.records) == 2
    assert set(predbn.state_dict(small.predictor.model)["streams"]) == {"default", "c", "d"}
    assert 'predbn_stream_events_total{event="evicted"} 10.0' in metrics(small)


def test_memory_holds_the_most_recently_used_streams_and_no_request_without_one():
    small = service(max_streams=2)
    sent = [("a", 0), ("b", 0), ("a", 1), (None, 2), ("c", 0), ("b", 0), ("a", 1)]
    answers = send(small, *sent)
    close(answers[1], answers[5])  # b was forgotten and begins anew
    close(answers[3], send(service(), (None, 2))[0])
    assert list(small.predictor.records) == ["b", "a"]


@asynchronous
async def test_more_requests_at_once_than_streams_fit_into_memory():
    async with started(service(max_streams=1)) as small:
        names = [None, None, "a", None, "b", None]
        answers = await asyncio.gather(*(infer(small, name, seed) for seed, name in enumerate(names)))
        assert list(small.predictor.records) == ["b"]
    async with started(service()) as alone:
        for seed, answer in enumerate(answers):
            close(answer, await infer(alone, None, seed))


@asynchronous
async def test_forgotten_streams_and_ended_sequences_leave_nothing_behind(tmp_path):
    async with started(service(state=tmp_path)) as running:
        first = await infer(running, "a")
        await running.checkpoint()
        assert await running.forget("a")
        assert not await running.forget("a")
        await running.checkpoint()
        close(await infer(running, "a"), first)
        await running.checkpoint()
        await infer(running, "a", ends=True)
        assert running.predictor.records == {}
    assert list((tmp_path / "streams").glob("*.safetensors")) == []


@asynchronous
async def test_a_checkpoint_in_the_middle_of_a_prediction(tmp_path):
    """It has the stream without its request, and nothing of a request without a stream."""
    running = service(state=tmp_path)
    model, files = running.predictor.model, []

    def save(*_):
        predbn.save_streams(model)
        files.append(len(list(tmp_path.glob("streams/*.safetensors"))))

    async with started(running):
        hook = model.register_forward_hook(save)
        await infer(running, None)
        await infer(running, "a")
        assert files == [0, 1]
        running.predictor.records.clear()
        details = await running.details("a")
        assert (details["requests"], details["layers"]) == (0, [])
        hook.remove()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("broken")])
def test_a_full_disk_does_not_stop_predictions_and_nothing_is_lost(tmp_path, monkeypatch, caplog, error):
    """Checkpoints and evictions fail for whatever reason; the next checkpoint that succeeds saves everything."""
    is_full = isinstance(error, OSError)  # no bug of the store: else streams are not evicted
    running = service(state=tmp_path, checkpoint_every=0.01, max_streams=2 if is_full else 9)
    put = DirectoryStore.put

    def fail(self, name, saved):
        raise error

    async def run():
        monkeypatch.setattr(DirectoryStore, "put", fail)
        async with started(running):
            for name in "abcd":
                await infer(running, name)
            while running.metrics.checkpoints.labels("failed")._value.get() < 2:
                await asyncio.sleep(0.01)
            assert list(running.predictor.records) == list("abcd")
            monkeypatch.setattr(DirectoryStore, "put", put)

    warns = pytest.warns(UserWarning, match="stays in memory") if is_full else nullcontext()
    with caplog.at_level(logging.ERROR, "predbn.serving"), warns:
        asyncio.run(run())
    failed = [record for record in caplog.records if record.message == "checkpoint failed"]
    assert (str(error) in failed[0].reason, failed[0].exc_info is None) == (True, is_full)
    assert len(list((tmp_path / "streams").glob("*.safetensors"))) == 4
    expected = send(service(), ("a", 0), ("a", 1))[1]
    close(send(service(state=tmp_path), ("a", 1))[0], expected)


def test_a_folder_of_another_strategy_model_or_weights_is_refused(tmp_path):
    send(service("ema", state=tmp_path), ("a", 0))
    with pytest.raises(AdaptationError, match=r"holds streams of another strategy: delete the folder"):
        service("frozen", state=tmp_path)
    other = classifier()
    other.network.bn3 = torch.nn.BatchNorm1d(9)
    other.network.fc1, other.network.fc2 = torch.nn.Linear(8, 9), torch.nn.Linear(9, 5)
    with pytest.raises(AdaptationError, match="holds streams of another network"):
        tiny_service("ema", other.eval(), state=tmp_path)
    for changed in ("conv1.weight", "bn1.running_mean"):
        other = classifier()
        with torch.no_grad():
            other.network.state_dict()[changed].view(-1)[0] += 1
        with pytest.raises(AdaptationError, match="holds streams of another network: delete the folder"):
            tiny_service(model=other, state=tmp_path)
    send(service("ema", state=tmp_path), ("a", 0))  # it can still be used


def test_two_servers_cannot_share_a_folder(tmp_path):
    first = service(state=tmp_path)
    with pytest.raises(ServingError, match="another process is writing to"):
        service(state=tmp_path)
    send(first)


def replica(number: int, state: Path) -> Service:
    return Service(*service_parts(classifier(), "ema", Settings(state=state)), replica=number)


def test_a_replica_waits_until_the_one_before_it_has_ended(tmp_path):
    send(service(state=tmp_path))
    first, other = replica(0, tmp_path), replica(1, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(replica, 0, tmp_path)
        assert wait([second], 0.2).not_done
        with pytest.raises(ServingError, match=r"another process is writing to .*replica-"):
            service(state=tmp_path)
        send(first, ("a", 0))
        answer = send(second.result(60), ("a", 1))[0]
    send(other)
    close(answer, send(service(), ("a", 0), ("a", 1))[1])


def test_a_replica_refuses_a_folder_that_is_not_shared(tmp_path):
    with pytest.raises(ServingError, match="all nodes must share this folder"):
        replica(0, tmp_path)


def test_an_error_can_be_sent_to_another_process():
    error = pickle.loads(pickle.dumps(RequestError(503, "later.", retry_after=7)))
    assert (type(error), error.status, str(error), error.retry_after) == (RequestError, 503, "later.", 7)


def test_a_stopped_service_refuses_requests():
    stopped = service()
    send(stopped)
    with pytest.raises(RequestError, match="shutting down"):
        asyncio.run(stopped.infer(Work(pixels().numpy())))


def test_an_output_that_is_not_finite_fails_alone():
    broken = service("train")
    with torch.no_grad():
        broken.predictor.model.network.fc2.bias[0] = float("nan")
    with pytest.raises(RequestError, match="values that are not finite") as failed:
        send(broken, ("a", 0))
    assert failed.value.status == 500


def test_a_bug_of_the_model_is_logged_and_not_shown_to_clients(caplog):
    broken = service("train")
    broken.predictor.model.network.fc2 = torch.nn.Linear(3, 5)
    with (
        caplog.at_level(logging.ERROR, "predbn.serving"),
        pytest.raises(RequestError, match=r"the model failed \(RuntimeError\)"),
    ):
        send(broken, ("a", 0))
    assert "mat1 and mat2" in next(r.reason for r in caplog.records if r.message == "model failed")


def test_a_batch_that_fails_is_logged_although_its_requests_are_predicted_one_by_one(caplog):
    def refuse(_, args):
        if len(args[0]) > 4:
            raise RuntimeError("out of memory")

    predictor = service().predictor
    predictor.model.network.register_forward_pre_hook(refuse)
    with caplog.at_level(logging.WARNING, "predbn.serving"):
        results = predictor.predict([Work(pixels(seed=seed).numpy(), stream) for seed, stream in enumerate("ab")])
    assert all(isinstance(result, Prediction) for result in results)
    assert [(r.message, r.reason) for r in caplog.records] == [("batch failed", "out of memory")]


class Skipping(torch.nn.Module):
    """Calls its first layer only if there are more than four rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)

    def forward(self, x):
        return self.second(self.first(x) if len(x) > 4 else x).mean((2, 3))


def test_a_layer_that_a_pass_does_not_call_is_not_measured():
    predictor = tiny_service(model=Skipping().eval()).predictor
    rows = torch.randn(12, 3, 8, 8).numpy()
    predictor.predict([Work(rows[:3], "a"), Work(rows[3:6], "b"), Work(rows[6:9], "c")])
    predictor.predict([Work(rows[:2], "a"), Work(rows[2:4], "b")])
    record = predictor.records["a"]
    assert (record.requests, record.examples) == (2, 5)
    assert [math.isnan(value) for value in record.seen] == [True, False]


def test_a_drift_that_cannot_be_measured_does_not_change_streams_twice(monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    measured, unmeasured = (tiny_service(model=net()).predictor for _ in range(2))
    works = [Work(torch.randn(4, 3, 8, 8).numpy(), name) for name in "ab"]
    expected = [measured.predict(works) for _ in range(2)][1]
    monkeypatch.setattr("predbn.norm.DriftMeter.measure", broken)
    answers = [unmeasured.predict(works) for _ in range(2)][1]
    for answer, other in zip(answers, expected, strict=True):
        close(torch.from_numpy(answer.logits), torch.from_numpy(other.logits))
    assert unmeasured.records["a"].distance is None


def test_a_custom_model_needs_an_example():
    with pytest.raises(ServingError, match="the input of a Net is unknown: give example="):
        prepare_service(net(), "ema", Settings())
    with pytest.raises(ServingError, match=r"expected rows of BOOL, UINT8, .*, got torch.bfloat16 \[1, 3, 8, 8\]"):
        prepare_service(net(), "ema", Settings(), example=torch.zeros(1, 3, 8, 8, dtype=torch.bfloat16))
    with pytest.raises(ServingError, match=r"the model failed on the example"):
        prepare_service(net(), "ema", Settings(), example=torch.zeros(1, 4))
    with pytest.raises(ServingError, match="the model must return class scores"):
        prepare_service(net().conv1, "ema", Settings(), example=torch.zeros(1, 3, 8, 8))
