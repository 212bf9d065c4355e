"""Streams of a server whose disk fails or is slow, and more of them than fit into memory."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import threading
from pathlib import Path

import pytest
import torch

from predbn.common import write_tensors
from predbn.norm import DirectoryStore
from predbn.serving import RequestError, Service, Work

from .running import asynchronous, close, metrics, pixels, started, tiny_service


async def infer(service: Service, stream: str, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy((await service.infer(Work(pixels(seed=seed).numpy(), stream))).logits)


def files(state: Path) -> list[Path]:
    return sorted((state / "streams").glob("*.safetensors"))


def events(service: Service) -> dict[str, float]:
    names = "evicted", "damaged", "unreadable"
    return {name: service.metrics.events.labels(name)._value.get() for name in names}


async def first_request(state: Path) -> None:
    async with started(tiny_service(state=state)) as service:
        await infer(service, "a")


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()], ids=["files", "memory"]
)
@asynchronous
async def test_a_temporary_read_error_is_503_and_changes_no_file(tmp_path, monkeypatch, caplog, error):
    await first_request(tmp_path)
    (path,) = files(tmp_path)
    content, real = path.read_bytes(), Path.open

    def fail(self, *args, **options):
        if self.suffix == ".safetensors":
            raise error
        return real(self, *args, **options)

    async with started(tiny_service()) as uninterrupted, started(tiny_service(state=tmp_path)) as service:
        with monkeypatch.context() as patched, caplog.at_level(logging.ERROR, "predbn.serving"):
            patched.setattr(Path, "open", fail)
            for ask in (lambda: infer(service, "a", 1), lambda: service.details("a")):
                with pytest.raises(RequestError, match="cannot be read now: send the request again later") as refused:
                    await ask()
                assert (refused.value.status, refused.value.retry_after) == (503, 5)
        assert path.read_bytes() == content
        assert not list(tmp_path.rglob("*.damaged"))
        assert events(service) == {"evicted": 0, "damaged": 0, "unreadable": 2}
        await infer(uninterrupted, "a")
        expected = await infer(uninterrupted, "a", 1)
        close(await infer(service, "a", 1), expected)
    assert "stream not read" in {record.message for record in caplog.records}


@asynchronous
async def test_what_is_whole_but_not_the_state_of_the_stream_stays_as_it_is(tmp_path):
    async with started(tiny_service(state=tmp_path)) as service:
        await infer(service, "a")
        await infer(service, "b")
    a, b = files(tmp_path)
    shutil.copy(a, b)
    content = a.read_bytes()
    write_tensors(a, {"something": "else"})
    other = a.read_bytes()
    async with started(tiny_service(state=tmp_path)) as service:
        for stream in "ab":
            with pytest.raises(RequestError, match="cannot be read now"):
                await infer(service, stream)
        assert events(service)["unreadable"] == 2
    assert (a.read_bytes(), b.read_bytes()) == (other, content)


@pytest.mark.parametrize("is_empty", [True, False], ids=["the power has failed", "a bit has flipped"])
@asynchronous
async def test_a_damaged_file_is_put_aside_and_counted_and_its_stream_begins_anew(tmp_path, caplog, is_empty):
    async with started(tiny_service(state=tmp_path)) as service:
        first = await infer(service, "a")
    (path,) = files(tmp_path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(b"" if is_empty else content)
    async with started(tiny_service(state=tmp_path)) as service:
        with caplog.at_level(logging.ERROR, "predbn.serving"):
            close(await infer(service, "a"), first)
        assert events(service) == {"evicted": 0, "damaged": 1, "unreadable": 0}
        assert 'predbn_stream_events_total{event="damaged"} 1.0' in metrics(service)
    assert "is damaged" in next(r.reason for r in caplog.records if r.message == "stream damaged")
    assert path.with_suffix(".damaged").exists()


@pytest.mark.parametrize("has_folder", [True, False])
def test_no_more_streams_than_fit_are_in_memory_whatever_is_saved_meanwhile(tmp_path, has_folder):
    """Batches of three streams with room for two, and checkpoints between and during the passes."""
    service = tiny_service(state=tmp_path if has_folder else None, max_streams=2)
    predictor = service.predictor
    checkpoints: list[threading.Thread] = []

    def begin_checkpoint(*_: object) -> None:
        """It waits for the streams of the pass."""
        checkpoints.append(threading.Thread(target=lambda: asyncio.run(service.checkpoint())))
        checkpoints[-1].start()

    hook = predictor.model.register_forward_hook(begin_checkpoint if has_folder else lambda *_: None)
    for step in range(6):
        names = [f"{step}-{number}" for number in range(3)]
        predictor.predict([Work(pixels(seed=step).numpy(), name) for name in names])
        for checkpoint in checkpoints:
            checkpoint.join()
        assert len(predictor.records) == 2
        assert predictor.streams_in_memory == 2
        assert "predbn_streams 2.0" in metrics(service)
    hook.remove()
    assert events(service)["evicted"] == 16


@asynchronous
async def test_a_checkpoint_on_a_slow_disk_does_not_stop_predictions(tmp_path, monkeypatch):
    """While one file is written, streams come from the folder and leave memory."""
    service = tiny_service(state=tmp_path, max_streams=2)
    put, reached, released = DirectoryStore.put, threading.Event(), threading.Event()

    def slow(self, name, saved):
        if name == "z":
            reached.set()
            assert released.wait(30)
        put(self, name, saved)

    async with started(tiny_service()) as uninterrupted, started(service):
        for name in "abz":
            await infer(service, name)
            await infer(uninterrupted, name)
        monkeypatch.setattr(DirectoryStore, "put", slow)
        checkpoint = asyncio.create_task(service.checkpoint())
        await asyncio.to_thread(reached.wait, 10)
        try:
            for seed, name in enumerate("azcz"):
                found = await asyncio.wait_for(infer(service, name, seed), 10)
                close(found, await infer(uninterrupted, name, seed))
            assert not checkpoint.done()
        finally:
            released.set()
        await checkpoint
