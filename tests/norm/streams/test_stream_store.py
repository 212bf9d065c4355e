"""Streams that leave memory, are stored, and come back exactly as they were."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import predbn
from predbn.common import write_tensors
from predbn.norm import DirectoryStore, Packed, SavedStream, pack
from predbn.norm.layer import adaptations
from predbn.norm.streams.state import States

from ..models import images, net
from .stores import MemoryStore
from .test_stream_rows import STATEFUL, adapted, assert_same_states, batch_of

OWNER = {"strategy": "ema", "network": "0"}


def saved_stream(layers: States) -> SavedStream:
    packed = pack(layers)
    return {"owner": OWNER, "state": packed.layout.plain(packed.vectors)}


def layers_of(saved: SavedStream) -> States:
    return Packed.of(saved["state"], torch.device("cpu")).unpack()


def in_memory(model: nn.Module) -> set[object]:
    (adaptation,) = adaptations(model)
    return set(adaptation.streams) - {"default"}


@torch.no_grad()
def predict(model: nn.Module, ids: list[object], step: int = 0) -> torch.Tensor:
    with predbn.streams(model, ids):
        return model(batch_of([hash(name) % 5 for name in ids], step))


@pytest.mark.parametrize("strategy", STATEFUL)
@settings(max_examples=4, deadline=None)
@given(batches=st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=2, max_size=8))
def test_streams_that_were_stored_go_on_exactly(strategy, batches, tmp_path_factory):
    """With two streams in memory as with all of them."""
    bounded = adapted(strategy, max_streams=2, store=tmp_path_factory.mktemp("streams"))
    unbounded = adapted(strategy)
    for step, ids in enumerate(batches):
        ids = ids * 2
        assert torch.equal(predict(bounded, ids, step), predict(unbounded, ids, step))
    wanted = predbn.state_dict(unbounded)["streams"]
    for stream in {stream for ids in batches for stream in ids}:
        with predbn.stream(bounded, stream):
            found = predbn.state_dict(bounded)["streams"][stream]
        assert_same_states(found, wanted[stream])


def test_the_least_recently_used_leave():
    store = MemoryStore()
    model = predbn.adapt(net(), "ema", max_streams=3, store=store)
    for name in "abcad":
        with predbn.stream(model, name), torch.no_grad():
            model(images())
    assert in_memory(model) == {"a", "c", "d"}
    assert set(store) == {"b"}
    with predbn.streams(model, list("efgh")):
        assert in_memory(model) == set("efgh"), "those that are in use, and no others"
    assert in_memory(model) == {"f", "g", "h"}


@torch.no_grad()
def test_strategies_without_memory_keep_no_streams():
    model = predbn.adapt(net(), "prior")
    for step in range(50):
        with predbn.streams(model, [f"{step}-{i}" for i in range(4)]):
            model(images(4))
    assert in_memory(model) == set()


def test_the_size_of_a_state():
    model = predbn.adapt(net(), "ema")
    assert predbn.stream_bytes(model) == 0
    model(images())
    assert predbn.stream_bytes(model) == 3 * 2 * 8 * 4, "a mean and a variance of 8 channels in 3 layers"
    with pytest.raises(predbn.AdaptationError, match="no stream 'x'"):
        predbn.stream_bytes(model, "x")


@torch.inference_mode()
def test_inference_keeps_one_copy_of_a_state():
    model = predbn.adapt(net(), "ema")
    for _ in range(2):
        model(images())
    (adaptation,) = adaptations(model)
    assert adaptation.default_stream.previous is None


def test_streams_are_saved_once_and_continued_by_another_process(tmp_path):
    model = adapted("auto_stream", store=tmp_path)
    for step in range(2):
        predict(model, ["a", "b", "a"], step)
    predbn.save_streams(model)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    assert len(times) == 2
    predict(model, ["b", "b"], 2)
    predbn.save_streams(model)
    assert sum(path.stat().st_mtime_ns != old for path, old in times.items()) == 1, "'a' was not used since"
    other = adapted("auto_stream", store=tmp_path)
    assert torch.equal(predict(model, ["a", "b", "c"], 3), predict(other, ["a", "b", "c"], 3))
    with pytest.raises(predbn.AdaptationError, match="there is no store"):
        predbn.save_streams(adapted("auto_stream"))


def test_removed_and_reset_streams_do_not_come_back():
    store = MemoryStore()
    model, fresh = (adapted("ema", max_streams=1, store=own) for own in (store, MemoryStore()))
    predict(model, ["a", "b", "c", "d"])
    assert {"a", "b", "c"} <= set(store)
    predbn.remove_stream(model, "a")
    predbn.reset(model, "b")
    assert {"a", "b"} & set(store) == set()
    with pytest.raises(predbn.AdaptationError, match="no stream 'a'"):
        predbn.remove_stream(model, "a")
    predbn.reset(model)
    assert not store
    assert torch.equal(predict(model, ["a", "b", "c", "d"], 1), predict(fresh, ["a", "b", "c", "d"], 1))


def test_a_stream_that_is_removed_while_it_is_used_leaves_nothing():
    model, ids = adapted("ema"), ["a", "b"]
    with predbn.streams(model, ids), torch.no_grad():
        model(batch_of([0, 1], 0))
        with ThreadPoolExecutor(1) as executor:
            executor.submit(predbn.remove_stream, model, "a").result(10)
        model(batch_of([0, 1], 1))
    assert in_memory(model) == {"b"}


NAMES = ["a", "A", 1, "1", -3, "", ".", "..", "../../etc/passwd", "a/b", "x" * 5000, "Кам\nера \0", "con", "🎥"]


def test_any_text_and_integer_is_a_name(tmp_path):
    store = DirectoryStore(tmp_path / "streams")
    for i, name in enumerate(NAMES):
        store.put(name, saved_stream({"bn": {"mean": torch.full((2,), float(i)), "passes": i}}))
    for i, name in enumerate(NAMES):
        saved = store.get(name)
        assert saved is not None
        state = layers_of(saved)["bn"]
        assert state["passes"] == i
        assert torch.equal(state["mean"], torch.full((2,), float(i)))
    assert [path.parent for path in tmp_path.rglob("*.safetensors")] == [tmp_path / "streams"] * len(NAMES)
    assert store.remove("a")
    assert not store.remove("a")
    assert store.get("a") is None


def test_states_come_back_bit_by_bit(tmp_path):
    store, shared = DirectoryStore(tmp_path), torch.rand(3)
    layers = {
        "layer1.0.bn": {"half": torch.rand(4).half(), "wide": torch.rand(2, 3).double(), "shared": shared, "n": 7},
        "bn": {
            "empty": torch.zeros(0),
            "scalar": torch.tensor(0.1),
            "long": torch.tensor([[2**60 + 1]]),
            "shared": shared,
        },
    }
    store.put("a", saved_stream(layers))
    saved = store.get("a")
    assert saved is not None
    assert saved["owner"] == OWNER
    found_layers = layers_of(saved)
    assert found_layers.keys() == layers.keys()
    for name, state in layers.items():
        assert found_layers[name].keys() == state.keys()
        for key, value in state.items():
            found = found_layers[name][key]
            assert found == value if isinstance(value, int) else torch.equal(found, value)
            assert isinstance(value, int) or found.dtype == value.dtype


def test_damaged_and_foreign_files_are_refused(tmp_path):
    model = adapted("ema", store=tmp_path)
    predict(model, ["a", "b"])
    predbn.save_streams(model)
    path = DirectoryStore(tmp_path)._path("a")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    other = adapted("ema", store=tmp_path)
    with pytest.raises(predbn.AdaptationError, match=rf"{path.name} is damaged.* delete it"):
        predict(other, ["b", "a"])
    assert not adaptations(other)[0].streams._open, "nothing stays open"
    write_tensors(path, {"b": 1})
    with pytest.raises(predbn.AdaptationError, match=rf"{path.name} is not the state of a stream"):
        predict(other, ["b", "a"])
    path.write_bytes(content)
    with pytest.raises(predbn.AdaptationError, match=r"holds streams of another strategy: delete the folder"):
        adapted("ema(momentum=0.5)", store=tmp_path)


class FullDisk(MemoryStore):
    is_full = True

    def put(self, name: object, saved: SavedStream) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device", "streams/a")
        super().put(name, saved)


def test_a_full_disk_loses_nothing():
    store = FullDisk()
    model, unbounded = adapted("ema", max_streams=1, store=store), adapted("ema")
    for step in range(3):
        with pytest.warns(UserWarning, match="stays in memory, because it cannot be stored .*No space left"):
            y = predict(model, ["a", "b", "c"], step)
        assert torch.equal(y, predict(unbounded, ["a", "b", "c"], step))
    with pytest.raises(OSError, match="No space left"):
        predbn.save_streams(model)
    store.is_full = False
    predict(model, ["a", "b", "c"], 3)
    assert len(in_memory(model)) <= 1
    predict(unbounded, ["a", "b", "c"], 3)
    assert torch.equal(predict(model, ["c", "b", "a"], 4), predict(unbounded, ["c", "b", "a"], 4))


def test_threads_that_predict_save_and_evict():
    """Every thread has streams of its own; nothing is lost however they come and go."""
    bounded, unbounded = adapted("ema(momentum=0.5)", max_streams=3, store=MemoryStore()), adapted("ema(momentum=0.5)")
    is_done = threading.Event()

    def keep_saving() -> None:
        while not is_done.is_set():
            predbn.save_streams(bounded)
            time.sleep(0.001)

    def run(thread: int) -> list[torch.Tensor]:
        return [predict(bounded, [f"{thread}-{(step + i) % 4}" for i in (0, 1, 0)], step) for step in range(12)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(5) as executor:
            saving = executor.submit(keep_saving)
            found = list(executor.map(run, range(4)))
            is_done.set()
            saving.result()
    finally:
        is_done.set()
        sys.setswitchinterval(interval)
    for thread, results in enumerate(found):
        for step, y in enumerate(results):
            wanted = predict(unbounded, [f"{thread}-{(step + i) % 4}" for i in (0, 1, 0)], step)
            torch.testing.assert_close(y, wanted, rtol=1e-9, atol=1e-9)
    assert len(in_memory(bounded)) <= 3


@pytest.mark.parametrize("bound", [0, -1, 2.0, True, "4", 4])
def test_invalid_bounds_and_a_bound_without_a_store(bound, tmp_path):
    store, message = (None, "needs a store") if bound == 4 else (tmp_path, "must be at least 1")
    with pytest.raises(predbn.AdaptationError, match=f"max_streams {message}"):
        predbn.adapt(net(), "ema", max_streams=bound, store=store)


def test_files_contain_no_pickles(tmp_path):
    DirectoryStore(tmp_path).put("a", saved_stream({"bn": {"mean": torch.rand(2)}}))
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["predbn"])["content"]["stream"] == "a"


@pytest.mark.parametrize("forget", ["reset", "load"])
def test_a_stream_that_was_reset_or_loaded_is_written_again(forget):
    store = MemoryStore()
    model, other, new = adapted("ema", store=store), adapted("ema", store=store), adapted("ema")
    before = predbn.state_dict(model)
    predict(model, ["a", "a"])
    predbn.save_streams(model)
    if forget == "reset":
        predbn.reset(model, "a")
    else:
        predbn.load_state_dict(model, before)
    predbn.save_streams(model)
    assert torch.equal(predict(other, ["a", "a"], 3), predict(new, ["a", "a"], 3))
